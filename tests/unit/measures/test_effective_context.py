"""Relative effective context length, on losses whose answer is known; losses by token do not depend on segments."""

import math

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.measures.effective_context import effective_contexts
from lightning_modules.measures.final_metrics import measures
from tests.by_token import losses_by_token
from tests.messages import naming
from tests.unit.training.test_recurrent_state import LSTM

CONTEXTS = (100, 150, 200, 250, 300)


def losses(reach, gain=0.02, start=5.0, tokens=40):
    """Every 50 more tokens take a share of the perplexity away, up to ``reach``."""
    return {c: np.full(tokens, start + math.log1p(-gain) * (min(c, reach) - 100) / 50) for c in CONTEXTS}


@pytest.mark.parametrize("reach", CONTEXTS[:-1])
def test_a_model_alone_reaches_as_far_as_it_gains(reach):
    (found,) = effective_contexts({"one": losses(reach)}).values()
    assert (found.length, found.exhausted) == (reach, False)
    gains = [0.02] * (reach // 50 - 2) + [0.0]
    assert [*found.gains.values()] == pytest.approx(gains)


def test_who_gains_to_the_end_may_reach_further():
    (found,) = effective_contexts({"one": losses(10**6)}).values()
    assert (found.length, found.exhausted) == (300, True)
    (small,) = effective_contexts({"one": losses(10**6, gain=0.009)}).values()
    assert (small.length, small.exhausted) == (100, False), "a gain below one per cent is none"


def test_what_a_better_model_knows_from_a_short_context_is_no_gain():
    """The worse model is helped by context, but only to what the better one knows without it."""
    group = {"better": losses(150, start=4.0), "worse": losses(300, start=5.0)}
    found = effective_contexts(group)
    assert found["better"].length == 150
    assert found["worse"].length == 100
    assert effective_contexts({"worse": group["worse"]})["worse"].length == 300


def test_the_gain_is_over_the_hardest_tokens_of_the_group():
    """Half of the tokens are easy and gain nothing; by hand, the gain over all is smaller than over the hard half."""
    easy, hard = np.full(10, 1.0), np.full(10, 6.0)
    one = {100: np.concatenate([easy, hard]), 150: np.concatenate([easy, hard - 0.03])}
    for share, mean in ((1.0, 0.015), (0.5, 0.03)):
        gains = effective_contexts({"one": one}, hardest=share)["one"].gains
        assert gains[100] == pytest.approx(1 - math.exp(-mean))


@pytest.mark.parametrize(
    ("group", "hardest", "words"),
    [
        ({}, 1.0, ("at least one model",)),
        ({"one": {100: np.zeros(3)}}, 1.0, ("one", "at least 2")),
        ({"one": losses(100), "other": {100: np.zeros(40), 200: np.zeros(40)}}, 1.0, ("other", "contexts", "200")),
        ({"one": {100: np.zeros(3), 200: np.zeros(4)}}, 1.0, ("tokens",)),
        ({"one": losses(100)}, 0.0, ("hardest 0", "40 tokens")),
        ({"one": losses(100)}, 0.001, ("hardest 0.001",)),
    ],
)
def test_what_cannot_be_compared_is_refused(group, hardest, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        effective_contexts(group, hardest)


def test_losses_by_token_are_of_the_same_tokens_however_they_are_read(tiny):
    lstm = tiny.but(**LSTM)
    module, found = lstm.build(0).eval(), {}
    for length, context in ((16, 0), (5, 0), (1, 3), (4, 3)):
        reading = {"evaluation.sequence_length": length, "evaluation.context": context}
        held = lstm.but(**reading).data_module(0).heldout
        found[length, context] = losses_by_token(module, held, bf16=False)
        assert found[length, context].shape == (4, 48)
        assert found[length, context].mean() == pytest.approx(measures(module, held, bf16=False)["next_loss"], abs=1e-5)
    assert np.allclose(found[16, 0], found[5, 0], atol=1e-5)
    assert np.allclose(found[1, 3][:, ::4], found[4, 3][:, ::4], atol=1e-5), (
        "segments begin after three tokens of context"
    )
    assert not np.allclose(found[1, 3][:, 4:], found[16, 0][:, 4:], atol=1e-5)
