"""The base class of all settings: frozen, strict, comparable, addressable by dotted path, canonically hashed.

A *knob* is one field of one settings class. Grids, the command line and tables all name it by its dotted path
(``objectives.mlm.masking.rate``).
"""

import difflib
import functools
import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

_ABSENT = object()


@dataclass(frozen=True)
class Problem:
    """One problem of a configuration: where it is, what it is, and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(ValueError):
    """All problems of a configuration, reported together."""

    def __init__(self, problems: Iterable[Problem | str]) -> None:
        self.problems = [p if isinstance(p, Problem) else Problem("", p) for p in problems]
        super().__init__("\n".join(map(str, self.problems)))


_MOST_LISTED = 40  # names; of more, only the nearest help


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that is most similar; None if nothing is similar."""
    return next(iter(difflib.get_close_matches(str(word), sorted(map(str, allowed)), n=1, cutoff=0.6)), None)


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'rate'?``, or the whole list if nothing is similar. Starts with a space.

    Of a list too long to read, the nearest names and how many there are.
    """
    names = sorted(map(str, allowed))
    near = nearest(word, names)
    if near:
        return f" Did you mean '{near}'?"
    if len(names) > _MOST_LISTED:
        few = difflib.get_close_matches(str(word), names, n=3, cutoff=0.0)
        return f" The nearest of {len(names)}: {', '.join(few)}."
    return f" Allowed: {', '.join(names)}." if names else ""


def knob(default: Any, doc: str, *, neutral: Any = _ABSENT, **constraints: Any) -> Any:
    """A field of a settings class.

    Args:
        default: The default value.
        doc: One sentence, with the unit, for ``ablations params`` and the documentation.
        neutral: The value without effect. A field at its neutral value is left out of the identity of a run, so
            that a new knob keeps earlier records valid. Never change it.
        **constraints: Constraints of pydantic (``ge``, ``le``, ``gt`` ...).
    """
    extra = {} if neutral is _ABSENT else {"neutral": neutral}
    return Field(default, description=doc, json_schema_extra=extra, **constraints)


def required(doc: str, **constraints: Any) -> Any:
    """A field without default; its arguments are those of `knob`."""
    return Field(description=doc, **constraints)


def label(default: str, doc: str) -> Any:
    """A descriptive field without influence on numbers; never part of an identity."""
    return Field(default, description=doc, json_schema_extra={"label": True})


def _extra(info: FieldInfo) -> Mapping[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


class Settings(BaseModel):
    """A frozen, strict value. Unknown keys, wrong types, NaN and infinities are rejected, all in one error."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Builds the settings from the data of YAML or JSON.

        Raises:
            ConfigError: With every problem of ``data``: path and nearest valid spelling.
        """
        try:  # via JSON, where lists become tuples and everything else stays strict
            return cls.model_validate_json(json.dumps(data))
        except ValidationError as error:
            raise ConfigError(problems(error, cls)) from None

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON-ready data."""
        return self.model_dump(mode="json")

    def but(self, **changes: Any) -> Self:
        """A validated copy with the knobs at some dotted paths changed.

        >>> from lightning_modules.systems import ROBERTA_BASE
        >>> ROBERTA_BASE.but(**{"model.num_layers": 4, "objectives.mlm.masking.rate": 0.4}).model.num_layers
        4

        Raises:
            ConfigError: With every unknown path, its nearest valid one, and every invalid value.
        """
        data, wrong = self.to_dict(), []
        for path, value in changes.items():
            problem = _set(data, path, as_data(value), type(self))
            wrong += [problem] if problem else []
        if wrong:
            raise ConfigError(wrong)
        return type(self).read(data)

    def get(self, path: str) -> Any:
        """The value at a dotted path."""
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name) if value is not None else None
        return value

    def essence(self) -> dict[str, Any]:
        """The part that determines numbers: without labels and neutral values, with derived defaults filled in."""
        return self.resolved()._bare()

    def _bare(self) -> dict[str, Any]:
        kept, values = {}, self.__dict__  # pydantic's place for fields, quicker than getattr by a tenth of a plan
        for name, neutral in _determining(type(self)):
            value = values[name]
            if neutral is _ABSENT or value != neutral:
                kept[name] = value if type(value) in _LEAVES else _essence(value)
        return kept

    def resolved(self) -> Self:
        """The settings with every ``None`` of a derived default replaced by its value, in all parts."""
        changed = {}
        for name in _branches(type(self)):
            part = getattr(self, name)
            if isinstance(part, Settings) and (new := part.resolved()) is not part:
                changed[name] = new
        return self.model_copy(update=changed) if changed else self


def as_data(value: Any) -> Any:
    """The value of a knob as JSON-ready data."""
    if isinstance(value, Settings):
        return value.to_dict()
    return [as_data(item) for item in value] if isinstance(value, tuple) else value


