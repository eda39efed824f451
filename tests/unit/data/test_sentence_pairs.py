"""Sentence pairs: two natural sentences, contiguous or of different documents, whatever the construction."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.config import ConfigError
from lightning_modules.data import SegmentPairFormat, SentencePairFormat
from lightning_modules.data.formats import FORMATS, pairs
from tests.unit.data.test_formats import make_store
from tests.unit.data.test_pairs import DOCUMENTS, LENGTHS, draw, text_of, whole

NEGATIVES = st.sampled_from(["random", "swapped"])


def sentence_pairs(**knobs):
    return SentencePairFormat(**{"sequence_length": 16} | knobs).resolved()


def slowly(store, form):
    """The reference: sentence after sentence."""
    documents, made, counted = text_of(store), [], 0
    for number, document in enumerate(documents):
        i = 0
        while i < len(document):
            key, alone = counted + i, i == len(document) - 1
            negative = alone or draw("negative", key) < 0.5
            a, b = document[i], document[i] if alone else document[i + 1]
            if negative and form.negatives == "random":
                other = int(draw("document", key) * (len(documents) - 1))
                other = documents[other + (other >= number)]
                b = other[int(draw("sentence", key) * len(other))]
                i += 1
            else:
                a, b = (b, a) if negative else (a, b)
                i += 2
            if not alone or form.negatives == "random":
                made.append((*a, *b, int(negative), 1 if alone else 2))
        counted += len(document)
    return made


@given(documents=DOCUMENTS, length=LENGTHS, negatives=NEGATIVES)
def test_they_are_those_of_the_reference(tmp_path_factory, documents, length, negatives):
    store, form = (
        make_store(tmp_path_factory.mktemp("s"), documents),
        sentence_pairs(sequence_length=length, negatives=negatives),
    )
    assert list(map(tuple, whole(store, form).T.tolist())) == slowly(store, form)


@given(
    documents=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=4, max_size=12),
    length=LENGTHS,
    negatives=NEGATIVES,
)
def test_matched_ones_are_two_sentences_as_well(tmp_path_factory, documents, length, negatives):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    try:
        made = pairs.arrange(store, sentence_pairs(sequence_length=length, negatives=negatives, pairing="matched"))
    except ConfigError:
        return
    sentences = set(itertools.pairwise(np.unique(store.sentences).tolist()))
    for a, a_end, b, b_end, label, count in made.T.tolist():
        assert {(a, a_end), (b, b_end)} <= sentences
        assert count == 2
        if not label:
            assert b == a_end


def test_both_labels_have_their_half_and_rows_are_short(tmp_path):
    lengths = np.random.default_rng(0)
    store = make_store(tmp_path, [lengths.integers(1, 31, lengths.integers(5, 61)).tolist() for _ in range(400)])
    two, segments = (
        FORMATS[kind](sequence_length=128, short_fraction=0.0).arrange(store)
        for kind in ("sentence_pairs", "segment_pairs")
    )
    several = two.of_several_sentences()
    assert several.index[4].mean() == pytest.approx(0.5, abs=0.02)
    assert two.sizes.mean() / two.length == pytest.approx((2 * 15.5 + pairs.SPECIALS) / 128, rel=0.03)
    assert segments.sizes.mean() / segments.length > 0.9


def test_a_share_of_short_ones_means_nothing_to_them():
    assert sentence_pairs(short_fraction=0.3, short_documents=True).essence() == sentence_pairs().essence()
    assert sentence_pairs().essence() != SegmentPairFormat(sequence_length=16).essence()
