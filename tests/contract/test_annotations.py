"""Annotations that name axes are checked in every test; what they say of wrong shapes is checked here."""

import random
import sys

import pytest
import torch
from jaxtyping import Bool, Float, Int, TypeCheckError, jaxtyped
from torch import Tensor

from lightning_modules.batch import Encoded, Visibility
from lightning_modules.model.attention import AttentionContext, MultiHeadAttention
from lightning_modules.model.positions import rotation
from tests.annotations import checked
from tests.every import every


@every(
    "wrong",
    [
        lambda: rotation(torch.arange(3), 2, 2, torch.float32),
        lambda: rotation(torch.zeros(2, 3), 2, 2, torch.float32),
        lambda: Visibility(real=torch.ones(2, 3)),
        lambda: Encoded(layers=[torch.zeros(2, 3, 4)], last=torch.zeros(2, 5, 4), table=torch.zeros(7, 4)),
        lambda: MultiHeadAttention(16, 2, 0.0)(torch.zeros(2, 3, 16), AttentionContext(torch.zeros(2, 2, 3, 5, 3))),
    ],
)
def test_wrong_shapes_are_refused(wrong):
    with pytest.raises(TypeCheckError):
        wrong()


def test_a_wrong_annotation_is_found_by_the_first_call():
    @jaxtyped(typechecker=checked)
    def means(x: Float[Tensor, "b t d"], real: Bool[Tensor, "b t"] | None = None) -> Float[Tensor, "b t"]:
        return x.mean(1)

    @jaxtyped(typechecker=checked)
    def squares(x: Int[Tensor, " t"]) -> tuple[Int[Tensor, "t t"], int]:
        return x[:, None] * x, len(x)

    assert squares(torch.arange(3))[1] == 3
    assert means(torch.zeros(2, 4, 4)).shape == (2, 4)  # the mistake cannot show where both axes are equally long
    with pytest.raises(TypeCheckError, match="return value"):
        means(torch.zeros(2, 3, 4))


def test_checks_draw_nothing():
    """A training saves the state of every generator, and resumed ones are compared to the bit."""
    states = [torch.zeros(2, 3, 4)] * 9
    before = random.getstate(), torch.get_rng_state().tolist()
    Encoded(layers=states, last=states[0], table=torch.zeros(7, 4))
    assert (random.getstate(), torch.get_rng_state().tolist()) == before


def test_no_module_that_names_axes_was_imported_unchecked():
    """Checked modules have a name ``jaxtyping`` of their own, which the import hook adds."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lightning_modules.")]
    named = [module for module in modules if {"Float", "Int", "Bool", "Num"} & set(vars(module))]
    assert "lightning_modules.batch" in [module.__name__ for module in named]
    assert not [module.__name__ for module in named if not hasattr(module, "jaxtyping")]
