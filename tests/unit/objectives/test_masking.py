"""Masking: what is chosen, what stands in its place, how often it is shown, and how variants share their noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.objectives import MaskedLM, Masking
from lightning_modules.objectives.masking import Spans, TwoNeighbours
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every
from tests.messages import naming

RULES = ("round", "stochastic_round", "ceil", "bernoulli")
rates = st.floats(0.01, 1.0)


def hidden(masking, tokens, draws):
    """The hidden positions, a bool array."""
    return masking.choose(tokens, draws, make_vocabulary()) >= 0


def masked(tokens, masking, draws=None, vocabulary=None):
    """The example with the words of a masking hidden."""
    draws, vocabulary = draws or make_draws(len(tokens.ids)), vocabulary or make_vocabulary()
    return MaskedLM(masking=masking).mask_inputs(Example.of(tokens), draws, vocabulary)


@given(
    rate=rates,
    rule=st.sampled_from(RULES),
    padding=st.integers(0, 10),
    cap=st.one_of(st.none(), st.integers(1, 5)),
    seed=st.integers(0, 2**31),
)
def test_never_specials_never_padding_always_one(rate, rule, padding, cap, seed):
    tokens = make_tokens(rows=6, length=16, padding=padding)
    chosen = hidden(Masking(rate=rate, count=rule, cap=cap), tokens, make_draws(6, seed))
    assert not (chosen & tokens.special.numpy()).any()
    assert not (chosen & ~tokens.real.numpy()).any()
    assert (chosen.sum(1) >= 1).all()
    if cap is not None:
        assert (chosen.sum(1) <= cap).all()


@given(low=rates, high=rates, rule=st.sampled_from(RULES), seed=st.integers(0, 2**31))
def test_masks_nest_across_rates(low, high, rule, seed):
    low, high = sorted((low, high))
    tokens, draws = make_tokens(rows=5, length=32, padding=7), make_draws(5, seed)
    fewer = hidden(Masking(rate=low, count=rule), tokens, draws)
    more = hidden(Masking(rate=high, count=rule), tokens, draws)
    assert (fewer <= more).all()


def test_the_replacements_nest_too():
    """A position hidden at both rates shows the same thing at both, so only the extra positions differ."""
    tokens = make_tokens(rows=8, length=64)
    shown = [masked(tokens, Masking(rate=rate)) for rate in (0.15, 0.4)]
    both = shown[0].targets["mlm"].where
    assert torch.equal(shown[0].inputs.ids.reshape(-1)[both], shown[1].inputs.ids.reshape(-1)[both])


def test_counts_of_each_rule():
    """BERT's data generator has round(128 x 0.15) = 19 with the special tokens counted."""
    for length, expected in ((128, 19), (512, 77), (64, 10)):
        assert (hidden(Masking(rate=0.15), make_tokens(3, length), make_draws(3)).sum(1) == expected).all()
    for length, rate, expected in ((22, 0.15, 3), (23, 0.15, 4), (66, 0.25, 16), (12, 0.3, 3)):  # SpanBERT's
        counts = hidden(Masking(rate=rate, count="ceil"), make_tokens(2, length), make_draws(2)).sum(1)
        assert (counts == expected).all(), "rounded up without special pieces"
    counts = hidden(Masking(rate=0.15, count="stochastic_round"), make_tokens(4000, 16), make_draws(4000)).sum(1)
    assert set(counts) == {2, 3}
    assert abs(counts.mean() - 0.15 * 16) < 0.03
    counts = hidden(Masking(rate=0.3, count="bernoulli"), make_tokens(2000, 34), make_draws(2000)).sum(1)
    assert counts.std() > 2
    assert abs(counts.mean() - 0.3 * 32) < 0.25


@every(("mask", "same", "random"), [(0.8, 0.1, 0.1), (1, 0, 0), (0, 0, 1), (0.8, 0.2, 0), (0, 0.2, 0.8)])
def test_the_mixture_is_what_was_asked_for(mask, same, random):
    """The mixtures of BERT's Table 8, measured on 100,000 predictions."""
    tokens, vocabulary = make_tokens(rows=2000, length=128, vocab_size=1000), make_vocabulary(1000)
    example = masked(tokens, Masking(rate=0.4, mask=mask, same=same, random=random), vocabulary=vocabulary)
    target = example.targets["mlm"]
    shown = example.inputs.ids.reshape(-1)[target.where]
    is_mask, is_same = shown == vocabulary.mask, shown == target.ids
    assert abs(is_mask.float().mean() - mask) < 0.006
    assert abs(is_same.float().mean() - same) < 0.006  # a random draw equals the original once in a thousand
    assert abs((~is_mask & ~is_same).float().mean() - random) < 0.006


