"""What no family of checkpoints has is refused by name when a system is to be written as one."""

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.interop.families import family_of
from lightning_modules.systems import SYSTEMS
from tests.messages import naming


@pytest.mark.parametrize(
    "changes",
    [
        {"model.memory_length": 4},
        {"model.memory_length": 4, "model.same_length": True},
        {"model.attention_biases": False},
        {"model.embedding_scale": True},
        {"model.key_size": 32},
        {"model.positions": "relative"},
        {"objectives.lm.cutoffs": [20]},
    ],
    ids=str,
)
def test_a_folder_has_no_place_for(changes):
    assert family_of(SYSTEMS["gpt2"]).name == "gpt2"
    with pytest.raises(ConfigError, match=naming(*changes)):
        family_of(SYSTEMS["gpt2"].but(**{"format.kind": "stream"}, **changes))


def test_a_model_of_named_languages_is_no_folder():
    """XLM's own folders lack the dense layer of this head (`systems.xlm`), and no other family names languages."""
    with pytest.raises(ConfigError, match=naming("model.languages")):
        family_of(SYSTEMS["xlm"])
    assert family_of(SYSTEMS["xlm"].but(**{"model.languages": []})).name == "bert"
