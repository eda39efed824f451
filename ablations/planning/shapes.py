"""Reads a document as settings of a class; after complaints, reads its valid part."""

from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from ablations.core.strict_yaml import Document
from lightning_modules.config import Settings, did_you_mean, problems

S = TypeVar("S", bound=Settings)


def shaped(document: Document, data: dict[str, Any], cls: type[S]) -> S | None:
    """The settings in some data of a document; adds every problem to the document.

    After complaints these are the settings of the valid part, so that its knobs are checked as well; None if that part
    lacks something required.
    """
    try:
        return cls.model_validate(_tuples(data))
    except ValidationError as error:
        rest = _without(data, [item["loc"] for item in _complain(document, error, cls)])
    try:
        return cls.model_validate(_tuples(rest))
    except ValidationError:
        return None


def _tuples(value: Any) -> Any:
    """Converts lists to tuples, as settings hold them; keeps mappings."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _complain(document: Document, error: ValidationError, cls: type[Settings]) -> list[dict[str, Any]]:
    items = error.errors(include_url=False)
    for item, problem in zip(items, problems(error, cls), strict=True):
        loc = item["loc"]
        message = problem.message
        if item["type"] == "missing":
            message = "is required and missing"
        elif item["type"] == "extra_forbidden":
            message = f"there is no such key.{did_you_mean(str(loc[-1]), _settings_at(loc, cls).model_fields)}"
        elif item["type"] == "string_pattern_mismatch":
            message = f"{item['input']!r} does not match {item['ctx']['pattern']}"
        document.complain(loc, message)
    return items


def _settings_at(loc: tuple[str | int, ...], cls: type[Settings]) -> type[Settings]:
    """The settings class that holds the last part of a location."""
    for part in loc[:-1]:
        info = cls.model_fields.get(str(part))
        cls = (_inner(info.annotation) if info else None) or cls
    return cls


def _inner(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((cls for option in get_args(annotation) if (cls := _inner(option))), None)


def _without(data: dict[str, Any], locations: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """The data without its invalid parts: a key of a mapping, or the whole item of a list."""
    bad = [loc for loc in locations if loc]

    def pruned(value: Any, at: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {k: pruned(v, (*at, k)) for k, v in value.items() if (*at, k) not in bad}
        if isinstance(value, list):  # drops an item with any problem
            return [v for n, v in enumerate(value) if not any(loc[: len(at) + 1] == (*at, n) for loc in bad)]
        return value

    return pruned(data, ())