def test_what_is_not_chosen_is_left_alone_and_targets_are_the_originals():
    tokens = make_tokens(rows=6, length=40)
    before, example = tokens.ids.clone(), masked(tokens, Masking())
    target = example.targets["mlm"]
    untouched = torch.ones(6 * 40, dtype=torch.bool)
    untouched[target.where] = False
    assert torch.equal(example.inputs.ids.reshape(-1)[untouched], before.reshape(-1)[untouched])
    assert torch.equal(target.ids, before.reshape(-1)[target.where])
    assert torch.equal(tokens.ids, before), "the tokens that came in are not changed"


MANY = 3000  # sequences


def static(copies, epoch):
    """The hidden positions of every sequence in an epoch under so many fixed masks; 0 for a new one each time."""
    tokens, draws = make_tokens(MANY, 40), make_draws(MANY, first=epoch * MANY, epoch=epoch)
    draws = draws.static(copies) if copies else draws
    return hidden(Masking(rate=0.2), tokens, draws)


@every("copies", [1, 4, 10])
def test_fixed_masks_return_after_so_many_presentations_and_no_sooner(copies):
    masks = [static(copies, epoch) for epoch in range(2 * copies)]
    assert all((masks[n] == masks[n + copies]).all() for n in range(copies))
    agreeing = [(masks[n] == masks[m]).all(1).mean() for n in range(copies) for m in range(n)]
    assert max(agreeing, default=0.0) < 0.001


def test_as_many_fixed_masks_as_presentations_are_dynamic_masking():
    """Each presentation has a mask of its own, drawn by the same law: positions and epochs are independent."""
    fixed, dynamic = ([static(copies, epoch) for epoch in range(5)] for copies in (5, 0))
    for masks in (fixed, dynamic):
        assert np.mean([mask.mean(0)[1:-1] for mask in masks], axis=0) == pytest.approx(np.full(38, 8 / 38), abs=0.012)
        both = np.mean([(masks[n] & masks[n + 1]).sum(1).mean() for n in range(4)])
        assert both == pytest.approx(8 * 8 / 38, abs=0.05)


def test_draws_are_uniform_and_independent():
    u = make_draws(400, seed=3).uniform("a", 500)
    other = make_draws(400, seed=3).uniform("b", 500)
    counts, _ = np.histogram(u, bins=20, range=(0, 1))
    assert ((counts - u.size / 20) ** 2 / (u.size / 20)).sum() < 45  # chi-squared with 19 degrees of freedom, p < .001
    for x, y in [(u, other), (u[:, 1:], u[:, :-1]), (u[1:], u[:-1])]:
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 0.01


def test_draws_depend_on_position_alone():
    whole = make_draws(8, seed=5).uniform("choose", 32)
    part = make_draws(4, seed=5, first=4).uniform("choose", 32)
    assert (whole[4:] == part).all()
    assert (make_draws(8, seed=6).uniform("choose", 32) != whole).any()


def test_fewer_predictions_are_those_of_a_lower_rate_and_the_input_is_that_of_the_higher():
    tokens = make_tokens(6, 40)
    both, low, high = (
        masked(tokens, Masking(**knobs)) for knobs in ({"rate": 0.4, "predicted": 0.15}, {"rate": 0.15}, {"rate": 0.4})
    )
    assert torch.equal(both.inputs.ids, high.inputs.ids)
    assert torch.equal(both.targets["mlm"].where, low.targets["mlm"].where)
    assert torch.equal(both.targets["mlm"].ids, low.targets["mlm"].ids)


def test_more_predictions_present_each_row_several_times_with_other_positions_hidden():
    tokens = make_tokens(6, 40)
    example = masked(tokens, Masking(rate=0.2, predicted=0.4, mask=1.0, same=0.0, random=0.0))
    assert example.inputs.ids.shape == (12, 40)
    shown, where = (example.inputs.ids == 4).numpy(), example.targets["mlm"].where
    assert not (shown[::2] & shown[1::2]).any()
    assert (shown.sum(1) == 8).all()
    union = torch.zeros(240, dtype=torch.bool)
    union[masked(tokens, Masking(rate=0.4)).targets["mlm"].where] = True
    assert ((shown[::2] | shown[1::2]) == union.reshape(6, 40).numpy()).all()
    assert torch.equal(where, torch.from_numpy(np.flatnonzero(shown)))
    assert torch.equal(example.targets["mlm"].ids, tokens.ids.repeat_interleave(2, 0).reshape(-1)[where])
    assert torch.equal(example.inputs.labels["sentence"], tokens.labels["sentence"].repeat_interleave(2))


