"""Loaders: batches are a function of seed and position, whatever the workers, ranks, micro-batches or restarts."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Target
from lightning_modules.config import ConfigError
from lightning_modules.data import Data, RunningText, TextFormat, Tokenizer, TokenStore, Vocabulary
from lightning_modules.data.loader import PretrainingData
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.order.sampler import BatchSchedule


@pytest.fixture
def sequences(tmp_path):
    """Ten sequences of six tokens."""
    size = 60
    vocabulary = Vocabulary(tuple(map(str, range(size + 5))), np.ones(size + 5, dtype=bool))
    ids, sentences = np.arange(5, size + 5, dtype=np.uint16), np.arange(0, size + 1, 6)
    store = TokenStore(tmp_path, ids, sentences, np.array([0, 10]), vocabulary, size)
    return TextFormat(sequence_length=8).arrange(store)


def hide(tokens, draws, vocabulary):
    """A corruption with a different number of targets in each row."""
    chosen = (draws.uniform("hide", tokens.ids.shape[1]) < 0.4) & ~tokens.special.numpy()
    where = torch.from_numpy(np.flatnonzero(chosen))
    example = Example.of(tokens)
    example.targets["mlm"] = Target(where, tokens.ids.reshape(-1)[where])
    example.counts = {"mlm": float(len(where))}
    return example


def seen(examples):
    """Everything a model sees, row by row."""
    return [
        (
            example.inputs.sample.tolist(),
            example.inputs.ids.tolist(),
            example.targets["mlm"].where.tolist(),
            example.counts,
        )
        for example in examples
    ]


def samples(examples):
    return [n for example in examples for n in example.inputs.sample.tolist()]


def test_each_epoch_presents_every_sequence_once_and_batches_cross_epochs(sequences):
    order = samples(Batches(sequences, BatchSchedule(0, 4, 10)))
    assert len(order) == 40
    epochs = [order[n : n + 10] for n in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4


def test_order_and_noise_follow_from_the_seed(sequences):
    runs = [seen(Batches(sequences, BatchSchedule(seed, 4, 5), hide)) for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    twice = seen(Batches(sequences, BatchSchedule(0, 10, 2), hide))
    by_sample = [dict(zip(s, np.array_split(w, 10), strict=True)) for s, _, w, _ in twice]
    assert by_sample[0].keys() == by_sample[1].keys()
    assert twice[0][2] != twice[1][2]  # the second epoch's masks are others


def test_a_position_is_that_of_a_longer_run_and_refused_in_other_batch_sizes(sequences):
    state = Batches(sequences, BatchSchedule(0, 6, 4, 2)).state_dict()
    Batches(sequences, BatchSchedule(0, 6, 5, 2)).load_state_dict(state)
    for other in (BatchSchedule(0, 6, 4, 3), BatchSchedule(1, 6, 4, 2), BatchSchedule(0, 8, 4, 2)):
        with pytest.raises(ConfigError, match="data position"):
            Batches(sequences, other).load_state_dict(state)


def test_a_store_without_sequences_and_ranks_of_unequal_shares_are_refused(sequences):
    with pytest.raises(ConfigError, match="no sequence"):
        Batches(RunningText(sequences.store, np.array([0]), 8), BatchSchedule(0, 4, 1))
    with pytest.raises(ConfigError, match="8 cannot be shared equally by 3"):
        Batches(sequences, BatchSchedule(0, 8, 3), world_size=3)


def test_heldout_examples_are_fixed_and_nested(sequences):
    few, many = (HeldOut(sequences, count, 3, hide) for count in (4, 100))
    assert (len(few), len(many)) == (2, 4)
    assert seen(few) == seen(few)
    assert samples(many)[:4] == samples(few)
    assert sorted(samples(many)) == list(range(10))
    first = {s: row for e in many for s, row in zip(e.inputs.sample.tolist(), e.inputs.ids.tolist(), strict=True)}
    assert all(
        first[s] == row for e in few for s, row in zip(e.inputs.sample.tolist(), e.inputs.ids.tolist(), strict=True)
    )


def make_module(folder, seed=0):
    texts = [f"The {n}th text walks. It talks and walks and talks." for n in range(40)]
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    data = Data(corpora=(f"text:{folder}/text.txt",), tokenizer=Tokenizer(vocab_size=64))
    return PretrainingData(
        data,
        TextFormat(sequence_length=16),
        seed=seed,
        steps=7,
        batch_size=4,
        micro_batch_size=2,
        collate=hide,
        collate_heldout=hide,
        heldout_sequences=8,
    )


def test_the_data_module_gives_every_seed_the_same_heldout_examples_and_baselines(tmp_path):
    one, two = make_module(tmp_path, seed=0), make_module(tmp_path, seed=1)
    assert samples(one.train_dataloader()) != samples(two.train_dataloader())
    assert seen(one.val_dataloader()) == seen(two.val_dataloader())
    found = one.baselines()
    assert set(found) == {"bigram_loss", "unigram_loss"}
    assert 0 < found["bigram_loss"] < found["unigram_loss"] < np.log(64)
    assert len(list(one.sequences.store.folder.glob("baseline-*.json"))) == 1
    assert two.baselines() == found
