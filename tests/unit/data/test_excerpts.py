"""Excerpts of pairs: which words are left, and that nothing else of a pair changes."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.data import Vocabulary
from lightning_modules.data.formats.pairs import FIRST_WORDS, truncation_control
from tests.unit.data.pair_format import segment_pairs
from tests.unit.data.test_formats import make_store
from tests.unit.data.test_pairs import DOCUMENTS


def words(ids, vocabulary):
    """The words of a segment as pieces; a segment may begin inside a word."""
    found = []
    for piece in ids.tolist():
        if vocabulary.begins_word[piece] or not found:
            found.append(())
        found[-1] += (piece,)
    return found


def segments(pairs):
    """The words of A and of B in every row."""
    tokens = pairs.batch(np.arange(len(pairs)))
    kept, segment = ~tokens.special, tokens.tables["segment"] == 1
    rows = zip(tokens.ids, kept & ~segment, kept & segment, strict=True)
    return [[words(ids[part].numpy(), pairs.store.vocabulary) for part in parts] for ids, *parts in rows]


@given(documents=DOCUMENTS, length=st.integers(8, 60), negatives=st.sampled_from(["random", "swapped"]))
def test_first_words_and_the_rest_are_the_whole(tmp_path_factory, documents, length, negatives):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    pairs = segment_pairs(sequence_length=length, negatives=negatives).arrange(store)
    whole, first, rest = (segments(truncation_control(pairs, part)) for part in ("all", "first", "rest"))
    for row, begun, left in zip(whole, first, rest, strict=True):
        for segment, start, end in zip(row, begun, left, strict=True):
            assert start == segment[:FIRST_WORDS]
            assert end == segment[FIRST_WORDS:]
    for part in ("first", "rest", "shuffled"):
        assert np.array_equal(truncation_control(pairs, part).index[4:], pairs.index[4:])


@given(documents=DOCUMENTS, length=st.integers(8, 60), negatives=st.sampled_from(["random", "swapped"]))
def test_shuffling_keeps_words_whole_and_in_their_segment(tmp_path_factory, documents, length, negatives):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    pairs = segment_pairs(sequence_length=length, negatives=negatives).arrange(store)
    number = np.arange(len(pairs))
    before, after = pairs.batch(number), truncation_control(pairs, "shuffled").batch(number)
    assert (before.ids[before.special] == after.ids[after.special]).all()
    assert (before.special == after.special).all()
    for row, shuffled in zip(segments(pairs), segments(truncation_control(pairs, "shuffled")), strict=True):
        for segment, other in zip(row, shuffled, strict=True):
            pieces = [Counter(piece for word in part for piece in word) for part in (segment, other)]
            assert pieces[0] == pieces[1]
            if store.vocabulary.begins_word[segment[0][0]]:  # else a cut piece may join the word before it
                assert Counter(segment) == Counter(other)


def test_the_order_is_new_and_the_same_each_time(tmp_path):
    store = make_store(tmp_path, [[7] * 40] * 3)
    pairs = segment_pairs(sequence_length=60).arrange(store)
    number = np.arange(len(pairs))
    once, twice = (truncation_control(pairs, "shuffled").batch(number).ids for _ in range(2))
    assert (once == twice).all()
    moved = (once != pairs.batch(number).ids).float().mean().item()
    assert moved > 0.6
    one = truncation_control(pairs, "shuffled").batch(number[3:4]).ids
    assert (one[0] == once[3]).all()


def test_words_are_found_by_marks_of_their_ends_too(tmp_path):
    """Ten words of one to three pieces, of which the last has the mark."""
    store = make_store(tmp_path, [[20, 20], [20, 20]])
    lengths = np.resize([1, 2, 3, 2], 40)
    last = np.cumsum(lengths) - 1
    last = last[last < len(store.ids)]
    pieces = ["x"] * store.vocabulary.size
    for place in last:
        pieces[store.ids[place]] = "x</w>"
    store = replace(store, vocabulary=Vocabulary.of(pieces, "letter_bpe"))
    pairs = segment_pairs(sequence_length=48, negatives="swapped").arrange(store)
    first = truncation_control(pairs, "first")
    for start, end, shown in zip(pairs.index[0], pairs.index[1], first.index[1], strict=True):
        ends = last[(last >= start) & (last < end)]
        assert shown == (ends[FIRST_WORDS - 1] + 1 if len(ends) >= FIRST_WORDS else end)
