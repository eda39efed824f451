"""Segment pairs: what follows what, where negatives come from, what is lost, and that nothing else is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.data import PairSequences
from lightning_modules.data.formats import pairs
from lightning_modules.draws import Draws
from tests.unit.data.pair_format import segment_pairs
from tests.unit.data.test_formats import make_store

LENGTHS = st.integers(8, 30)
DOCUMENTS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=9), min_size=2, max_size=6).filter(
    lambda documents: sum(sum(document) > 0 for document in documents) > 1
)
FORMATS = st.fixed_dictionaries(
    {
        "sequence_length": LENGTHS,
        "negatives": st.sampled_from(["random", "swapped"]),
        "short_fraction": st.sampled_from([0.0, 0.5, 1.0]),
        "short_documents": st.booleans(),
        "lone_negatives": st.booleans(),
    }
)


def whole(store, form):
    """Segments before anything is cut off: bounds, labels and sentences ``[6 pairs]``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_truncated", lambda bounds, room, noise: bounds)
        return pairs.arrange(store, form)


def text_of(store):
    """Documents as lists of (start, end) of the sentences that have tokens."""
    found = []
    for first, end in itertools.pairwise(store.documents.tolist()):
        edges = itertools.pairwise(store.sentences[first : end + 1].tolist())
        found.append([(a, b) for a, b in edges if b > a])
    return [document for document in found if document]


def draw(purpose, key):
    key = np.array([key])
    return Draws(0, key, key, np.zeros(1, dtype=np.int64), "pairs 0").uniform(purpose, 1)[0, 0]


def slowly(store, form):
    """The reference: sentence after sentence, as in the released code, before truncation."""
    documents, room, made, counted = text_of(store), form.sequence_length - 3, [], 0
    for number, document in enumerate(documents):
        i, first, chunk = 0, 0, []
        while i < len(document):
            chunk.append(document[i])
            key = counted + first
            whose, target = (number if form.short_documents else key), room
            if draw("short", whose) < form.short_fraction:
                target = 2 + int(draw("target", whose) * (room - 1))
            if i == len(document) - 1 or chunk[-1][1] - chunk[0][0] >= target:
                n = len(chunk)
                split = 1 + int(draw("split", key) * (n - 1))
                a, b = (chunk[0][0], chunk[split - 1][1]), (chunk[split - 1][1], chunk[-1][1])
                negative = n == 1 or draw("negative", key) < 0.5
                if negative and (form.negatives == "random" or n == 1):
                    other = int(draw("document", key) * (len(documents) - 1))
                    other = documents[other + (other >= number)]
                    start = int(draw("sentence", key) * len(other))
                    end = start
                    while end < len(other) - 1 and other[end][1] - other[start][0] < target - (a[1] - a[0]):
                        end += 1
                    b = (other[start][0], other[end][1])
                elif negative:
                    a, b = b, a
                if n > 1 or form.negatives == "random" or form.lone_negatives:
                    made.append((*a, *b, int(negative), n))
                if negative and form.negatives == "random":
                    i -= n - split
                chunk, first = [], i + 1
            i += 1
        counted += len(document)
    return made


@pytest.mark.slow
@given(documents=DOCUMENTS, knobs=FORMATS)
def test_pairs_are_those_of_the_released_construction(tmp_path_factory, documents, knobs):
    store, form = make_store(tmp_path_factory.mktemp("s"), documents), segment_pairs(**knobs)
    assert list(map(tuple, whole(store, form).T.tolist())) == slowly(store, form)


def cut_slowly(a, b, room):
    """One token at a time from the longer segment, of equals from the second."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@given(a=st.integers(1, 300), b=st.integers(1, 300), room=st.integers(5, 200), seed=st.integers(0, 99))
def test_the_longer_segment_loses_until_both_fit(a, b, room, seed):
    rows = np.arange(seed, seed + 3)
    bounds = np.repeat([[1000], [1000 + a], [5000], [5000 + b]], 3, axis=1)
    cut = pairs._truncated(bounds, room, Draws(0, rows, rows, rows))
    assert (cut[1] - cut[0]).tolist() == [cut_slowly(a, b, room)[0]] * 3
    assert (cut[3] - cut[2]).tolist() == [cut_slowly(a, b, room)[1]] * 3
    assert (cut[[0, 2]] >= bounds[[0, 2]]).all()
    assert (cut[[1, 3]] <= bounds[[1, 3]]).all()


def test_what_is_lost_at_the_front_is_binomial():
    rows = np.arange(20_000)
    bounds = np.repeat([[0], [47], [100], [131]], len(rows), axis=1)
    cut = pairs._truncated(bounds, 61, Draws(0, rows, rows, rows))
    for front, lost in ((cut[0], 47 - 31), (cut[2] - 100, 1)):
        assert front.mean() == pytest.approx(lost / 2, rel=0.03)
        assert front.var() == pytest.approx(lost / 4, rel=0.05)
        assert front.max() <= lost
    assert abs(np.corrcoef(cut[0], cut[2])[0, 1]) < 0.03


@pytest.mark.slow
@given(documents=DOCUMENTS, knobs=FORMATS)
def test_rows_show_the_two_segments_between_their_marks(tmp_path_factory, documents, knobs):
    store, form = make_store(tmp_path_factory.mktemp("s"), documents), segment_pairs(**knobs)
    sequences = form.arrange(store)
    assert isinstance(sequences, PairSequences)
    tokens = sequences.batch(np.arange(len(sequences)))
    assert tokens.ids.shape == (len(sequences), form.sequence_length)
    for n, (a, a_end, b, b_end, label, _) in enumerate(sequences.index.T.tolist()):
        first, second = store.ids[a:a_end].tolist(), store.ids[b:b_end].tolist()
        assert first
        assert second
        row = [2, *first, 3, *second, 3]
        pad = form.sequence_length - len(row)
        assert tokens.ids[n].tolist() == row + [0] * pad
        assert tokens.real[n].tolist() == [True] * len(row) + [False] * pad
        assert tokens.special[n].tolist() == [i < 5 for i in row] + [True] * pad
        assert tokens.tables["segment"][n].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * pad
        assert tokens.labels["sentence"][n].item() == label
    assert tokens.sample.tolist() == list(range(len(sequences)))
    if len(sequences):
        assert sequences.sizes.mean() / sequences.length == pytest.approx(tokens.real.float().mean().item())
        alone = sequences.batch(np.array([len(sequences) - 1]))
        assert alone.ids[0].tolist() == tokens.ids[-1].tolist()


def test_a_longer_text_leaves_the_pairs_of_its_beginning_as_they_were(tmp_path):
    lengths = [[3, 9, 2, 14, 5, 5, 1, 8]] * 6
    short, long = (make_store(tmp_path / str(n), lengths[:n]) for n in (3, 6))
    first, more = (whole(store, segment_pairs(negatives="swapped")) for store in (short, long))
    assert np.array_equal(more[:, : first.shape[1]], first)