def test_groups_stay_whole_when_they_are_split():
    tokens, masking = make_tokens(6, 60), Masking(rate=0.2, predicted=0.4, units=Spans())
    split = masked(tokens, masking).groups.numpy().reshape(6, 2, 60)
    whole = masking.choose(tokens, make_draws(6), make_vocabulary())
    for row in range(6):
        for first in set(whole[row].tolist()) - {-1}:
            assert sorted(set(split[row, :, whole[row] == first].ravel().tolist())) == [-1, first]
    assert (split.max(1) == whole).all()


RATE, PREDICTED = "objectives.mlm.masking.rate", "objectives.mlm.masking.predicted"
ROUND = {"objectives.mlm.masking.count": "round"}


def test_presentations_are_counted_as_work():
    once, twice, hidden, some, few = (
        System().but(**{RATE: rate, PREDICTED: predicted}, **ROUND)
        for rate, predicted in ((0.2, None), (0.2, 0.4), (0.4, None), (0.4, 0.15), (0.15, None))
    )
    assert twice.tokens_per_step() == 2 * once.tokens_per_step()
    assert twice.flops_per_step() == 2 * once.flops_per_step()
    assert twice.parameters() == once.parameters()
    assert some.tokens_per_step() == hidden.tokens_per_step()
    assert some.flops_per_step() == few.flops_per_step() < hidden.flops_per_step(), "the head alone is spared"


def test_two_neighbours_of_each_row_are_hidden_and_asked_for():
    tokens = make_tokens(2000, 8, padding=2)
    example = masked(tokens, TwoNeighbours())
    target = example.targets["mlm"]
    first, second = target.where.view(-1, 2).unbind(1)
    assert (second - first == 1).all()
    assert (first // 8).tolist() == list(range(2000)), "one pair a row, none of them across rows"
    assert torch.equal(target.ids, tokens.ids.flatten()[target.where])
    shown = torch.ones(2000 * 8, dtype=torch.bool)
    shown[target.where] = False
    assert (example.inputs.ids.flatten()[~shown] == make_vocabulary().mask).all()
    assert torch.equal(example.inputs.ids.flatten()[shown], tokens.ids.flatten()[shown])
    assert not (tokens.special | ~tokens.real).flatten()[target.where].any()
    places = np.bincount((first % 8)[::2], minlength=8)  # of full rows, whose words stand at 1 to 6
    assert places[[0, 6, 7]].sum() == 0
    assert abs(places[1:6] / 1000 - 0.2).max() < 0.06


def test_a_row_without_neighbours_is_asked_nothing():
    tokens = make_tokens(2, 8)
    tokens = replace(tokens, special=tokens.special | (torch.arange(8) % 2 == torch.tensor([[0], [9]])))
    assert (masked(tokens, TwoNeighbours()).targets["mlm"].where >= 8).all()


def test_one_of_two_neighbours_is_one_of_the_same_two_and_of_another_word():
    tokens, draws, begins = make_tokens(64, 24, padding=4), make_draws(64), np.arange(50) % 3 == 0  # the others go on
    sides = {side: TwoNeighbours(hidden=side) for side in ("both", "left", "right")}
    both, left, right = (hidden(masking, tokens, draws) for masking in sides.values())
    assert (both.sum(1) == 2).all()
    assert (left.sum(1) == 1).all()
    assert np.array_equal(left | right, both)
    assert not (left & right).any()
    assert np.array_equal(np.argmax(left, 1) + 1, np.argmax(right, 1))
    pieces = replace(make_vocabulary(), begins_word=begins)
    left, right = (sides[side].choose(tokens, draws, pieces) >= 0 for side in ("left", "right"))
    assert right.any(1).sum() > 50
    assert begins[tokens.ids.numpy()[right]].all()
    assert not begins[tokens.ids.numpy()[left]].all(), "the first may be any piece"


@every(
    ("make", "words"),
    [
        (lambda: Masking().but(mask=0.5), ("mask + same + random must be 1",)),
        (lambda: SYSTEMS["gpt"].but(**{"evaluation.neighbours": 8}), ("evaluation.neighbours", "language model")),
        *(
            (lambda rate=rate, predicted=predicted: Masking().but(rate=rate, predicted=predicted),
             ("predicted", str(predicted), str(rate), near))
            for rate, predicted, near in ((0.2, 0.3, "0.4"), (0.15, 0.4, "0.45"), (0.3, 0.32, "0.3"))
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(make, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        make()
