"""The product of counts against its formula, written as loops; what it sees; what is fitted."""

import itertools
import math

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Queries, Target, Tokens
from lightning_modules.data.baselines import ngrams
from lightning_modules.data.baselines.ngrams import Counted
from lightning_modules.data.baselines.product import NEIGHBOURS, TWO, Fit, Product, Questions
from tests.unit.data.counted_text import LENGTH, SIZE, store

STRETCH, MASK = 16, 4


@pytest.fixture(params=["all of it", "some stretches"])
def text(request, tmp_path, monkeypatch):
    """A text, and the places of it that are counted."""
    monkeypatch.setattr(ngrams, "STRETCH", STRETCH)
    monkeypatch.setattr(ngrams, "_AT_ONCE", 50)
    most = LENGTH if request.param == "all of it" else 150
    found = store(tmp_path)
    stretches = np.unique(np.linspace(0, LENGTH // STRETCH - 1, -(-most // STRETCH)).astype(int))
    counted = {place for stretch in stretches for place in range(stretch * STRETCH, (stretch + 1) * STRETCH)}
    return found, Counted.of(found, most), counted


def asked(count=60):
    """Questions with every kind of context, unknown ones too."""
    draw = np.random.default_rng(1)
    around = draw.integers(5, SIZE, (count, 4))
    around[draw.random(around.shape) < 0.2] = -1
    return Questions(draw.integers(5, SIZE, count), around)


def slowly(store, counted, questions, contexts, fit):
    """The log-probability of every word: the formula, word by word."""
    ids, starts = store.ids.tolist(), set(store.document_starts.tolist())
    single = [1 + sum(ids[place] == word for place in counted) for word in range(SIZE)]
    alone = [number / sum(single) for number in single]
    found = []
    for around in questions.around:
        shown = dict(zip((-2, -1, 1, 2), around.tolist(), strict=True))
        scores = [fit.exponents[-1] * math.log(alone[word]) for word in range(SIZE)]
        for offsets, exponent in zip(contexts, fit.exponents, strict=False):
            counts = [0] * SIZE
            for place in counted:
                reach = range(place + min(0, *offsets), place + max(0, *offsets) + 1)
                if set(reach) <= counted and not any(one in starts for one in reach[1:]):
                    counts[ids[place]] += all(ids[place + offset] == shown[offset] for offset in offsets)
            if any(shown[offset] < 0 for offset in offsets) or not sum(counts):
                conditional = alone
            else:
                left = sum(fit.discount for count in counts if count) / sum(counts)
                conditional = [max(count - fit.discount, 0) / sum(counts) + left * chance
                               for count, chance in zip(counts, alone, strict=True)]  # fmt: skip
            scores = [score + exponent * math.log(one) for score, one in zip(scores, conditional, strict=True)]
        total = math.log(sum(map(math.exp, scores)))
        found.append([score - total for score in scores])
    return np.array(found)


@pytest.mark.parametrize("contexts", [NEIGHBOURS, TWO], ids=["neighbours", "two words"])
def test_it_is_the_formula(text, contexts):
    store, counted, places = text
    questions, fit = asked(), Fit(0.7, (*(0.9, 0.8, 0.5, -0.2, 0.3)[: len(contexts)], -0.6))
    product = Product(counted, contexts, [questions])
    right = slowly(store, places, questions, contexts, fit)
    assert product.logs(questions, fit) == pytest.approx(right, abs=2e-5)
    assert np.exp(product.logs(questions, fit)).sum(1) == pytest.approx(1)
    nats = -right[np.arange(len(questions)), questions.words].sum()
    assert product.nats(questions, fit) == pytest.approx(nats, rel=1e-5)


def test_what_is_fitted_has_the_lowest_loss_of_all_around_it(text):
    questions = asked(300)
    product = Product(text[1], NEIGHBOURS, [questions])
    fit = product.fitted(questions)
    lowest = product.nats(questions, fit)
    steps = itertools.product((-0.05, 0, 0.05), repeat=3)
    others = [Fit(fit.discount, tuple(np.add(fit.exponents, step).tolist())) for step in steps]
    assert all(product.nats(questions, other) >= lowest - 1e-3 for other in others)
    for discount in (0.5, 0.7, 0.9):
        assert product.nats(questions, product.fitted(questions, [discount])) >= lowest - 1e-2


def example(ids, target=None, **changes):
    tokens = torch.tensor([ids])
    special = tokens == 2
    given = Example.of(Tokens(tokens, special, torch.ones_like(special), torch.zeros(1, dtype=torch.long)))
    for name, value in changes.items():
        setattr(given.visible, name, value)
    where = torch.tensor([place for place, one in enumerate(ids) if one == MASK])
    given.targets["mlm"] = target or Target(where, torch.full_like(where, 9))
    return given


def test_it_sees_what_the_model_sees():
    ids = [2, 5, 6, MASK, 7, MASK, 8, 2]
    both = Questions.of([example(ids)], "mlm", MASK)
    assert both.around.tolist() == [[5, 6, 7, -1], [-1, 7, 8, -1]]
    left = Questions.of([example(ids, causal=True)], "mlm", MASK)
    assert left.around.tolist() == [[5, 6, -1, -1], [-1, 7, -1, -1]]
    right = Questions.of([example(ids, anticausal=True)], "mlm", MASK)
    assert right.around.tolist() == [[-1, -1, 7, -1], [-1, -1, 8, -1]]


def test_of_a_permuted_order_it_sees_what_the_query_sees():
    target = Target(torch.tensor([2, 3]), torch.tensor([6, 7]), queries=torch.tensor([0, 1]))
    given = example([2, 5, 6, 7, 8, 2], target)
    visible = torch.tensor([[[1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 1, 1]]], dtype=torch.bool)
    given.queries = Queries(torch.tensor([[2, 3]]), visible)
    assert Questions.of([given], "mlm", MASK).around.tolist() == [[-1, 5, -1, 8], [5, 6, 8, -1]]


def test_a_side_that_nobody_sees_has_no_say(text):
    questions = asked(300)
    questions.around[:, 2:] = -1
    fit = Product(text[1], NEIGHBOURS, [questions]).fitted(questions)
    assert fit.exponents[1] == 0
    assert fit.exponents[0] != 0
