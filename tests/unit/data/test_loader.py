"""Loaders: batches are a function of seed and position, whatever the workers, ranks, micro-batches or restarts."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Target
from lightning_modules.config import ConfigError
from lightning_modules.data import Data, InputFormat, Sequences, Tokenizer, TokenStore, Vocabulary
from lightning_modules.data.loader import PretrainingData
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.order.portions import Portions


@pytest.fixture
def sequences(tmp_path):
    """Ten sequences of six tokens."""
    size = 60
    vocabulary = Vocabulary(tuple(map(str, range(size + 5))), np.ones(size + 5, dtype=bool))
    ids, sentences = np.arange(5, size + 5, dtype=np.uint16), np.arange(0, size + 1, 6)
    store = TokenStore(tmp_path, ids, sentences, np.array([0, 10]), vocabulary, size)
    return InputFormat(sequence_length=8).arrange(store)


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
    order = samples(Batches(sequences, Portions(0, 4, 10)))
    assert len(order) == 40
    epochs = [order[n : n + 10] for n in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4


def test_order_and_noise_follow_from_the_seed(sequences):
    runs = [seen(Batches(sequences, Portions(seed, 4, 5), hide)) for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    twice = seen(Batches(sequences, Portions(0, 10, 2), hide))
    by_sample = [dict(zip(s, np.array_split(w, 10), strict=True)) for s, _, w, _ in twice]
    assert by_sample[0].keys() == by_sample[1].keys()
    assert twice[0][2] != twice[1][2]  # the second epoch's masks are others


@pytest.mark.parametrize("position", range(13))
def test_resuming_at_any_position_goes_on_exactly(sequences, position):
    portions = Portions(3, 6, 4, micro_batch_size=2)
    straight = Batches(sequences, portions, hide)
    assert len(straight) == 12
    expected, states = [], [straight.state_dict()]
    for example in straight:
        expected.append(example)
        states.append(straight.state_dict())
    resumed = Batches(sequences, portions, hide)
    resumed.load_state_dict(states[position])
    if position < 12:
        assert seen(resumed) == seen(expected[position:])
    longer = Batches(sequences, Portions(3, 6, 5, micro_batch_size=2), hide)
    longer.load_state_dict(states[position])
    assert seen(longer)[: 12 - position] == seen(expected[position:])


def test_a_position_counted_in_other_portions_is_refused(sequences):
    state = Batches(sequences, Portions(0, 6, 4, 2)).state_dict()
    for other in (Portions(0, 6, 4, 3), Portions(1, 6, 4, 2), Portions(0, 8, 4, 2)):
        with pytest.raises(ConfigError, match="data position"):
            Batches(sequences, other).load_state_dict(state)


@pytest.mark.parametrize("micro", [1, 2, 4, 5, 8, 100])
def test_micro_batches_are_slices_of_one_batch_with_its_counts(sequences, micro):
    whole = list(Batches(sequences, Portions(0, 8, 3), hide))
    parts = list(Batches(sequences, Portions(0, 8, 3, micro), hide))
    assert samples(parts) == samples(whole)
    number = len(parts) // 3
    for step, example in enumerate(whole):
        assert example.counts == {"mlm": example.targets["mlm"].count()}
        group = parts[step * number : (step + 1) * number]
        assert [part.counts for part in group] == [example.counts] * number
        assert sum(part.targets["mlm"].count() for part in group) == example.counts["mlm"]


def test_ranks_share_the_global_batch(sequences):
    whole = list(Batches(sequences, Portions(0, 8, 3), hide))
    ranks = [list(Batches(sequences, Portions(0, 8, 3, 2), hide, rank=r, world_size=2)) for r in range(2)]
    for step, example in enumerate(whole):
        parts = [part for rank in ranks for part in rank[step * 2 : step * 2 + 2]]
        assert samples(parts) == samples([example])
        assert [part.counts for part in parts] == [example.counts] * 4
    with pytest.raises(ConfigError, match="8 cannot be shared equally by 3"):
        Batches(sequences, Portions(0, 8, 3), world_size=3)


def test_a_store_without_sequences_is_refused(sequences):
    with pytest.raises(ConfigError, match="no sequence"):
        Batches(Sequences(sequences.store, np.array([0]), 8), Portions(0, 4, 1))


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
        InputFormat(sequence_length=16),
        seed=seed,
        steps=7,
        batch_size=4,
        micro_batch_size=2,
        prepare=hide,
        prepare_heldout=hide,
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
