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
    app: Any, what: str, name: str, shown: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Settings are described by their knobs, so their class has no list of parameters."""
    if what == "class" and inspect.isclass(shown) and issubclass(shown, Settings):
        return "", ""
    return None


def process_docstring(app: Any, what: str, name: str, shown: Any, options: Any, lines: list[str]) -> None:
    """Adds the knobs of a settings class."""
    if what == "class" and inspect.isclass(shown) and issubclass(shown, Settings):
        own = {key: info for key, info in shown.model_fields.items() if key in shown.__annotations__}
        for key, info in own.items():
            lines += ["", *_knob(key, info)]


def _knob(name: str, info: Any) -> list[str]:
    default = "" if info.default in (None, PydanticUndefined) else f" = {info.default!r}"
    return [f"* ``{name}{default}``: {info.description or ''}"]


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
