"""Steps by tokens and the length curriculum: what each step shows, on any number of ranks, and after any restart."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data import TextFormat
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.sampler import (
    BatchSchedule,
    BucketSampler,
    Sampler,
    TokenSampler,
    stages,
)
from lightning_modules.objectives import MaskedLM, Masking
from tests.unit.data.test_formats import make_store
from tests.unit.data.test_loader import hide, samples

SIZES = st.lists(st.integers(3, 12), min_size=1, max_size=30).map(np.array)
LONGEST = 12


def every_presentation(order, steps):
    """Numbers, sequences and epochs of all presentations of the first steps."""
    draws = [order.presented(step) for step in range(steps)]
    return [np.concatenate([getattr(d, name) for d in draws]) for name in ("rows", "sample", "epoch")]


def slowly(order, steps):
    """The reference: one presentation after the other, each in the step in which its first token falls."""
    epoch = Sampler(order.seed, order.sizes, len(order.sizes))
    numbers = (n for number in itertools.count() for n in epoch.presented(number).sample.tolist())
    rows, token = [[] for _ in range(steps)], 0
    while (step := token // order.batch) < steps:
        rows[step].append(next(numbers))
        token += int(order.sizes[rows[step][-1]])
    return rows


@given(sizes=SIZES, batch=st.integers(1, 9), steps=st.integers(1, 12), seed=st.integers(0, 5))
def test_steps_by_tokens_show_what_one_presentation_after_the_other_shows(sizes, batch, steps, seed):
    order = TokenSampler(seed, sizes, batch * LONGEST)
    assert [order.presented(step).sample.tolist() for step in range(steps)] == slowly(order, steps)
    backwards = [order.presented(step).sample.tolist() for step in reversed(range(steps))]
    assert backwards[::-1] == slowly(order, steps), "a step does not depend on those asked for before"


@given(sizes=SIZES, batch=st.integers(1, 9), pools=st.integers(1, 3), together=st.integers(2, 5))
def test_steps_that_are_sorted_together_show_what_they_show_unsorted(sizes, batch, pools, together):
    steps = pools * together
    plain = TokenSampler(1, sizes, batch * LONGEST)
    order = BucketSampler(1, sizes, batch * LONGEST, alike=sizes, together=together)
    every = [order.presented(step) for step in reversed(range(steps))][::-1]
    for pool in range(pools):
        own = np.concatenate([draws.rows for draws in every[pool * together : (pool + 1) * together]])
        wanted = [plain.presented(step).rows for step in range(pool * together, (pool + 1) * together)]
        assert sorted(own.tolist()) == np.concatenate(wanted).tolist()
    by_row = dict(zip(*(values.tolist() for values in every_presentation(plain, steps)[:2]), strict=True))
    assert all(by_row[row] == sample for draws in every for row, sample in zip(draws.rows, draws.sample, strict=True))
    assert min(len(draws.rows) for draws in every) > 0
    for end in range(steps + 1):
        shown = np.concatenate([np.zeros(0, int), *(draws.sample for draws in every[:end])])
        assert order.lengths(end).tolist() == np.bincount(sizes[shown], minlength=sizes.max() + 1).tolist()


def test_steps_that_are_sorted_together_are_alike_equal_and_in_random_order():
    sizes = np.random.default_rng(0).integers(3, 60, 4_000)
    order = BucketSampler(1, sizes, 400, alike=sizes, together=50)
    steps = [sizes[order.presented(step).sample] for step in range(50)]
    assert max(rows.max() - rows.min() for rows in steps) < 12
    assert max(abs(rows.sum() - 400) for rows in steps) < 2 * 60
    shortest = [rows.min() for rows in steps]
    assert abs(np.corrcoef(shortest, range(50))[0, 1]) < 0.5


@given(
    sizes=st.lists(st.integers(3, LONGEST), min_size=8, max_size=60).map(np.array),
    micro=st.sampled_from([1, 2, 4, 8, None]),
)
def test_the_groups_of_a_step_hold_each_row_once_in_similar_lengths_and_none_is_empty(sizes, micro):
    schedule = BatchSchedule(0, 8, 1, micro, by_tokens=True)
    for world in (1, 2, 4):
        groups = schedule.divided(sizes, world)
        assert [len(parts) for parts in groups] == [schedule.micro_batches(world)] * world
        in_turn = [rows for parts in zip(*groups, strict=True) for rows in parts]
        assert min(map(len, in_turn)) > 0
        assert sorted(np.concatenate(in_turn).tolist()) == list(range(len(sizes)))
        assert (np.diff(sizes[np.concatenate(in_turn)]) >= 0).all()
        if len(sizes) > 4 * len(in_turn):
            assert max(sizes[rows].sum() for rows in in_turn) <= sizes.sum() / len(in_turn) + 2 * LONGEST


@pytest.fixture
def text(tmp_path):
    lengths = np.random.default_rng(0)
    return make_store(tmp_path, [lengths.integers(1, 9, lengths.integers(1, 7)).tolist() for _ in range(60)])


@pytest.fixture
def sequences(text):
    """Sequences of unequal lengths."""
    return TextFormat(sequence_length=16, break_mode="documents").arrange(text)


@pytest.fixture
def shorter(text):
    return TextFormat(sequence_length=10, break_mode="documents").arrange(text)


BY_TOKENS = BatchSchedule(3, 8, 5, micro_batch_size=4, by_tokens=True)
BUCKETED = replace(BY_TOKENS, bucket_steps=2)
CURRICULUM = BatchSchedule(3, 8, 5, micro_batch_size=4, first_steps=3)
EACH = [BY_TOKENS, BUCKETED, CURRICULUM, replace(CURRICULUM, by_tokens=True)]


def loader(sequences, shorter, schedule, **options):
    return Batches(sequences, schedule, hide, first=shorter if schedule.first_steps else None, **options)


def contents(examples):
    """What a step shows, whatever the order and the padding of its rows."""
    rows = []
    for example in examples:
        hidden = np.zeros(example.inputs.ids.shape, dtype=bool).reshape(-1)
        hidden[example.targets["mlm"].where.numpy()] = True
        for ids, real, chosen in zip(
            example.inputs.ids, example.inputs.real, hidden.reshape(example.inputs.ids.shape), strict=True
        ):
            rows.append((ids[real].tolist(), chosen[real.numpy()].tolist()))
    return sorted(rows)


@pytest.mark.parametrize("schedule", [BatchSchedule(3, 8, 5), *EACH])
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("micro", [None, 1, 2])
def test_ranks_and_micro_batches_divide_one_batch(sequences, shorter, schedule, world, micro):
    whole = list(loader(sequences, shorter, replace(schedule, micro_batch_size=None)))
    ranks = [
        list(loader(sequences, shorter, replace(schedule, micro_batch_size=micro), rank=rank, world_size=world))
        for rank in range(world)
    ]
    each = len(ranks[0]) // schedule.steps
    for step, example in enumerate(whole):
        parts = [part for own in ranks for part in own[step * each : step * each + each]]
        assert contents(parts) == contents([example])
        assert [part.counts for part in parts] == [example.counts] * (each * world)
        assert example.counts == {"mlm": example.targets["mlm"].count()}


def test_rows_are_cut_where_the_longest_of_their_micro_batch_ends_and_hide_the_same(sequences):
    objective = MaskedLM(masking=Masking(rate=0.4))

    def prepare(tokens, draws, vocabulary):
        return objective.mask_inputs(Example.of(tokens), draws, vocabulary)

    schedule = BatchSchedule(0, 8, 6, micro_batch_size=1, by_tokens=True)
    padding = []
    for example in Batches(sequences, schedule, prepare):
        real = example.inputs.real
        assert real.any(0).all(), "no column is padding alone"
        padding.append(1 - real.float().mean().item())
    assert np.mean(padding) < 0.1 < 1 - sequences.sizes.mean() / sequences.length
    draws = Batches(sequences, schedule).stages[0].sampler.presented(0)
    vocabulary = sequences.store.vocabulary
    full, cut = (
        prepare(sequences.batch(draws.sample, n), draws, vocabulary)
        for n in (None, int(sequences.sizes[draws.sample].max()))
    )
    length = cut.inputs.ids.shape[1]
    assert torch.equal(cut.inputs.ids, full.inputs.ids[:, :length])
    assert torch.equal(cut.targets["mlm"].ids, full.targets["mlm"].ids)
    assert (cut.targets["mlm"].where % length).tolist() == (full.targets["mlm"].where % 16).tolist()


def test_the_first_steps_show_the_shorter_text_and_no_noise_comes_twice(sequences, shorter):
    made = stages(sequences, CURRICULUM, shorter)
    assert [(stage.sequences.length, stage.start, stage.steps) for stage in made] == [(10, 0, 3), (16, 3, 2)]
    keys = np.concatenate([stage.sampler.presented(n).rows for stage in made for n in range(stage.steps)])
    assert keys.tolist() == list(range(40))
    widths = [
        example.inputs.ids.shape for example in loader(sequences, shorter, replace(CURRICULUM, micro_batch_size=None))
    ]
    assert widths == [(8, 10)] * 3 + [(8, 16)] * 2
    order = samples(loader(sequences, shorter, CURRICULUM))
    full = samples(Batches(sequences, BatchSchedule(3, 8, 2)))
    assert order[24:] == full, "the full text begins anew"


@pytest.mark.parametrize("schedule", [BatchSchedule(3, 8, 5), *EACH])
def test_what_is_counted_is_what_was_shown(sequences, shorter, schedule):
    made = loader(sequences, shorter, schedule)
    for steps in range(6):
        examples = list(itertools.islice(loader(sequences, shorter, schedule), steps * schedule.micro_batches()))
        real = Counter(n for example in examples for n in example.inputs.real.sum(1).tolist())
        full = Counter(example.inputs.ids.shape[1] for example in examples for _ in example.inputs.ids)
        assert made.shown(steps) == (real if schedule.by_tokens else full)
        assert made.real_tokens(steps) == sum(size * rows for size, rows in real.items())


def test_the_first_steps_by_tokens_show_as_many_tokens_as_the_others(sequences, shorter):
    schedule = BatchSchedule(3, 8, 40, by_tokens=True, first_steps=30)
    tokens = [sum(int(e.inputs.real.sum()) for e in loader(sequences, shorter, schedule).step(n)) for n in range(40)]
    assert max(tokens) - min(tokens) < 2 * 16
    assert np.mean(tokens) == pytest.approx(8 * 16, rel=0.01)


def test_a_position_of_another_curriculum_is_refused(sequences, shorter):
    state = loader(sequences, shorter, CURRICULUM).state_dict()
    for other in (
        replace(CURRICULUM, first_steps=2),
        replace(CURRICULUM, by_tokens=True),
        BatchSchedule(3, 8, 5, 4),
        BUCKETED,
    ):
        with pytest.raises(ConfigError, match="data position"):
            loader(sequences, shorter, other).load_state_dict(state)


def test_positions_of_checkpoints_from_before_there_were_phases_are_understood(sequences):
    schedule = {"seed": 3, "batch_size": 8, "micro_batch_size": None, "world_size": 1, "sequences": len(sequences)}
    batches = Batches(sequences, BatchSchedule(3, 8, 5))
    batches.load_state_dict({"position": 2, "portions": schedule})
    assert len(list(batches)) == 3
