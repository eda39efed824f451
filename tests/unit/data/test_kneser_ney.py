"""Kneser-Ney trigrams against numbers worked out by hand, and the cache."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.data.baselines import ngrams
from lightning_modules.data.baselines.kneser_ney import KneserNey, Lines, NGrams
from lightning_modules.data.baselines.ngrams import Counted
from tests.unit.data.counted_text import SIZE, store

A, B, C, D = range(4)


def text(*documents, size=4):
    """Documents as text that is counted."""
    fresh = [n == 0 for document in documents for n in range(len(document))]
    return Counted(np.concatenate(documents), np.array(fresh), size)


def lines(words, last, earlier):
    n = len(words)
    return Lines(np.array(words), np.stack([last, earlier], axis=1), np.zeros(n, int), np.zeros(n, int))


def test_by_hand():
    """a b c a b c a b d, and d b c beside it.

    Trigrams: abc 2, bca 2, cab 2, abd 1, dbc 1: two are 1, three are 2, so D = 2 / (2 + 6) = 1/4.
    Words before a pair: bc {a, d}, ca {b}, ab {c}, bd {a}: three are 1, one is 2, so D = 3 / (3 + 2) = 3/5.
    Words before a word, of pairs ab bc ca bd db: a {c}, b {a, d}, c {b}, d {b}: D = 3 / (3 + 2) = 3/5.
    """
    model = KneserNey(text([A, B, C, A, B, C, A, B, D], [D, B, C]))
    one = (2 - 3 / 5) / 5 + 3 / 5 * 4 / 5 * 1 / 4  # b; n = 5 pairs, 4 kinds
    of_c = (1 - 3 / 5) / 5 + 3 / 5 * 4 / 5 * 1 / 4
    after_b = (2 - 3 / 5) / 3 + 3 / 5 * 2 / 3 * of_c  # c after b: two of three
    after_ab = (2 - 1 / 4) / 3 + 1 / 4 * 2 / 3 * after_b  # c after a b: two of three
    found = model.chances(lines([B, C, C, C, C], [-1, B, B, B, -1], [-1, -1, A, C, A]))
    assert found == pytest.approx([one, after_b, after_ab, after_b, of_c])  # c b was never seen


def test_it_sums_to_one_after_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(ngrams, "STRETCH", 16)
    model = KneserNey(Counted.of(store(tmp_path), 200))
    for last in (-1, 3, *range(5, SIZE)):
        for earlier in (-1, 3, *range(5, SIZE)):
            found = model.chances(lines(range(SIZE), [last] * SIZE, [earlier] * SIZE))
            assert found.sum() == pytest.approx(1)
            assert (found > 0).all()


def test_a_text_without_trigrams_counts_what_it_has():
    assert KneserNey(text([A, B], [A])).chances(lines([A, B], [A, A], [B, B])).sum() < 1
    assert (KneserNey(text([A])).chances(lines([A, B], [A, A], [B, B])) > 0).all()


def rows(ids, target="next", following=None, special=()):
    tokens = torch.tensor(ids)
    known = torch.zeros_like(tokens, dtype=torch.bool)
    known[:, list(special)] = True
    given = Tokens(tokens, known, torch.ones_like(known), torch.arange(len(ids)))
    given.following = None if following is None else torch.tensor(following)
    step = 1 if target == "next" else -1
    length = tokens.shape[1] + (following is not None)
    asked = [(r, c) for r in range(len(ids)) for c in range(tokens.shape[1])
             if 0 <= c + step < length and c + step not in special]  # fmt: skip
    where = torch.tensor([r * tokens.shape[1] + c for r, c in asked])
    padded = np.column_stack([ids, following]) if following is not None else np.array(ids)
    words = torch.tensor([int(padded[r, c + step]) for r, c in asked])
    return Example(inputs=given, visible=Example.of(given).visible, targets={target: Target(where, words)})


def as_list(found):
    return np.column_stack([found.words, found.before, found.again, found.length]).tolist()


def test_the_words_before_a_word():
    found = Lines.of([rows([[9, 5, 6, 5]], special=[0])], "next")
    assert as_list(found) == [[5, -1, -1, 0, 0], [6, 5, -1, 0, 1], [5, 6, 5, 1, 2]]
    back = Lines.of([rows([[5, 6, 5, 9]], "previous", special=[3])], "previous")
    assert as_list(back) == as_list(found)


def test_rows_that_go_on_are_read_apart_or_together():
    parts = [rows([[5, 6], [7, 7]], following=[5, 8]), rows([[5, 5], [8, 7]], following=[6, 9])]
    apart, together = Lines.of(parts, "next"), Lines.of(parts, "next", joined=True)
    assert as_list(apart)[:2] == [[6, 5, -1, 0, 1], [5, 6, 5, 1, 2]]
    assert as_list(apart)[4:6] == [[5, 5, -1, 1, 1], [6, 5, 5, 0, 2]]
    assert as_list(together)[:4] == [[6, 5, -1, 0, 1], [5, 6, 5, 1, 2], [5, 5, 6, 2, 3], [6, 5, 5, 1, 4]]
    assert as_list(together)[4:] == [[7, 7, -1, 1, 1], [8, 7, 7, 0, 2], [7, 8, 7, 2, 3], [9, 7, 8, 0, 4]]
    assert sorted(apart.words) == sorted(together.words)


def test_the_weight_of_the_cache_is_the_best_one():
    model = KneserNey(text([A, B, C, A, B, C, A, B, D], [D, B, C]))
    draw = np.random.default_rng(0)
    repeated = draw.integers(0, 4, 400)
    asked = Lines(repeated, np.full((400, 2), -1), draw.integers(0, 4, 400), np.full(400, 6))
    weight = model.fitted(asked)
    others = [model.nats(asked, float(other)) for other in np.linspace(0, 0.99, 100)]
    assert 0 < weight < 1
    assert model.nats(asked, weight) <= min(others) + 1e-2
    assert model.fitted(asked[:0]) == 0
    empty = Lines(repeated, np.full((400, 2), -1), np.zeros(400, int), np.zeros(400, int))
    assert model.nats(empty, 0.9) == pytest.approx(model.nats(empty, 0.0))  # nothing was read: no cache


def test_text_is_read_from_both_ends(tmp_path, monkeypatch):
    """The trigrams of the reversed text are those of the text, reversed."""
    monkeypatch.setattr(ngrams, "STRETCH", 16)
    counted = Counted.of(store(tmp_path), 200)
    forth = np.concatenate([context * SIZE + word for context, word in counted.beside((-2, -1))])
    back = np.concatenate([context * SIZE + word for context, word in counted.backward.beside((-2, -1))])
    first, second, third = back // SIZE**2, back // SIZE % SIZE, back % SIZE
    assert sorted(forth) == sorted(third * SIZE**2 + second * SIZE + first)


def test_longer_ngrams_are_trigrams_where_they_have_three_words():
    generator = np.random.default_rng(0)
    known = text(*(generator.integers(0, 4, 30) for _ in range(5)))
    row = generator.integers(0, 4, 40)
    before = np.concatenate([[-1, -1], row])
    expected = KneserNey(known).chances(lines(row, before[1:-1], before[:-2]))
    assert np.exp(-NGrams(known, 3).nats(row)) == pytest.approx(expected)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("size", [4, 30_000])
def test_longer_ngrams_sum_to_one(order, size):
    known = text([A, B, C, A, B, C, A, B, D, A, B, C, A, B, C], [D, B, C, A], size=size)
    model = NGrams(known, order)
    for start in ([A, B, C, A], [D, B, C, A], [C, C, C, C], []):
        last = [np.exp(-model.nats([*start, word])[-1]) for word in range(size if size == 4 else 5)]
        rest = 0.0 if size == 4 else (size - 5) * np.exp(-model.nats([*start, size - 1])[-1])
        assert sum(last) + rest == pytest.approx(1.0)
