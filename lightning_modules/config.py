"""The base class of all settings: frozen, strict, comparable, addressable by dotted path, canonically hashed.

A *knob* is one field of one settings class. Grids, the command line and tables all name it by its dotted path
(``objectives.mlm.masking.rate``).
"""

import copy
import functools
import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self, Union, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from lightning_modules.problems import ConfigError, Problem, did_you_mean

_ABSENT = object()


def knob(default: Any, doc: str, *, neutral: Any = _ABSENT, **constraints: Any) -> Any:
    """A field of a settings class.

    Args:
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


class ByKind:
    """Marks a field that holds one of several classes of settings, distinguished by their field ``kind``.

    ``Annotated[Pieces | Spans, ByKind()]``: each class has a field ``kind`` whose only value is its default. Data
    without a kind are of the first class, whose ``kind`` is neutral, so that a class can be replaced by several and
    identities stay.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        first = _kind(get_args(source)[0])

        def chosen(value: Any) -> str:
            given = value.get("kind", first) if isinstance(value, Mapping) else getattr(value, "kind", first)
            return given if isinstance(given, str) else repr(given)

        tagged = Union[tuple(Annotated[cls, Tag(_kind(cls))] for cls in get_args(source))]  # noqa: UP007
        return handler.generate_schema(Annotated[tagged, Discriminator(chosen)])


class AsMade:
    """Marks a field that takes settings as they are, and reads only data: a plan's runs share their systems.

    ``Annotated[System, AsMade()]``: pydantic would repeat the checks of a class for every value that holds one of it.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        read = handler(source)
        taken = core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, source) else check(value), read
        )
        return core_schema.json_or_python_schema(json_schema=read, python_schema=taken)


def _kind(cls: type["Settings"]) -> str:
    return cls.model_fields["kind"].default


class Settings(BaseModel):
    """A frozen, strict value. Unknown keys, wrong types, NaN and infinities are rejected, all in one error."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )
    keeps_knobs: ClassVar[bool] = False  # whether knobs of another ``kind`` may be set, for when it is changed to that

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

    def changed(self, names: Iterable[str]) -> list[str]:
        """Those of some knobs that are not as they are by default."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]

    def but(self, **changes: Any) -> Self:
        """A validated copy with the knobs at some dotted paths changed.

        >>> from lightning_modules.systems import ROBERTA_BASE
        >>> ROBERTA_BASE.but(**{"model.num_layers": 4, "objectives.mlm.masking.rate": 0.4}).model.num_layers
        4

        A ``kind`` starts its part from the defaults of that kind (see `keeps_knobs`), wherever it is among the changes.

        Raises:
            ConfigError: With every unknown path, its nearest valid one, and every invalid value.
        """
        data, wrong = self.to_dict(), []
        for path, value in sorted(changes.items(), key=lambda change: not is_kind(type(self), change[0])):
            problem = _set(data, path, copy.deepcopy(as_data(value)), type(self))  # which other changes may change
            wrong += [problem] if problem else []
        if wrong:
            raise ConfigError(wrong)
        return type(self).read(data)

    def get(self, path: str) -> Any:
        """The value at a dotted path; None for a knob of another kind, and below a part that is None."""
        value: Any = self
        absent = (None,) if path in paths(type(self)) else ()
        for name in path.split("."):
            value = getattr(value, name, *absent) if value is not None else None
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


def once(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Caches a function of settings, or a method of theirs, for equal settings and equal arguments by position.

    Ten thousand cells share about fifty models. The cache is here rather than in the settings, so that it does not
    affect their copies, pickles and comparisons.
    """
    cached = functools.lru_cache(maxsize=4096)(answer)
    return functools.wraps(answer)(lambda *given: cached(*given))


@functools.cache
def _branches(cls: type[Settings]) -> tuple[str, ...]:
    """The fields of a settings class that may hold settings."""
    return tuple(name for name, info in cls.model_fields.items() if _settings_classes(info))


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


def _settings_classes(info: FieldInfo) -> tuple[type[Settings], ...]:
    """The classes of settings that a field may hold. They are more than one where a ``kind`` distinguishes them."""
    options = (info.annotation, *get_args(info.annotation))
    return tuple(option for option in options if isinstance(option, type) and issubclass(option, Settings))


