"""The supported families, and the choice of one for a folder or a system."""

from collections.abc import Mapping
from typing import Any

from lightning_modules.config import ConfigError, Problem, as_data
from lightning_modules.interop.families.albert import ALBERT
from lightning_modules.interop.families.bert import BERT
from lightning_modules.interop.families.config_json import unknown
from lightning_modules.interop.families.distilbert import DISTILBERT
from lightning_modules.interop.families.family import PLAIN, Family, check_groups, transformer
from lightning_modules.interop.families.gpt2 import GPT2
from lightning_modules.interop.families.roberta import ROBERTA
from lightning_modules.interop.families.roberta_prelayernorm import ROBERTA_PRELAYERNORM
from lightning_modules.interop.families.xlnet import XLNET
from lightning_modules.system import System

# the last one that suits a system is its family: put special ones after general ones
FAMILIES = {family.name: family for family in (BERT, ROBERTA, ROBERTA_PRELAYERNORM, ALBERT, DISTILBERT, GPT2, XLNET)}


def family_named(config: Mapping[str, Any]) -> Family:
    """The family of a configuration.

    Raises:
        ConfigError: When the family is not supported.
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ConfigError([unknown("model_type", name, FAMILIES)])
    return FAMILIES[name]


def family_of(system: System) -> Family:
    """The family whose form a system has.

    Raises:
        ConfigError: With every knob that no family supports, and the allowed values.
    """
    model = transformer(system)
    family = next(family for family in reversed(FAMILIES.values()) if family.suits(system))
    heads = {"lm": {"transform": ("none",), "bias": (False,), "cutoffs": ((),)}, "plm": {"transform": ("none",)}}
    head = heads.get(family.objective, {})
    form = {f"model.{knob}": can for knob, can in {**PLAIN, **family.form}.items()}
    if family.memory:
        del form["model.memory_length"]
    form |= {f"objectives.{family.objective}.{knob}": can for knob, can in head.items()}
    resolved = system.resolved()
    where = f"is not supported in checkpoints of {family.name}"
    wrong = [
        Problem(path, f"'{_said(given)}' {where}. It must be {' or '.join(map(_said, can))}.")
        for path, can in form.items()
        if (given := resolved.get(path)) not in can
    ]
    if wrong:
        raise ConfigError(wrong)
    check_groups(model)
    return family


def _said(value: Any) -> str:
    """A value as a file of settings has it."""
    return value if isinstance(value, str) else str(as_data(value)).lower().replace("none", "null")
