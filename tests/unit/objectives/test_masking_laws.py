"""What schemes draw, against closed forms and the released code's way of drawing, on a million draws where it is cheap.

With a million draws a share is known to 0.0005; bounds are four times that.
"""

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Tokens, Unsupported
from lightning_modules.data import Vocabulary
from lightning_modules.objectives import MaskedLM, Masking
from lightning_modules.objectives.masking import NGrams, Spans, SpreadSpans, Tagged, Text
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every

MILLION = 1_000_000
CLOSE = 0.002
MARK = ("capitalised", "entities")


def bare(rows, length, vocab_size=50, seed=0):
    """Rows of text alone, without special pieces."""
    ids = torch.randint(5, vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))
    none = torch.zeros(rows, length, dtype=torch.bool)
    return Tokens(ids, none, ~none, torch.arange(rows))


def test_spread_spans_are_one_over_n_and_cover_the_text_evenly():
    """Lengths of spans that end neither at the budget nor at the end of the text, and how many begin at each place."""
    text, budget = Text(bare(400, 600), make_vocabulary()), np.full(400, 100)
    spans = SpreadSpans().placed(text, budget, make_draws(400))
    sizes = np.concatenate([np.unique(row[row >= 0], return_counts=True)[1][:-1] for row in spans])
    weights = 1 / np.arange(1, 6)
    assert np.bincount(sizes, minlength=6)[1:] / len(sizes) == pytest.approx(weights / weights.sum(), abs=0.02)
    hidden = (spans >= 0).mean(0)
    assert hidden[:500].mean() == pytest.approx(1 / 7, abs=0.005), "a span and its context of six times its length"
    assert np.abs(hidden[:500].reshape(10, 50).mean(1) - 1 / 7).max() < 0.02
    assert ((SpreadSpans().choose(text, budget, make_draws(400)) >= 0).sum(1) == 100).all(), "single pieces fill it"


def released_ngrams(words, budget, noise):
    """The lengths of the n-grams of one row of words of a piece, as ALBERT's code chooses them."""
    hidden, sizes = set(), []
    for at in noise.permutation(words):
        if len(hidden) >= budget:
            break
        possible = min(3, words - at)
        weights = 1.0 / np.arange(1, possible + 1)
        count = min(noise.choice(possible, p=weights / weights.sum()) + 1, budget - len(hidden))
        if hidden.isdisjoint(range(at, at + count)):
            hidden |= set(range(at, at + count))
            sizes.append(count)
    return sizes


def test_ngrams_are_those_of_the_released_code():
    """Longer ones meet others, or no longer fit, more often: 0.59, 0.26 and 0.15 are left at 15 % of 128."""
    groups = Masking(units=NGrams()).choose(bare(4000, 128), make_draws(4000), make_vocabulary())
    _, sizes = np.unique(groups[groups >= 0] + 128 * np.nonzero(groups >= 0)[0], return_counts=True)
    noise = np.random.default_rng(0)
    theirs = np.bincount(list(chain(*(released_ngrams(128, 19, noise) for _ in range(4000)))), minlength=4)[1:]
    ours = np.bincount(sizes, minlength=4)[1:]
    assert ours / ours.sum() == pytest.approx(theirs / theirs.sum(), abs=0.01)
    assert ours / ours.sum() == pytest.approx([0.59, 0.26, 0.15], abs=0.01)


def continued(size=60):
    """A vocabulary in which a third of the pieces continue words."""
    goes_on = np.array([n > 4 and n % 3 == 0 for n in range(size)])
    return Vocabulary(tuple(f"##{n}" if on else str(n) for n, on in enumerate(goes_on)), ~goes_on)


def released_spans(starts, budget, longest, shares, noise):
    """One row as SpanBERT's code hides it: draw a length and an anchor until enough is hidden."""
    hidden: set[int] = set()
    while len(hidden) < budget:
        count, anchor = noise.choice(longest, p=shares) + 1, noise.integers(len(starts))
        if anchor in hidden:
            continue
        at = anchor
        while at > 0 and not starts[at]:
            at -= 1
        for _ in range(count):
            while at < len(starts) and len(hidden) < budget:
                hidden.add(at)
                at += 1
                if at == len(starts) or starts[at]:
                    break
    return hidden


def run_lengths(rows):
    """The lengths of the runs of hidden positions."""
    found = []
    for hidden in rows:
        ordered = sorted(hidden)
        cuts = [n for n, (a, b) in enumerate(pairwise(ordered), start=1) if b > a + 1]
        found += [len(part) for part in np.split(ordered, cuts)]
    return np.bincount(found, minlength=40)[:40] / len(found)


