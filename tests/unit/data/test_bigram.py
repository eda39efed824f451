"""The bigram baseline against loops, and what it may look at."""

import math

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.data.baselines import bigram
from lightning_modules.data.baselines.bigram import Bigrams, baseline, count
from tests.unit.data import counted_text
from tests.unit.data.counted_text import SIZE

STRETCH = 16


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Four documents of a text in which a token's neighbours tell something about it."""
    monkeypatch.setattr(bigram, "STRETCH", STRETCH)
    monkeypatch.setattr(bigram, "_KEPT", 4)
    return counted_text.store(tmp_path)


def counted_slowly(store):
    """Pairs and tokens of the stretches that are counted, and the positions that fit the weights."""
    starts = set(store.document_starts.tolist())
    pairs, tokens, fitted = np.zeros((SIZE, SIZE)), np.zeros(SIZE), []
    for place, token in enumerate(store.ids.tolist()):
        stretch = place // STRETCH
        if stretch % 4 == 2:
            if 0 < place < 399 and place not in starts and place + 1 not in starts:
                fitted.append(place)
            continue
        tokens[token] += 1
        if place + 1 < 400 and place + 1 not in starts and (place + 1) // STRETCH == stretch:
            pairs[token, store.ids[place + 1]] += 1
    return pairs, tokens, fitted


def probability_slowly(pairs, tokens, weights, word, left, right):
    total = share = 0.0
    if left >= 0 and pairs[left].sum():
        total += weights[0] * pairs[left, word] / pairs[left].sum()
        share += weights[0]
    if right >= 0 and pairs[:, right].sum():
        total += weights[1] * pairs[word, right] / pairs[:, right].sum()
        share += weights[1]
    total += weights[2] * (tokens[word] + 1) / (tokens.sum() + SIZE)
    return total / (share + weights[2])


def test_counts_and_probabilities_equal_a_loop(store):
    model = count(store)
    pairs, tokens, _ = counted_slowly(store)
    assert np.array_equal(model.pairs.toarray(), pairs)
    assert np.array_equal(model.tokens, tokens)
    for left in (-1, 1, *range(5, SIZE)):
        for right in (-1, 1, *range(5, SIZE)):
            everything = np.arange(SIZE)
            found = model.probability(everything, np.full(SIZE, left), np.full(SIZE, right))
            slow = [probability_slowly(pairs, tokens, model.weights, w, left, right) for w in range(SIZE)]
            assert found == pytest.approx(slow, rel=1e-12)
            assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_weights_are_the_best_for_the_text_that_was_not_counted(store):
    model = count(store)
    ids = store.ids.astype(np.int64)
    fitted = np.array(counted_slowly(store)[2])
    kept = (ids[fitted], ids[fitted - 1], ids[fitted + 1])

    def loss(weights):
        return -np.log(Bigrams(model.pairs, model.tokens, weights).probability(*kept)).mean()

    assert sum(model.weights) == pytest.approx(1.0)
    others = [(a / 10, b / 10, 1 - (a + b) / 10) for a in range(1, 9) for b in range(1, 10 - a)]
    assert all(loss(model.weights) <= loss(other) + 1e-4 for other in others)


def make_example(ids, hidden, pads=0):
    """One row [CLS] ids [SEP] and padding, with some positions shown as [MASK]."""
    row = torch.tensor([[2, *ids, 3, *[0] * pads]])
    where = torch.tensor(hidden)
    target = Target(where, row[0, where].clone())
    row[0, where] = 4
    special, real = torch.isin(row, torch.tensor([0, 2, 3])), row != 0
    tokens = Tokens(row, special, real, torch.zeros(1, dtype=torch.int64))
    example = Example.of(tokens)
    example.targets["mlm"] = target
    return example


def test_loss_is_the_mean_over_all_predictions(store):
    examples = [
        make_example([5, 6, 7, 8, 9], [1, 3]),
        make_example([7, 7, 8], [3], pads=2),
        make_example([9, 10], [1, 2]),
    ]
    pairs, tokens, _ = counted_slowly(store)
    weights = count(store).weights
    asked = [(5, -1, 6), (7, 6, 8), (8, 7, -1), (9, -1, -1), (10, -1, -1)]
    found = baseline(store, examples)
    slow = [-math.log(probability_slowly(pairs, tokens, weights, *case)) for case in asked]
    assert found.bigram == pytest.approx(np.mean(slow))
    alone = [-math.log((tokens[word] + 1) / (tokens.sum() + SIZE)) for word, _, _ in asked]
    assert found.unigram == pytest.approx(np.mean(alone))


def test_long_texts_are_counted_in_part_evenly_spread(store, monkeypatch):
    monkeypatch.setattr(bigram, "MOST_TOKENS", 8 * STRETCH)
    assert count(store).tokens.sum() == 6 * STRETCH  # 8 stretches, of which 2 fit the weights
