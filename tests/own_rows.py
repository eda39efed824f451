"""Tasks of one's own, made of a row as a user writes it."""

from dataclasses import fields

from lightning_modules.tasks.readers.own import Own
from lightning_modules.tasks.rows import SHAPES, Row
from lightning_modules.tasks.task import Task


def own(name, title, shape, **values):
    """The task of a row whose examples have a shape; ``values`` are further keys of the row."""
    if type(shape) not in SHAPES.values():  # one of a plugin
        return Task(name, title, "own data", shape, (), Own(name, shape, **values))
    answer = next(key for key, kind in SHAPES.items() if type(shape) is kind)
    settings = {field.name: getattr(shape, field.name) for field in fields(shape)}
    settings = {key: value for key, value in settings.items() if value != getattr(type(shape), key, None)}
    labels = settings.pop("labels", ()) or settings.pop("types", ())
    answer = answer if labels or answer != "class" else "number"
    return Row(title=title, answer=answer, labels=labels, shape=settings, **values).task(name)