def is_kind(cls: type[Settings], path: str) -> bool:
    """Whether the knob at a path says of which kind its part is."""
    return path.endswith("kind") and path in paths(cls) and "kinds" in _extra(paths(cls)[path])


def has_knob(cls: type[Settings], path: str, part: str, kind: str) -> bool:
    """Whether the knob at a path may be set if the part whose ``kind`` is at another path is of some kind."""
    below = path.startswith(part.removesuffix("kind")) and not _keeps_knobs(cls, part)
    return not below or path not in paths(cls) or kind in _extra(paths(cls)[path]).get("kinds", (kind,))


def _keeps_knobs(cls: type[Settings], part: str) -> bool:
    """The `keeps_knobs` of the part whose ``kind`` is at a path."""
    return _settings_classes(paths(cls)[part.rpartition(".")[0]])[0].keeps_knobs


@functools.cache
def paths(cls: type[Settings], prefix: str = "") -> dict[str, FieldInfo]:
    """Every dotted path of a settings class, branches and the knobs of all kinds included, with its field."""
    fields: dict[str, FieldInfo] = {}
    for name, info in cls.model_fields.items():
        fields[prefix + name] = info
        inner, below = _settings_classes(info), f"{prefix}{name}."
        fields |= _of_kinds(inner, below) if len(inner) > 1 else paths(inner[0], below) if inner else {}
    return fields


def _of_kinds(classes: Iterable[type[Settings]], prefix: str) -> dict[str, FieldInfo]:
    """The paths of a part that has several kinds; each field says which of them have it, under ``kinds``."""
    found: dict[str, dict[str, FieldInfo]] = {}
    kinds = {_kind(cls): (cls.__doc__ or "").partition("\n")[0] for cls in classes}
    for cls in classes:
        for path, info in paths(cls, prefix).items():
            found.setdefault(path, {})[_kind(cls)] = info
    fields = {}
    for path, owners in found.items():
        meanings = {kind: kinds[kind] if path == f"{prefix}kind" else info.description for kind, info in owners.items()}
        first = next(iter(owners.values()))
        said = {meaning: [k for k, m in meanings.items() if m == meaning] for meaning in meanings.values()}
        described = " ".join(f"{', '.join(names)}: {meaning}" for meaning, names in said.items())
        extra = {**_extra(first), "kinds": tuple(owners)}
        fields[path] = Field(first.default, description=described, json_schema_extra=extra)
    return fields


def _set(data: dict[str, Any], path: str, value: Any, cls: type[Settings]) -> Problem | None:
    known = paths(cls)
    if path not in known:
        return Problem(path, f"there is no such knob.{did_you_mean(path, known)}")
    *branches, leaf = path.split(".")
    for depth, name in enumerate(branches):
        if data.get(name) is None:  # a part that is None starts from its defaults
            part = _settings_classes(known[".".join(branches[: depth + 1])])
            data[name] = part[0]().to_dict() if part else {}
        data = data[name]
    if is_kind(cls, path) and not _keeps_knobs(cls, path):
        data.clear()  # knobs of another kind may have the same names and other meanings
    data[leaf] = value
    return None


def classes(settings: Settings) -> Iterator[type[Settings]]:
    """The classes of the settings and of all their parts."""
    yield type(settings)
    for name in _branches(type(settings)):
        if isinstance(part := getattr(settings, name), Settings):
            yield from classes(part)


def flat(settings: Settings) -> dict[str, Any]:
    """Leaf values by dotted path."""
    leaves: dict[str, Any] = {}
    for name in (*type(settings).model_fields, *(settings.model_extra or ())):
        value = getattr(settings, name)
        if isinstance(value, Settings):
            leaves |= {f"{name}.{path}": leaf for path, leaf in flat(value).items()}
        else:
            leaves[name] = value
    return leaves