def once(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Caches a function of settings, or a method of theirs without arguments, for equal settings.

    Ten thousand cells share about fifty models. The cache is here rather than in the settings, so that it does not
    affect their copies, pickles and comparisons.
    """
    cached = functools.lru_cache(maxsize=4096)(answer)
    return functools.wraps(answer)(lambda settings: cached(settings))


@functools.cache
def _branches(cls: type[Settings]) -> tuple[str, ...]:
    """The fields of a settings class that may hold settings."""
    return tuple(name for name, info in cls.model_fields.items() if _settings_class(info))


@functools.cache
def _determining(cls: type[Settings]) -> tuple[tuple[str, Any], ...]:
    """The fields of a settings class that are not labels, each with its neutral value if it has one."""
    extras = {name: _extra(info) for name, info in cls.model_fields.items()}
    return tuple((name, extra.get("neutral", _ABSENT)) for name, extra in extras.items() if not extra.get("label"))


_UNCHANGED = (int, bool, type(None))
_LEAVES = frozenset((str, float, *_UNCHANGED))


def _essence(value: Any) -> Any:
    if type(value) in _LEAVES:
        return value
    if isinstance(value, Settings):
        return value._bare()
    if isinstance(value, (list, tuple)):
        return [_essence(item) for item in value]
    if isinstance(value, dict):
        return {key: _essence(item) for key, item in value.items()}
    return value


def _settings_class(info: FieldInfo) -> type[Settings] | None:
    options = (info.annotation, *get_args(info.annotation))
    return next((o for o in options if isinstance(o, type) and issubclass(o, Settings)), None)


@functools.cache
def paths(cls: type[Settings], prefix: str = "") -> dict[str, FieldInfo]:
    """Every dotted path of a settings class, branches included, with its field."""
    fields: dict[str, FieldInfo] = {}
    for name, info in cls.model_fields.items():
        fields[prefix + name] = info
        inner = _settings_class(info)
        if inner is not None:
            fields |= paths(inner, f"{prefix}{name}.")
    return fields


def _set(data: dict[str, Any], path: str, value: Any, cls: type[Settings]) -> Problem | None:
    known = paths(cls)
    if path not in known:
        return Problem(path, f"there is no such knob.{did_you_mean(path, known)}")
    *branches, leaf = path.split(".")
    for depth, name in enumerate(branches):
        if data.get(name) is None:  # a part that is None starts from its defaults
            part = _settings_class(known[".".join(branches[: depth + 1])])
            data[name] = part().to_dict() if part else {}
        data = data[name]
    data[leaf] = value
    return None


def flat(settings: Settings) -> dict[str, Any]:
    """Leaf values by dotted path."""
    leaves: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            leaves |= {f"{name}.{path}": leaf for path, leaf in flat(value).items()}
        else:
            leaves[name] = value
    return leaves


def diff(a: Settings, b: Settings) -> dict[str, tuple[Any, Any]]:
    """The differences of ``a`` and ``b``: dotted path -> (value in a, value in b); None if a part is absent."""
    left, right = flat(a.resolved()), flat(b.resolved())
    return {p: (left.get(p), right.get(p)) for p in {**left, **right} if left.get(p) != right.get(p)}


_SHAPES = {  # pydantic's messages use terms of Python, grid files are YAML
    "tuple_type": "must be a list, for example [1, 2]",
    "list_type": "must be a list, for example [1, 2]",
    "dict_type": "must be a mapping, for example {a: 1}",
    "model_type": "must be a mapping, for example {a: 1}",
}


def problems(error: ValidationError, cls: type[Settings], what: str = "knob") -> list[Problem]:
    """Pydantic's errors as readable sentences with suggestions; ``what`` is what a field is called."""
    known = paths(cls)
    readable = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        if isinstance(within := item.get("ctx", {}).get("error"), ConfigError):  # it names its own places
            readable += [Problem(".".join(filter(None, (path, p.path))), p.message) for p in within.problems]
            continue
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            parent = path.rpartition(".")[0]
            siblings = [p.rpartition(".")[2] for p in known if p.rpartition(".")[0] == parent]
            message = f"there is no such {what}.{did_you_mean(path.rpartition('.')[2], siblings)}"
        elif item["type"] == "literal_error":
            message = f"{item['input']!r} is not allowed.{did_you_mean(item['input'], allowed_words(item))}"
        elif item["type"] == "too_short":
            message = "is empty; it needs at least one entry"
        elif item["type"] != "value_error":
            message = f"{_SHAPES.get(item['type'], message)}, not {item['input']!r}"
        readable.append(Problem(path, message))
    return readable


def allowed_words(item: Mapping[str, Any]) -> list[str]:
    """The words that pydantic's error about a literal allows."""
    return [word.strip(" '") for word in item.get("ctx", {}).get("expected", "").replace(" or ", ",").split(",")]


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, NFC text, floats by their 12 significant digits, no -0, no NaN.

    >>> canonical({"b": 0.1 + 0.05, "a": -0.0})
    '{"a":0.0,"b":0.15}'
    """
    return json.dumps(_normal(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _normal(value: Any) -> Any:
    if type(value) in _UNCHANGED:
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, dict):
        return {_key(str(key)): _normal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(item) for item in value]
    return value


@functools.lru_cache(maxsize=4096)
def _number(value: float) -> float:
    return float(f"{value:.12g}") + 0.0


@functools.lru_cache(maxsize=4096)
def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def identity(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
