"""Half loss: in training the half of a row that is read last predicts; on held-out text all of it does."""

import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.objectives import LanguageModel
from tests.conftest import make_draws, make_tokens, make_vocabulary


@pytest.mark.parametrize("padding", [0, 3, 8])
@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left", "two_way"])
def test_the_half_that_is_read_last_predicts(direction, padding):
    """Of the row itself: padding, and so the rows that it shares a batch with, have no part in it."""
    whole, half = (LanguageModel(direction=direction, scored=scored) for scored in ("all", "second_half"))
    tokens = make_tokens(padding=padding)
    lengths = tokens.real.sum(1)
    assert lengths.min() == 16 - padding
    both = [each.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary()) for each in (whole, half)]
    for name in whole.targets:
        everything, later = (example.targets[name] for example in both)
        column, length = everything.where % 16, lengths[everything.where // 16]
        wanted = column >= length // 2 if name == "next" else length - 1 - column >= length // 2
        assert later.where.tolist() == everything.where[wanted].tolist()
        assert later.ids.tolist() == everything.ids[wanted].tolist()
        assert half.counts(both[1])[name] == later.count() < whole.counts(both[0])[name]


@pytest.mark.parametrize("scored", ["all", "second_half"])
@pytest.mark.parametrize("length", [15, 16])
def test_as_many_predict_as_is_expected(scored, length):
    lm, tokens = LanguageModel(scored=scored), make_tokens(length=length)
    assert lm.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary()).targets["next"].count() == (
        4 * lm.expected_predictions(length, 2)
    )
    tokens.special = torch.zeros_like(tokens.special)
    assert lm.with_targets(Example.of(tokens)).targets["next"].count() == 4 * lm.expected_predictions(length, 1)
    tokens.following = torch.tensor([7, 8, 9, 10])
    asked = lm.with_targets(Example.of(tokens)).targets["next"]
    assert asked.count() == 4 * lm.expected_predictions(length, 0)
    assert asked.ids[asked.where % length == length - 1].tolist() == [7, 8, 9, 10]


def test_held_out_text_is_scored_in_full():
    half = LanguageModel(scored="second_half")
    assert half.held_out(half) == LanguageModel()
    assert half.essence() != LanguageModel().essence()