def diff(a: Settings, b: Settings) -> dict[str, tuple[Any, Any]]:
    """The differences of ``a`` and ``b``: dotted path -> (value in a, value in b); None if a part is absent."""
    left, right = _unlike(a.resolved(), b.resolved())
    return {p: (left.get(p), right.get(p)) for p in {**left, **right} if left.get(p) != right.get(p)}


def _unlike(a: Settings, b: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """`flat` of both without parts that are equal, which are most in a plan of many cells."""
    if type(a) is not type(b):
        return flat(a), flat(b)
    leaves: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name in type(a).model_fields:
        values = getattr(a, name), getattr(b, name)
        if values[0] is values[1] or values[0] == values[1]:
            continue
        if all(isinstance(value, Settings) for value in values):
            parts = _unlike(*values)
        else:
            parts = tuple(flat(value) if isinstance(value, Settings) else {"": value} for value in values)
        for known, part in zip(leaves, parts, strict=True):
            known.update({f"{name}.{path}".rstrip("."): leaf for path, leaf in part.items()})
    return leaves


_SHAPES = {  # pydantic's messages use terms of Python, grid files are YAML
    "tuple_type": "must be a list, for example [1, 2]",
    "list_type": "must be a list, for example [1, 2]",
    "dict_type": "must be a mapping, for example {a: 1}",
    "model_type": "must be a mapping, for example {a: 1}",
}


def problems(error: ValidationError, cls: type[Settings], what: str = "knob") -> list[Problem]:
    """Pydantic's errors as readable sentences with suggestions; ``what`` is what a field is called."""
    readable = []
    for item in error.errors(include_url=False):
        path, holder, kinds = _place(item["loc"], cls)
        if isinstance(within := item.get("ctx", {}).get("error"), ConfigError):  # it names its own places
            readable += [Problem(".".join(filter(None, (path, p.path))), p.message) for p in within.problems]
            continue
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = _superfluous(path, holder, paths(cls), what)
        elif item["type"] == "union_tag_invalid":
            path, tag = f"{path}.kind", item.get("ctx", {}).get("tag")
            message = f"{tag!r} is not allowed.{did_you_mean(str(tag), kinds)}"
        elif item["type"] == "literal_error":
            message = f"{item['input']!r} is not allowed.{did_you_mean(item['input'], allowed_words(item))}"
        elif item["type"] == "too_short":
            message = "is empty. It needs at least one entry"
        elif item["type"] == "too_long":
            context = item.get("ctx", {})
            message = f"has {context['actual_length']:,} entries. At most {context['max_length']:,} are allowed"
        elif item["type"] != "value_error":
            message = f"{_SHAPES.get(item['type'], message)}, not {item['input']!r}"
        readable.append(Problem(path, message))
    return readable


def _place(where: Iterable[str | int], cls: type[Settings]) -> tuple[str, type[Settings] | None, Iterable[str]]:
    """The dotted path of pydantic's error, without the kinds in it; the class that holds it; the kinds it may have."""
    names: list[str] = []
    holder: type[Settings] | None = cls
    inner: type[Settings] | None = cls
    kinds: dict[str, type[Settings]] = {}
    for part in where:
        if kinds:  # after a part of several kinds comes the kind that was tried
            inner, kinds = kinds[str(part)], {}
            continue
        holder = inner
        info = holder.model_fields.get(str(part)) if holder else None
        classes = _settings_classes(info) if info else ()
        kinds = {_kind(option): option for option in classes} if len(classes) > 1 else {}
        inner = classes[0] if len(classes) == 1 else None
        names.append(str(part))
    return ".".join(names), holder, kinds


def _superfluous(path: str, holder: type[Settings] | None, known: Mapping[str, FieldInfo], what: str) -> str:
    """What is wrong with a field that its class does not have."""
    parent, _, name = path.rpartition(".")
    if path in known and holder:
        kinds = " or ".join(_extra(known[path])["kinds"])
        here = f"{parent}.kind"
        but = f"set {here} to {kinds}, or leave {name} out"
        return f"is a {what} of {here} {kinds}, and {here} is {_kind(holder)}: {but}"
    siblings = [p.rpartition(".")[2] for p in known if p.rpartition(".")[0] == parent]
    return f"there is no such {what}.{did_you_mean(name, siblings)}"


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
