"""Matched pairs: nothing but the text tells a label, and every choice of negatives shows the same text."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.config import ConfigError
from lightning_modules.data import TokenStore
from lightning_modules.data.formats import pairs
from lightning_modules.data.formats.pairs import SPECIALS, Text
from tests.unit.data.pair_format import segment_pairs
from tests.unit.data.test_formats import make_store

LENGTHS = st.integers(8, 24)
# few lengths, so that many chunks find a partner
DOCUMENTS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=4, max_size=12)
KNOBS = st.fixed_dictionaries(
    {
        "sequence_length": LENGTHS,
        "short_fraction": st.sampled_from([0.0, 0.5]),
        "short_documents": st.booleans(),
        "duplicates": st.integers(1, 2),
    }
)


def of_corpora(store, *first_documents):
    return TokenStore(
        store.folder, store.ids, store.sentences, store.documents, store.vocabulary, store.words, first_documents
    )


def form(negatives, **knobs):
    return segment_pairs(negatives=negatives, pairing="matched", **knobs)


def arranged(store, negatives, **knobs):
    """The pairs, or none where no chunk has a partner."""
    try:
        return pairs.arrange(store, form(negatives, **knobs))
    except ConfigError:
        return np.zeros((6, 0), dtype=np.int64)


def places(store, starts):
    """Document and corpus of some tokens."""
    documents = np.unique(store.document_starts)
    found = np.searchsorted(documents, starts, side="right") - 1
    begins = store.document_starts[list(store.corpora)]
    return found, np.searchsorted(begins, starts, side="right")


def make_text(folder, documents=300, seed=0, corpora=()):
    """Documents of 5 to 60 sentences of 1 to 30 tokens."""
    draw = np.random.default_rng(seed)
    lengths = [draw.integers(1, 31, draw.integers(5, 61)).tolist() for _ in range(documents)]
    return of_corpora(make_store(folder, lengths), *corpora)


@pytest.fixture(scope="module")
def novel(tmp_path_factory):
    return make_text(tmp_path_factory.mktemp("novel"), corpora=(80,))


@given(documents=DOCUMENTS, knobs=KNOBS, corpus=st.integers(1, 3))
def test_segments_are_whole_sentences_that_fit(tmp_path_factory, documents, knobs, corpus):
    store = of_corpora(make_store(tmp_path_factory.mktemp("s"), documents), corpus)
    edges, ends = set(store.sentences.tolist()), set(store.document_starts.tolist())
    for negatives in ("random", "swapped"):
        for a, a_end, b, b_end, label, sentences in arranged(store, negatives, **knobs).T.tolist():
            assert {a, a_end, b, b_end} <= edges
            assert not {a, a_end, b, b_end} & ends  # no pair begins or ends a document
            assert a < a_end
            assert b < b_end
            assert a_end - a + b_end - b <= knobs["sequence_length"] - SPECIALS
            assert sentences >= 2
            assert label in (0, 1)


@given(documents=DOCUMENTS, knobs=KNOBS, corpus=st.integers(1, 3))
def test_every_choice_of_negatives_shows_the_same_segments(tmp_path_factory, documents, knobs, corpus):
    store = of_corpora(make_store(tmp_path_factory.mktemp("s"), documents), corpus)
    random, swapped = (arranged(store, negatives, **knobs) for negatives in ("random", "swapped"))
    shown = [Counter(map(tuple, np.concatenate([i[:2], i[2:4]], axis=1).T.tolist())) for i in (random, swapped)]
    assert shown[0] == shown[1]
    assert len(shown[0]) <= 2 * random.shape[1]
    x = np.where(swapped[4] == 1, swapped[[2, 3]], swapped[[0, 1]])
    assert np.array_equal(random[:2], x)  # the same chunk in the same row
    assert np.array_equal(random[5], swapped[5])


@given(documents=DOCUMENTS, knobs=KNOBS, corpus=st.integers(1, 3))
def test_partners_are_of_the_same_corpus_and_length_and_of_another_document(tmp_path_factory, documents, knobs, corpus):
    store = of_corpora(make_store(tmp_path_factory.mktemp("s"), documents), corpus)
    index = arranged(store, "random", **knobs)
    (a_document, a_corpus), (b_document, b_corpus) = (places(store, index[row]) for row in (0, 2))
    assert (a_corpus == b_corpus).all()
    negative = index[4] == 1
    assert (a_document[negative] != b_document[negative]).all()
    assert (index[2] == index[1])[~negative].all()
    lengths = [Counter(zip(*np.diff(index[:4], axis=0)[[0, 2]][:, negative].tolist(), strict=True))]
    partnered = arranged(store, "swapped", **knobs)
    x = np.where(partnered[4] == 1, partnered[[2, 3]], partnered[[0, 1]])
    y = np.where(partnered[4] == 1, partnered[[0, 1]], partnered[[2, 3]])
    own = np.stack([x[1] - x[0], y[1] - y[0]])[:, negative]
    assert lengths == [Counter(zip(*own.tolist(), strict=True))]  # as many tokens as the text that it replaces


@given(documents=DOCUMENTS, length=LENGTHS, corpus=st.integers(1, 3))
def test_no_token_is_shown_twice(tmp_path_factory, documents, length, corpus):
    store = of_corpora(make_store(tmp_path_factory.mktemp("s"), documents), corpus)
    index = arranged(store, "swapped", sequence_length=length)
    used = [token for a, a_end, b, b_end in index[:4].T.tolist() for token in (*range(a, a_end), *range(b, b_end))]
    assert len(used) == len(set(used))


def slowly(store, room):
    """The reference for full lengths: from the middle of a document outwards, all sentences that fit."""
    text, found = Text(store), []
    for first, end in itertools.pairwise(text.documents.tolist()):
        begin, stop = first + 1, end - 1
        if begin >= stop:
            continue
        key = np.array([begin])
        share = 0.25 + 0.5 * pairs._matched_noise(0, key).uniform("middle", 1)[0, 0]
        middle = begin + int(share * (stop - begin + 1))
        size = np.diff(text.sentences).tolist()
        for step, run in ((1, list(range(middle, stop))), (-1, list(range(middle - 1, begin - 1, -1)))):
            while run:
                count = 0
                while count < len(run) and sum(size[i] for i in run[: count + 1]) <= room:
                    count += 1
                if count >= 2:
                    chunk = sorted(run[:count])
                    found.append((chunk[0], chunk[-1] + 1))
                run = run[count if count >= 2 else 1 :]
    return sorted(found)


@given(documents=DOCUMENTS, length=LENGTHS)
def test_chunks_are_all_that_fits_from_the_middle_outwards(tmp_path_factory, documents, length):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    chunks = pairs.gathered(Text(store), form("swapped", sequence_length=length), 0)
    assert list(zip(chunks.first.tolist(), chunks.end.tolist(), strict=True)) == slowly(store, length - SPECIALS)
    assert ((chunks.first < chunks.middle) & (chunks.middle < chunks.end)).all()


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_labels_are_balanced_and_lengths_are_exchangeable_within_each(novel, negatives):
    index = pairs.arrange(novel, form(negatives, sequence_length=64))
    count = index.shape[1]
    assert index[4].mean() == pytest.approx(0.5, abs=4 * 0.71 / count**0.5)  # couples share their coin
    a, b = np.diff(index[:4], axis=0)[[0, 2]]
    sides = np.where(index[4] == 1, 1, -1)
    for difference in (np.sign(a - b), a - b, a**2 - b**2, abs(a - b) * (a - b)):
        for told in (difference[index[4] == 0], difference[index[4] == 1], difference * sides):
            assert abs(told.mean()) < 4 * told.std() / len(told) ** 0.5


def test_a_document_is_a_partner_as_often_as_it_is_long(tmp_path):
    draw = np.random.default_rng(2)
    sizes = [400, 400, 1600, 200, 800, 800, 1200, *[100] * 12]
    store = make_store(tmp_path, [draw.integers(1, 9, size).tolist() for size in sizes])
    index = pairs.arrange(store, form("random", sequence_length=32, duplicates=4))
    document, _ = places(store, index[2])
    share = np.bincount(document[index[4] == 1], minlength=len(sizes)) / (index[4] == 1).sum()
    tokens = np.diff(store.document_starts) / len(store.ids)
    assert share == pytest.approx(tokens, abs=0.02)


def test_held_out_pairs_are_matched_exactly(novel):
    for count in (512, 100, 10**9):
        swapped = pairs.asked(novel, form("swapped", sequence_length=64), count)
        _matched_in_order(swapped)
        random = pairs.asked(novel, form("random", sequence_length=64), count)
        _matched_by_partner(novel, random)
        for index in (swapped, random):
            assert 0.97 * min(count, 3000) <= index.shape[1] <= count
            assert index[4].mean() == 0.5


def _matched_in_order(index):
    """Each chunk in both orders, and for each of lengths (m, n) one of lengths (n, m)."""
    sides = [Counter(map(tuple, index[:4, index[4] == label].T.tolist())) for label in (0, 1)]
    assert sides[1] == Counter({(b, b_end, a, a_end): n for (a, a_end, b, b_end), n in sides[0].items()})
    assert all(a_end == b for _, a_end, b, _ in sides[0])
    for side in sides:
        lengths = Counter((a_end - a, b_end - b) for a, a_end, b, b_end in side.elements())
        assert lengths == Counter({(n, m): count for (m, n), count in lengths.items()})


def _matched_by_partner(store, index):
    """Each x with its own y and with that of its partner, and each y too; lengths are the same for both labels."""
    negative = index[4] == 1
    for rows in (slice(0, 2), slice(2, 4)):
        own, other = (Counter(map(tuple, index[rows, side].T.tolist())) for side in (~negative, negative))
        assert own == other
        assert set(own.values()) == {1}
    lengths = [
        Counter(map(tuple, np.diff(index[:4], axis=0)[[0, 2]][:, side].T.tolist())) for side in (~negative, negative)
    ]
    assert lengths[0] == lengths[1]
    (a_document, a_corpus), (b_document, b_corpus) = (places(store, index[row]) for row in (0, 2))
    assert (a_corpus == b_corpus).all()
    assert ((a_document != b_document) == negative).all()


def test_pairs_are_a_function_of_the_text_and_copies_differ(novel, tmp_path):
    for negatives in ("random", "swapped"):
        once, twice = (pairs.arrange(novel, form(negatives, duplicates=copies)) for copies in (1, 2))
        assert np.array_equal(twice[:, : once.shape[1]], once)
        assert not np.array_equal(twice[:, once.shape[1] :][:, : once.shape[1]], once)
        asked = [pairs.asked(novel, form(negatives), 300) for _ in range(2)]
        assert np.array_equal(*asked)


def test_short_pairs_are_short_and_of_two_sentences_or_more(tmp_path):
    store = make_store(tmp_path, [[1] * 3000] * 20)
    index = pairs.arrange(store, form("swapped", sequence_length=33, short_fraction=0.25))
    short = index[5] < 30
    assert short.mean() == pytest.approx(0.25 * 28 / 29, abs=0.03)
    assert index[5].min() == 2


def test_a_text_without_partners_is_refused(tmp_path):
    for name, documents, corpora in (("one", [[3, 4] * 20], ()), ("two", [[3, 4] * 20] * 2, (1,))):
        store = of_corpora(make_store(tmp_path / name, documents), *corpora)
        for negatives in ("random", "swapped"):
            with pytest.raises(ConfigError, match="of the same corpus"):
                form(negatives).arrange(store)
    nothing = make_store(tmp_path / "short", [[3], [4, 5]])
    assert len(form("random").arrange(nothing)) == 0
