"""Streams of which a part of each row goes on: windows and pairs against the loops of XLNet's released code."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import SegmentState
from lightning_modules.config import ConfigError
from lightning_modules.data import StreamFormat, TextFormat
from lightning_modules.data.order.batches import Batches, uncorrupted
from lightning_modules.data.order.sampler import BatchSchedule
from lightning_modules.draws import Draws
from tests.messages import naming
from tests.unit.data.test_blocks import FRAMES, text_of
from tests.unit.data.test_formats import make_store
from tests.unit.data.test_streams import DOCUMENTS

LENGTH, REUSE, ROWS = 24, 10, 4
CLS, SEP = 2, 3


def windows(store, frame="none", rest="text", **more):
    form = StreamFormat(frame=frame, sequence_length=LENGTH, reuse_length=REUSE, rest=rest, **more)
    return form.arrange(store)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path, DOCUMENTS * 2)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("both_ways", [False, True])
def test_what_goes_on_is_the_text_without_a_gap_and_the_rest_follows_it(store, frame, both_ways):
    text = text_of(store, frame)
    batches = Batches(windows(store, frame), BatchSchedule(0, ROWS, 30, both_ways=both_ways), uncorrupted)
    count, each = (len(text) - LENGTH) // REUSE + 1, ROWS // 2 if both_ways else ROWS
    steps = count // each
    assert steps >= 3
    before: list[list[int]] = []
    for step in range(2 * steps):
        tokens = batches.step(step)[0].inputs
        assert (tokens.segment_state.reset_mask is not None) == (step % steps == 0)
        for row in range(ROWS):
            number = row % each * steps + step % steps
            backward = both_ways and row >= each
            first = (count - 1 - number if backward else number) * REUSE
            assert tokens.ids[row].tolist() == text[first : first + LENGTH]
            handed = tokens.ids[row][tokens.cached[row]].tolist()
            assert handed == (tokens.ids[row, -REUSE:] if backward else tokens.ids[row, :REUSE]).tolist()
            if step % steps:
                joined = handed + before[row] if backward else before[row] + handed
                at = first + LENGTH - REUSE if backward else first - REUSE
                assert joined == text[at : at + 2 * REUSE], "no gap and no overlap"
        before = [tokens.ids[row][tokens.cached[row]].tolist() for row in range(ROWS)]


def slowly_paired(text, ends, number, first, name):
    """``_split_a_and_b`` of the released ``data_utils.py`` in its own words, with our draws; ``ends`` of sentences."""
    room, begin = LENGTH - REUSE - 3, first + REUSE
    draws = Draws(0, *(np.array([each]) for each in (number, number, 0)), name)
    coin, where, place = draws.uniform("pair", 3)[0].tolist()
    cuts, end = [], begin + 1
    while not (end in ends and end - begin >= room):
        if end in ends:
            cuts.append(end)
        end += 1
    if cuts and coin < 0.5:
        a_end = cuts[int(where * len(cuts))]
        b_begin, b_end, label = a_end, end, 0
    else:
        a_end = cuts[int(where * len(cuts))] if cuts else end
        least = max(1, room - (a_end - begin))
        b_begin = int(place * (len(text) - least + 1))
        b_end, label = b_begin + least, 1
        while b_begin > 0 and b_begin not in ends:
            b_begin -= 1
        while b_end not in ends:
            b_end += 1
    while a_end - begin + b_end - b_begin > room:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    a, b = text[begin:a_end], text[b_begin:b_end]
    row = text[first : first + REUSE] + a + [SEP] + b + [SEP, CLS]
    return row, [0] * (REUSE + len(a) + 1) + [1] * (len(b) + 1) + [2], label


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("backward", [False, True])
def test_pairs_are_those_of_the_released_code(store, frame, backward):
    text, found = text_of(store, frame), windows(store, frame, "pair")
    ends, place, documents = set(), 0, set(store.document_starts.tolist())
    for end in store.sentences[1:].tolist():
        place = end + (sum(start <= end for start in documents if start) if frame == "document_ends" else 0)
        ends.add(place)
    assert place == len(text) == found.tokens
    numbers = np.arange(len(found))
    going = SegmentState(backward=torch.full((len(found),), backward) if backward else None)
    tokens, labels = found.continued(numbers, going), []
    for number in numbers.tolist():
        first = number * REUSE
        if backward:
            turned = text[::-1], {len(text) - end for end in ends} - {0} | {len(text)}
            row, segment, label = slowly_paired(*turned, number, len(text) - first - LENGTH, "reuse back")
            row, segment = row[::-1], segment[::-1]
        else:
            row, segment, label = slowly_paired(text, ends, number, first, "reuse")
        assert tokens.ids[number].tolist() == row
        assert tokens.tables["segment"][number].tolist() == segment
        assert tokens.labels["sentence"][number] == label
        labels.append(label)
    assert set(labels) == {0, 1}
    assert tokens.cls.tolist() == [0 if backward else LENGTH - 1] * len(labels)
    assert tokens.special.eq((tokens.ids == SEP) | (tokens.ids == CLS)).all()
    assert tokens.with_cls_last() is tokens


def test_pairs_are_the_same_for_all_seeds_and_passes(store):
    found = windows(store, rest="pair")
    one, other = (Batches(found, BatchSchedule(seed, ROWS, 20), uncorrupted) for seed in (0, 1))
    steps = len(found) // ROWS
    assert torch.equal(one.step(1)[0].inputs.ids, other.step(1 + steps)[0].inputs.ids)


def test_a_text_that_is_too_short_is_refused_with_what_it_needs(store):
    held = len(store.ids)
    most = (held - LENGTH) // REUSE + 1
    assert len(Batches(windows(store), BatchSchedule(0, most, 1), uncorrupted).step(0)[0].inputs.ids) == most
    with pytest.raises(ConfigError, match=naming(str(held), str(most * REUSE + LENGTH), "training.batch_size")):
        Batches(windows(store), BatchSchedule(0, most + 1, 1), uncorrupted)
    assert len(StreamFormat(frame="none", sequence_length=4096, reuse_length=8).arrange(store)) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reuse_length": 24}, ("reuse_length 24", "0 of 24")),
        ({"reuse_length": 20, "rest": "pair"}, ("reuse_length 20", "4 of 24", "needs 5")),
        ({"reuse_length": 16, "first_share": 0.5, "first_length": 16}, ("reuse_length 16", "0 of 16")),
        ({"reuse_length": None, "rest": "pair"}, ("rest pair", "reuse_length")),
    ],
)
def test_what_leaves_no_rest_is_refused(changes, words):
    with pytest.raises((ConfigError, ValueError), match=naming(*words)):
        StreamFormat(frame="none", sequence_length=LENGTH).but(**changes)


def test_held_out_text_and_other_formats_know_nothing_of_it():
    form = StreamFormat(frame="none", sequence_length=LENGTH, reuse_length=REUSE, rest="pair")
    plain = StreamFormat(frame="none", sequence_length=LENGTH)
    assert form.heldout() == plain.heldout()
    assert form.labels == {"sentence"}
    assert plain.labels == set()
    rows, same = TextFormat(sequence_length=LENGTH), TextFormat(sequence_length=LENGTH, reuse_length=REUSE)
    assert same.essence() == rows.essence()
