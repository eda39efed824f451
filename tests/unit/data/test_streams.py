"""Streams: rows that are the text without a gap, each with its rank and micro-batch, in training and held out."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data import StreamFormat, open_store
from lightning_modules.data.formats.stream import shuffled
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.heldout import HeldOutStream, Reading
from lightning_modules.data.order.sampler import BatchSchedule
from lightning_modules.objectives import LanguageModel
from tests.messages import naming
from tests.unit.data.test_blocks import FRAMES, text_of
from tests.unit.data.test_formats import make_store

DOCUMENTS = [[9, 7, 3], [4], [20, 11], [6, 6, 2, 1, 8], [0, 13], [17, 5]]  # 112 tokens
LENGTH, ROWS = 8, 4


def stream(store, frame="none", length=LENGTH):
    return StreamFormat(frame=frame, sequence_length=length).arrange(store)


def predict(tokens, draws, vocabulary):
    example = LanguageModel().with_targets(Example.of(tokens))
    return replace(example, counts=LanguageModel().counts(example))


def pairs(examples):
    """What is predicted, as (the token before, the token) in the order of rows."""
    found = []
    for example in examples:
        target = example.targets["next"]
        found += zip(example.inputs.ids.flatten()[target.where].tolist(), target.ids.tolist(), strict=True)
    return found


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path, DOCUMENTS)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(("ranks", "micro"), [(1, None), (1, 2), (2, None), (2, 1)])
def test_steps_show_the_columns_of_rows(store, frame, ranks, micro):
    """The reference cuts the text into rows and walks over them, one position after the other, pass after pass."""
    text = text_of(store, frame)
    steps = (len(text) - 1) // LENGTH // ROWS
    assert steps >= 3
    width, every = steps * LENGTH, 2 * steps + 1
    loaders = [
        Batches(stream(store, frame), BatchSchedule(5, ROWS, every, micro), predict, rank=rank, world_size=ranks)
        for rank in range(ranks)
    ]
    parts = [list(loader) for loader in loaders]
    groups = loaders[0].micro_batches
    for step in range(every):
        step_examples = [part[step * groups + group] for part in parts for group in range(groups)]
        first = step % steps * LENGTH
        wanted = [text[row * width + first : row * width + first + LENGTH + 1] for row in range(ROWS)]
        assert torch.cat([each.inputs.ids for each in step_examples]).tolist() == [row[:-1] for row in wanted]
        assert pairs(step_examples) == [pair for row in wanted for pair in itertools.pairwise(row)]
        assert all(each.counts == {"next": ROWS * LENGTH} for each in step_examples)
        assert [each.inputs.segment_state.group for each in step_examples] == list(range(groups)) * ranks
        fresh = [each.inputs.segment_state.reset_mask for each in step_examples]
        assert all(rows.all() for rows in fresh) if step % steps == 0 else fresh == [None] * len(fresh)


@pytest.mark.parametrize(("ranks", "micro"), [(1, None), (1, 3), (2, 1)])
def test_half_of_the_rows_may_go_through_the_text_from_its_end(store, ranks, micro):
    """The reference walks over the same blocks from the last to the first. Their words stand as in the text."""
    text, each = text_of(store, "none"), ROWS // 2
    blocks = (len(text) - 1) // LENGTH
    steps = blocks // each
    schedule = BatchSchedule(5, ROWS, 2 * steps, micro, both_ways=True)
    loaders = [Batches(stream(store), schedule, predict, rank=rank, world_size=ranks) for rank in range(ranks)]
    parts, groups = [list(loader) for loader in loaders], loaders[0].micro_batches
    for step in range(2 * steps):
        examples = [part[step * groups + group] for part in parts for group in range(groups)]
        at = [row * steps + step % steps for row in range(each)]
        at += [blocks - 1 - block for block in at]
        wanted = [text[block * LENGTH : (block + 1) * LENGTH] for block in at]
        assert torch.cat([example.inputs.ids for example in examples]).tolist() == wanted
        rows = [len(example.inputs.ids) for example in examples]
        going = [example.inputs.segment_state for example in examples]
        left = [
            torch.zeros(n, dtype=torch.bool) if one.backward is None else one.backward
            for one, n in zip(going, rows, strict=True)
        ]
        assert torch.cat(left).tolist() == [False] * each + [True] * each


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_seed_may_say_where_rows_begin(store, both_ways):
    """The reference turns the circle of blocks; a pass still shows each of them as often as before."""
    text, each = text_of(store, "none"), ROWS // (1 + both_ways)
    blocks = (len(text) - 1) // LENGTH
    steps, begun = blocks // each, set()
    for seed in range(12):
        schedule = BatchSchedule(seed, ROWS, 2 * steps, both_ways=both_ways, drawn=True)
        shown = [example.inputs.ids.tolist() for example in Batches(stream(store), schedule, predict)]
        first = next(n for n in range(blocks) if text[n * LENGTH : (n + 1) * LENGTH] == shown[0][0])
        begun.add(first)
        for step, ids in enumerate(shown):
            at = [(first + row * steps + step % steps) % blocks for row in range(each)]
            at += [blocks - 1 - block for block in at] * both_ways
            assert ids == [text[block * LENGTH : (block + 1) * LENGTH] for block in at]
    assert len(begun) > 4


def test_a_length_curriculum_starts_anew_at_its_second_phase(store):
    schedule = BatchSchedule(0, 2, 6, first_steps=2)
    loader = Batches(stream(store, length=16), schedule, predict, first=stream(store))
    examples = list(loader)
    assert [each.inputs.ids.shape[1] for each in examples] == [8, 8, 16, 16, 16, 16]
    assert [each.inputs.segment_state.reset_mask is not None for each in examples] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert loader.shown(6) == {8: 4, 16: 8}
    assert loader.real_tokens(6) == sum(each.inputs.ids.numel() for each in examples)


def test_a_text_shorter_than_a_step_is_refused(store):
    with pytest.raises(ConfigError, match=naming("112 tokens", "129", "training.batch_size 16", "sequence_length 8")):
        Batches(stream(store), BatchSchedule(0, 16, 2), predict)
    assert len(Batches(stream(store), BatchSchedule(0, 13, 2), predict)) == 2, "112 tokens are 13 rows of 8"


# --- held out


def places(held, text):
    """The places of the text that each example predicts."""
    assert len(set(text)) == len(text), "tokens that stand once name their place"
    return [[text.index(token) for token in example.targets["next"].ids.tolist()] for example in held]


@pytest.mark.parametrize("context", [0, 5])
def test_held_out_rows_predict_every_position_once_however_they_are_cut(store, context):
    text, found = text_of(store, "none"), {}
    for length in (1, 4, 9, 50):
        held = HeldOutStream(stream(store), 78, Reading(3, length, context), predict)
        asked = places(held, text)
        assert [len(part) for part in asked] == [3 * length] * (26 // length) + [3 * (26 % length)] * (26 % length > 0)
        found[length] = sorted(itertools.chain(*asked))
        for example in held:
            goes_on = example.inputs.segment_state
            assert (goes_on is None) == (context > 0)
            assert example.inputs.context == min(context, int(example.inputs.sample[0]) * length)
    wanted = [start + column for start in (0, 37, 74) for column in range(1, 27)]
    assert all(each == wanted for each in found.values()), "rows begin at thirds of the text"


def test_a_segment_is_read_with_its_context(store):
    text = text_of(store, "none")
    segments = list(HeldOutStream(stream(store), 40, Reading(2, 4, 6), predict))
    assert segments[0].inputs.ids.tolist() == [text[:4], text[55:59]]
    assert segments[1].inputs.ids.tolist() == [text[:8], text[55:63]], "rows do not look beyond their beginning"
    assert segments[3].inputs.ids.tolist() == [text[6:16], text[61:71]]
    assert segments[3].targets["next"].where.tolist() == [6, 7, 8, 9, 16, 17, 18, 19]


def test_more_held_out_text_goes_on_where_less_ended(store):
    text = text_of(store, "none")
    few, many = (places(HeldOutStream(stream(store), n, Reading(3, 4), predict), text) for n in (24, 60))
    assert many[: len(few)] == few
    assert len(list(itertools.chain(*many))) == 60
    beyond = HeldOutStream(stream(store), 10**6, Reading(3, 4), predict)
    assert sorted(itertools.chain(*places(beyond, text))) == list(range(1, 112)), "all of the text"


def test_too_many_held_out_rows_are_refused(store):
    with pytest.raises(ConfigError, match=naming("111", "evaluation.rows 112")):
        HeldOutStream(stream(store), 1000, Reading(112, 4), predict)
    with pytest.raises(ConfigError, match=naming("16", "evaluation.rows 17", "evaluation.sequences")):
        HeldOutStream(stream(store), 16, Reading(17, 4), predict)


def test_held_out_rows_do_not_depend_on_micro_batches(tiny):
    form = {"format.kind": "stream", "format.frame": "document_ends", "objectives.mlm": None,
            "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"}  # fmt: skip
    whole, parts = (
        tiny.but(**form, **{"training.micro_batch_size": micro}).data_module(0).heldout for micro in (None, 1)
    )
    assert len(whole) == len(parts) > 1
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.inputs.ids, other.inputs.ids)
        assert torch.equal(one.targets["next"].ids, other.targets["next"].ids)


# --- shuffled sentences


def test_shuffled_sentences_are_whole_and_each_a_document(tiny):
    store = open_store(tiny.data, "train")
    mixed = shuffled(store)
    assert len(mixed.ids) == len(store.ids)
    ours, theirs = (
        [tuple(each.ids[a:b].tolist()) for a, b in itertools.pairwise(each.sentences)] for each in (mixed, store)
    )
    assert sorted(ours) == sorted(theirs)
    assert ours != theirs
    follow = set(itertools.pairwise(theirs))
    assert sum(pair in follow for pair in itertools.pairwise(ours)) < 0.05 * len(ours), "few neighbours stay"
    assert mixed.document_starts.tolist() == mixed.sentences.tolist()
    assert shuffled(store).ids.tolist() == mixed.ids.tolist()
    ends = StreamFormat(frame="document_ends", sentence_order="shuffled", sequence_length=16)
    assert ends.arrange(store).tokens == len(store.ids) + len(ours)
    assert ends.heldout().sentence_order == "shuffled"
    for each in (ends.arrange(store), stream(store)):
        again = pickle.loads(pickle.dumps(each))
        assert torch.equal(again.batch(np.arange(3)).ids, each.batch(np.arange(3)).ids), "as a worker gets it"


# --- reversed text


@pytest.mark.parametrize("frame", FRAMES)
def test_a_text_read_backward_is_the_text_reversed(store, frame):
    there = stream(store, frame)
    back = StreamFormat(frame=frame, sequence_length=LENGTH, sentence_order="backward").arrange(store)
    assert back.tokens == there.tokens
    text = [list(part) for part in np.split(store.ids, store.document_starts[1:-1])]
    mirrored = [list(part) for part in np.split(back.store.ids, back.store.document_starts[1:-1])]
    assert mirrored == [part[::-1] for part in text[::-1]]
