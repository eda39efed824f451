"""A part of the sequences of a text: which they are, and how often each is shown."""

import numpy as np
import pytest

from lightning_modules.data.formats.format import Subset
from lightning_modules.data.formats.text import RunningText, arrange
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.sampler import BatchSchedule
from tests.unit.data.test_formats import make_store


@pytest.fixture
def whole(tmp_path):
    store = make_store(tmp_path, [[6] * 4] * 20)
    return RunningText(store, arrange(store, 8, "none"), 8)


def shown(sequences, steps, seed=0):
    batches = Batches(sequences, BatchSchedule(seed, 4, steps))
    return np.concatenate([example.inputs.sample.numpy() for example in batches])


def test_a_smaller_part_is_within_a_larger_one_and_the_same_for_all_seeds(whole):
    chosen = [set(Subset.share(whole, share).chosen.tolist()) for share in (0.1, 0.3, 0.6)]
    assert chosen[0] < chosen[1] < chosen[2]
    assert [len(one) for one in chosen] == [round(share * len(whole)) for share in (0.1, 0.3, 0.6)]
    one, other = (shown(Subset.share(whole, 0.3), 20, seed=seed).tolist() for seed in (1, 2))
    assert set(one) == set(other)


def test_all_of_the_text_is_no_part_and_no_part_is_empty(whole):
    assert Subset.share(whole, 1.0) is whole
    assert len(Subset.share(whole, 1e-9)) == 1


def test_each_sequence_of_a_part_is_shown_once_an_epoch_as_it_is_in_the_whole(whole):
    some = Subset.share(whole, 0.2)
    epochs = shown(some, len(some)).reshape(4, len(some))
    assert all(sorted(epoch) == sorted(some.chosen) for epoch in epochs)
    rows = some.batch(np.arange(len(some)))
    assert (rows.ids == whole.batch(some.chosen).ids).all()
    assert some.sizes.tolist() == rows.real.sum(1).tolist()
    assert some.sizes.mean() / some.length == pytest.approx(rows.real.float().mean().item())
