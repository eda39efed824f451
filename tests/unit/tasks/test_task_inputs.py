"""Inputs of tasks: how examples are encoded, cut to length, and in what batches they come."""

from collections import Counter

import numpy as np
import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.data import Tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import train
from lightning_modules.tasks.loader import Batches, InOrder
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.texts import LABEL, TextExamples, TextInputs, truncated


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tokenizer of simple words."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    letters = "abcdefghij"
    sentences = [*letters, *(f"{a}{b}{c} {c}{a}" for a in letters for b in letters for c in letters)] * 2
    path.write_text(train(Tokenizer(vocab_size=64), sentences).to_str())
    return Encoder(path, "wordpiece")


def simple(lengths, second=None, labels=None):
    """Texts with so many one-letter words."""
    texts = [" ".join("abcdefgh"[(n + i) % 8] for i in range(length)) for n, length in enumerate(lengths)]
    other = [" ".join("j" * length) for length in second] if second is not None else None
    return TextExamples(texts, other, np.arange(len(texts)) % 2 if labels is None else np.array(labels))


def encoded(examples, encoder, max_length):
    return TextInputs(examples, Pieces.of(examples.texts(), encoder), encoder.vocabulary, max_length)


def test_truncation_is_berts():
    """Against `_truncate_seq_pair` as published: pop from the longer, of equals from the second."""
    for room in (5, 6, 7):
        for first in range(13):
            for second in range(13):
                a, b = first, second
                while a + b > room:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert tuple(map(int, truncated(np.array(first), np.array(second), room))) == (a, b)


class TestInputs:
    def test_pairs(self, encoder):
        inputs = encoded(simple([2, 1], second=[3, 1], labels=[0.5, 2.0]), encoder, 7)
        example = inputs.batch(np.array([0, 1]))
        pieces = [[encoder.vocabulary.pieces[i] for i in row] for row in example.inputs.ids.tolist()]
        assert pieces[0] == ["[CLS]", "a", "b", "[SEP]", "j", "j", "[SEP]"]
        assert pieces[1] == ["[CLS]", "b", "[SEP]", "j", "[SEP]", "[PAD]", "[PAD]"]
        assert example.inputs.tables["segment"].tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]
        assert example.inputs.special.tolist() == [[p in ("[CLS]", "[SEP]", "[PAD]") for p in row] for row in pieces]
        assert example.targets[LABEL].ids.dtype == torch.float32
        assert inputs.sizes[:, 0].tolist() == example.inputs.real.sum(1).tolist()


class TestBatches:
    @pytest.fixture
    def inputs(self, encoder):
        lengths = np.random.default_rng(0).integers(1, 40, 203)
        return encoded(simple(lengths.tolist()), encoder, 64)

    def test_each_example_comes_once_an_epoch(self, inputs):
        batches = Batches(inputs, seed=0, epochs=2, batch_size=8)
        found = [example.inputs.sample.tolist() for example in batches]
        assert len(found) == len(batches) == 52
        for epoch in (found[:26], found[26:]):
            assert Counter(number for batch in epoch for number in batch) == Counter(range(203))
        assert found[:26] != found[26:]

    def test_order_follows_from_seed_and_epoch(self, inputs):
        one, same, other = (Batches(inputs, seed, 3, 8) for seed in (0, 0, 1))
        for epoch in (2, 0):
            assert all(map(np.array_equal, one.epoch(epoch), same.epoch(epoch)))
        assert not all(map(np.array_equal, one.epoch(0), other.epoch(0)))

    def test_similar_lengths_share_a_batch(self, inputs):
        batches = Batches(inputs, seed=0, epochs=4, batch_size=8)
        rows, length, real = batches.shapes.sum(0)[0], *batches.shapes.T[1:]
        assert rows == 4 * 203
        assert real.sum() == 4 * inputs.sizes[:, 0].sum()
        padded = (batches.shapes[:, 0] * length).sum()
        assert real.sum() / padded > 0.9
        shuffled = np.random.default_rng(0).permutation(203)[:200].reshape(25, 8)
        assert inputs.sizes[:, 0][shuffled].sum() / (8 * inputs.sizes[:, 0][shuffled].max(1)).sum() < 0.65
        for example, shape in zip(batches, batches.shapes.tolist(), strict=True):
            assert [*example.inputs.ids.shape, int(example.inputs.real.sum())] == shape

    def test_goes_on_where_it_was(self, inputs):
        straight = [example.inputs.ids for example in Batches(inputs, 0, 2, 8)]
        for stop in (0, 5, 26, 51):
            first, second = Batches(inputs, 0, 2, 8), Batches(inputs, 0, 2, 8)
            for _ in zip(range(stop), first, strict=False):
                pass
            state = first.state_dict()
            state["position"] = stop  # zip has taken one more
            second.load_state_dict(state)
            assert all(map(torch.equal, (e.inputs.ids for e in second), straight[stop:]))
        with pytest.raises(ConfigError, match="saved with"):
            Batches(inputs, 0, 2, 16).load_state_dict(state)

    def test_steps_end_a_training_in_the_middle_of_an_epoch(self, inputs):
        long, short = (list(Batches(inputs, 0, 3, 8, **steps)) for steps in ({}, {"steps": 30}))
        assert (len(long), len(short)) == (78, 30)
        assert all(torch.equal(one.inputs.ids, other.inputs.ids) for one, other in zip(short, long, strict=False))
        resumed = Batches(inputs, 0, 1, 8, steps=30)
        resumed.load_state_dict({**resumed.state_dict(), "position": 29})
        assert len(list(resumed)) == 1

    def test_dev_examples_come_once_whatever_the_batch_size(self, inputs):
        for size in (7, 64):
            seen = torch.cat([example.inputs.sample for example in InOrder(inputs, size)])
            assert sorted(seen.tolist()) == list(range(203))