@every("rate", [0.15, 0.5])
def test_spans_are_those_of_the_released_code(rate):
    vocabulary, rows = continued(), 3000
    tokens, noise = bare(rows, 60, 60), np.random.default_rng(0)
    ours = Masking(rate=rate, units=Spans(), count="ceil").choose(tokens, make_draws(rows), vocabulary) >= 0
    starts = vocabulary.begins_word[tokens.ids.numpy()]
    budget = int(np.ceil(rate * 60))
    theirs = [released_spans(row, budget, 10, Spans().shares(), noise) for row in starts]
    assert run_lengths(map(np.flatnonzero, ours)) == pytest.approx(run_lengths(theirs), abs=0.015)
    places = np.bincount([at for row in theirs for at in row], minlength=60) / rows
    assert ours.mean(0) == pytest.approx(places, abs=0.05)


def released_tags(starts, spans, budget, noise):
    """One row as SpanBERT's code hides entities or words: half of the draws each, repeats included."""
    hidden: set[int] = set()
    while len(hidden) < budget:
        if noise.random() <= 0.5:
            span = spans[noise.integers(len(spans))] if spans else ()
        else:
            anchor = noise.integers(len(starts))
            if anchor in hidden:
                continue
            first = max(at for at in range(anchor + 1) if starts[at] or at == 0)
            span = range(first, next((at for at in range(first + 1, len(starts)) if starts[at]), len(starts)))
        for at in span:
            if len(hidden) < budget:
                hidden.add(at)
    return hidden


@every("rate", [0.15, 0.6])
def test_tagged_spans_are_those_of_the_released_code(rate):
    vocabulary, rows, noise = continued(), 4000, np.random.default_rng(0)
    tags = torch.zeros(rows, 50, dtype=torch.int64)
    tags[:, [7, 20, 40]], tags[:, [8, 9, 21, 22, 23, 24]] = 1, 2
    tokens = replace(bare(rows, 50, 60), marks={MARK: tags})
    masking = Masking(rate=rate, units=Tagged(annotator="capitalised"), count="ceil")
    ours = masking.choose(tokens, make_draws(rows), vocabulary) >= 0
    spans = [range(7, 10), range(20, 25), range(40, 41)]
    starts, budget = vocabulary.begins_word[tokens.ids.numpy()], int(np.ceil(rate * 50))
    theirs = [released_tags(row, spans, budget, noise) for row in starts]
    places = np.bincount([at for row in theirs for at in row], minlength=50) / rows
    assert ours.mean(0) == pytest.approx(places, abs=0.04)


@every("replacement", ["piece", "group"])
def test_replacements_are_80_10_10(replacement):
    vocabulary = make_vocabulary(30_000)
    tokens = bare(160, 512, 30_000)
    masking = Masking(rate=0.4, units=Spans(), replacement=replacement)
    example = MaskedLM(masking=masking).mask_inputs(Example.of(tokens), make_draws(160), vocabulary)
    target = example.targets["mlm"]
    assert target.count() > 30_000
    shown = example.inputs.ids.reshape(-1)[target.where]
    fates = np.where(shown == vocabulary.mask, 0, np.where(shown == target.ids, 1, 2))
    shares = np.bincount(fates, minlength=3) / len(fates)
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01 if replacement == "piece" else 0.02)
    groups = example.groups.numpy()
    _, group = np.unique((groups + 512 * np.arange(160)[:, None])[groups >= 0], return_inverse=True)
    fewest, most = np.full(group.max() + 1, 3), np.zeros(group.max() + 1, dtype=int)
    np.minimum.at(fewest, group, fates)
    np.maximum.at(most, group, fates)
    together = (fewest == most).mean()
    assert together > 0.999 if replacement == "group" else together < 0.75


def test_random_words_come_from_where_they_are_said_to():
    frequent = np.repeat(np.arange(5, 50, dtype=np.uint16), np.arange(1, 46))
    vocabulary = replace(make_vocabulary(50), text=frequent)
    tokens = make_tokens(4100, 256, 50)
    shares = {}
    for kind in ("uniform", "ordinary", "frequency"):
        masking = Masking(rate=1.0, mask=0.0, same=0.0, random=1.0, random_words=kind)
        example = MaskedLM(masking=masking).mask_inputs(Example.of(tokens), make_draws(4100), vocabulary)
        shown = example.inputs.ids.reshape(-1)[example.targets["mlm"].where]
        assert len(shown) > MILLION
        shares[kind] = np.bincount(shown, minlength=50) / len(shown)
    assert shares["uniform"] == pytest.approx(np.full(50, 1 / 50), abs=CLOSE)
    assert shares["ordinary"] == pytest.approx([0] * 5 + [1 / 45] * 45, abs=CLOSE)
    assert shares["frequency"] == pytest.approx(np.bincount(frequent) / len(frequent), abs=CLOSE)


def test_words_by_frequency_need_a_text():
    masking = Masking(mask=0.0, same=0.0, random=1.0, random_words="frequency")
    with pytest.raises(Unsupported, match="frequency"):
        MaskedLM(masking=masking).mask_inputs(
            Example.of(make_tokens()), make_draws(), replace(make_vocabulary(), text=None)
        )
