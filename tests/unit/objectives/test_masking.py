"""Masking: what is chosen, what stands in its place, and how variants share their noise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.objectives import MaskedLM, Masking
from tests.conftest import make_draws, make_tokens, make_vocabulary

RULES = ("round", "stochastic_round", "ceil", "bernoulli")
rates = st.floats(0.01, 1.0)


def hidden(masking, tokens, draws):
    """The hidden positions, a bool array."""
    return masking.choose(tokens, draws, make_vocabulary()) >= 0


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
    tokens, draws, vocabulary = make_tokens(rows=8, length=64), make_draws(8), make_vocabulary()
    shown = [
        MaskedLM(masking=Masking(rate=rate)).corrupt(Example.of(tokens), draws, vocabulary) for rate in (0.15, 0.4)
    ]
    both = shown[0].targets["mlm"].where
    assert torch.equal(shown[0].inputs.ids.reshape(-1)[both], shown[1].inputs.ids.reshape(-1)[both])


@pytest.mark.parametrize(("length", "expected"), [(128, 19), (512, 77), (64, 10)])
def test_bert_counts(length, expected):
    """round(128 x 0.15) = 19 with the special tokens counted, as BERT's data generator does."""
    chosen = hidden(Masking(rate=0.15), make_tokens(rows=3, length=length), make_draws(3))
    assert (chosen.sum(1) == expected).all()


def test_roberta_rounds_by_chance():
    tokens = make_tokens(rows=4000, length=16)
    counts = hidden(Masking(rate=0.15, count="stochastic_round"), tokens, make_draws(4000)).sum(1)
    assert set(counts) == {2, 3}
    assert abs(counts.mean() - 0.15 * 16) < 0.03


def test_bernoulli_count_varies_around_the_rate():
    counts = hidden(Masking(rate=0.3, count="bernoulli"), make_tokens(2000, 34), make_draws(2000)).sum(1)
    assert counts.std() > 2
    assert abs(counts.mean() - 0.3 * 32) < 0.25


@pytest.mark.parametrize(
    ("mask", "same", "random"), [(0.8, 0.1, 0.1), (1, 0, 0), (0, 0, 1), (0.8, 0.2, 0), (0, 0.2, 0.8)]
)
def test_the_mixture_is_what_was_asked_for(mask, same, random):
    """The mixtures of BERT's Table 8, measured on 100,000 predictions."""
    tokens, vocabulary = make_tokens(rows=2000, length=128, vocab_size=1000), make_vocabulary(1000)
    objective = MaskedLM(masking=Masking(rate=0.4, mask=mask, same=same, random=random))
    example = objective.corrupt(Example.of(tokens), make_draws(2000), vocabulary)
    target = example.targets["mlm"]
    shown = example.inputs.ids.reshape(-1)[target.where]
    is_mask, is_same = shown == vocabulary.mask, shown == target.ids
    assert abs(is_mask.float().mean() - mask) < 0.006
    assert abs(is_same.float().mean() - same) < 0.006  # a random draw equals the original once in a thousand
    assert abs((~is_mask & ~is_same).float().mean() - random) < 0.006


def test_what_is_not_chosen_is_left_alone_and_targets_are_the_originals():
    tokens, vocabulary = make_tokens(rows=6, length=40), make_vocabulary()
    before = tokens.ids.clone()
    example = MaskedLM().corrupt(Example.of(tokens), make_draws(6), vocabulary)
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


@pytest.mark.parametrize("copies", [1, 4, 10])
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


def test_shares_must_add_up():
    with pytest.raises(ConfigError, match=r"mask \+ same \+ random must be 1"):
        Masking().but(mask=0.5)


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
