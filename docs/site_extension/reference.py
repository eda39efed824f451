"""How signatures and docstrings look in the reference."""

import inspect
from typing import Any

from pydantic_core import PydanticUndefined
from sphinx.util.nodes import make_refnode

from lightning_modules.config import Settings

_OURS = ("ablations", "lightning_modules")


def skip_member(app: Any, what: str, name: str, shown: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out what other libraries put into our classes: methods they make, fields of named tuples."""
    module = getattr(shown, "__module__", None) or ""
    is_foreign = inspect.isroutine(shown) and module.partition(".")[0] not in _OURS
    return True if is_foreign or name == "model_config" or type(shown).__name__ == "_tuplegetter" else None


def process_signature(
    app: Any, what: str, name: str, shown: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """A class of settings is described by its knobs and a protocol by its methods: neither shows parameters."""
    if what == "class" and (issubclass(shown, Settings) or getattr(shown, "_is_protocol", False)):
        return "", None
    return (signature.replace("<factory>", "..."), returned) if signature else None


def process_docstring(app: Any, what: str, name: str, shown: Any, options: Any, lines: list[str]) -> None:
    """Adds the knobs of settings, and the public classes that a class extends."""
    if what == "class":
        if issubclass(shown, Settings):
            own = ((key, info) for key, info in shown.model_fields.items() if key in shown.__annotations__)
            lines += [line for key, info in own for line in ("", _knob(key, info))]
        bases = [base for base in shown.__bases__ if base.__module__ != "builtins" and _is_informative(base)]
        if bases:
            named = ", ".join(f"`~{base.__module__}.{base.__qualname__}`" for base in bases)
            lines += ["", f"Extends {named}.", ""]


def _is_informative(base: type) -> bool:
    return not base.__name__.startswith("_") and base.__module__ not in ("abc", "typing")


def _knob(name: str, info: Any) -> str:
    default = "" if info.default in (None, PydanticUndefined) else f" = {info.default!r}"
    return f"* ``{name}{default}``: {info.description or ''}"


def link_by_last_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Links `Example` or `Masking.choose` in a docstring of any module, if only one object has that name."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or target.islower():
        return None
    domain = env.get_domain("py")
    found = {name: entry for name, entry in domain.objects.items() if name.endswith(f".{target}")}
    if len(found) != 1:
        return None
    ((name, entry),) = found.items()
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)
