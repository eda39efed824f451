"""Reads a document as settings of a class; after complaints, reads it mended, so that the rest is checked as well."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError

from ablations.core.strict_yaml import Document, Path_
from lightning_modules.config import Settings, allowed_words, problems
from lightning_modules.problems import nearest

S = TypeVar("S", bound=Settings)


def keyed(document: Document, cls: type[Settings]) -> None:
    """Complains of keys that a class of settings lacks, and reads the nearest in their place."""
    while True:
        for path, part, settings in list(_parts(document.data, cls, ())):
            for key in part.keys() - settings.model_fields.keys():
                document.slip((*path, key), "there is no such key.", settings.model_fields)
        if not document.mend():  # a mended key may hold others
            return


def _parts(value: Any, annotation: Any, path: Path_) -> Any:
    """Every mapping of a document that represents settings, inner ones last: path, mapping, class."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        if isinstance(value, dict):
            yield path, value, annotation
            for name, info in annotation.model_fields.items():
                yield from _parts(value.get(name), info.annotation, (*path, name))
        return
    for option in get_args(annotation):
        if get_origin(annotation) is dict and isinstance(value, dict):
            for key, item in value.items():
                yield from _parts(item, option, (*path, key))
        elif get_origin(annotation) is tuple and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _parts(item, option, (*path, index))
        elif get_origin(annotation) not in (dict, tuple):
            yield from _parts(value, option, path)


def shaped(document: Document, cls: type[S], stand_in: Mapping[str, Any], *, quiet: bool = False) -> S | None:
    """The settings of a document; adds every problem to the document.

    After complaints the document is mended: a misspelt word is read as the nearest allowed one, other wrong values are
    left out, and so are items of lists that lack something.

    Args:
        stand_in: Settings that replace missing ones.
        quiet: Whether to mend without complaints, where they have been made.

    Returns:
        None if something required is missing that has no stand-in.
    """
    known: set[tuple[Path_, str]] = set()
    while True:
        try:
            return cls.model_validate(_tuples(document.data))
        except ValidationError as error:
            found = {(document.written(item["loc"]), item["type"]) for item in error.errors(include_url=False)}
            if found <= known:
                return None
            if not quiet:
                _complain(document, error, {place for place, _ in known}, cls)
            known |= found
            _mend(document, error.errors(include_url=False))
            document.data = {**stand_in, **document.data}


def _tuples(value: Any) -> Any:
    """Converts lists to tuples, as settings hold them; keeps mappings."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _complain(document: Document, error: ValidationError, known: set[Path_], cls: type[Settings]) -> None:
    for item, problem in zip(error.errors(include_url=False), problems(error, cls), strict=True):
        message = problem.message
        if item["type"] == "missing":
            if document.written(item["loc"]) in known:
                continue  # it was left out because it was wrong
            message = "is required and missing"
        elif item["type"] == "string_pattern_mismatch":
            message = f"{item['input']!r} does not match {item.get('ctx', {}).get('pattern')}"
        document.complain(item["loc"], message)


def _mend(document: Document, items: Iterable[Any]) -> None:
    left_out: set[Path_] = set()
    for item in items:
        place = _there(document, item["loc"])
        near = nearest(item["input"], allowed_words(item)) if item["type"] == "literal_error" else None
        if near:
            document.part(place[:-1])[place[-1]] = near
        elif item["type"] == "missing":
            depth = next((n for n in range(len(place), 0, -1) if isinstance(place[n - 1], int)), len(place))
            left_out.add(place[:depth])
        else:
            left_out.add(place)
    for place in sorted(left_out - {()}, key=_order, reverse=True):  # later items of a list before earlier ones
        document.drop(place)


def _order(place: Path_) -> list[tuple[int, str]]:
    return [(key, "") if isinstance(key, int) else (0, key) for key in place]


def _there(document: Document, place: Path_) -> Path_:
    """The part of a place that the document has: pydantic adds the names of alternatives and of missing keys."""
    while place and document.part(place[:-1]) is None:
        place = place[:-1]
    around = document.part(place[:-1])
    return place if (place[-1] in around if isinstance(around, dict) else isinstance(around, list)) else place[:-1]
