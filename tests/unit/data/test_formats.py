"""Full sentences: every token once and in order, whole sentences where they fit, separators between documents."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.data import SegmentPairFormat, SentencePairFormat, TextFormat, TokenStore, Vocabulary

DOCUMENTS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=8).filter(
    lambda documents: sum(map(sum, documents)) > 0
)
MODES = st.sampled_from(["sentences", "documents", "none"])


def make_store(folder, documents):
    """A store whose tokens are numbered 5, 6, ... so that each can be recognised."""
    lengths = [n for document in documents for n in document]
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    size = int(sentences[-1]) + 5
    starts = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    vocabulary = Vocabulary(tuple(map(str, range(size))), np.arange(size) % 3 != 0)
    return TokenStore(folder, np.arange(5, size, dtype=np.uint16), sentences, starts, vocabulary, size)


def packed_slowly(store, room, within_documents=False):
    """The reference: one sentence after the other."""
    starts = set(store.document_starts[1:-1].tolist())
    units = []
    for begin, end in zip(store.sentences[:-1].tolist(), store.sentences[1:].tolist(), strict=True):
        units += [(b, min(b + room, end)) for b in range(begin, end, room)]
    rows = []
    for begin, end in units:
        inside = sum(rows[-1][0] < s <= begin for s in starts) if rows else 0
        if rows and end - rows[-1][0] + inside <= room and not (within_documents and inside):
            rows[-1] = (rows[-1][0], end)
        else:
            rows.append((begin, end))
    return rows


@given(documents=DOCUMENTS, length=st.integers(8, 40), mode=MODES, short=st.sampled_from([0.0, 0.0, 0.3, 1.0]))
def test_every_token_stands_once_in_order_between_separators(tmp_path_factory, documents, length, mode, short):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    sequences = TextFormat(sequence_length=length, break_mode=mode, short_sequences=short).arrange(store)
    tokens = sequences.batch(np.arange(len(sequences)))
    ids, real, special = tokens.ids.numpy(), tokens.real.numpy(), tokens.special.numpy()
    assert ids.shape == (len(sequences), length)
    assert np.concatenate([row[~s] for row, s in zip(ids, special, strict=True)]).tolist() == store.ids.tolist()
    starts = set((store.document_starts[1:-1] + 5).tolist())
    for row, there, marked in zip(ids, real, special, strict=True):
        size = there.sum()
        assert there[:size].all()
        assert row[0] == 2
        assert row[size - 1] == 3
        assert (row[size:] == 0).all()
        assert np.isin(row[marked], [0, 2, 3]).all()
        text = [i for i in row[1 : size - 1].tolist() if i > 4]
        assert text
        after = [int(b) for a, b in itertools.pairwise(row[1 : size - 1]) if a == 3 and b != 3]
        assert after == [i for i in text[1:] if i in starts]
    assert sequences.sizes.mean() / sequences.length == pytest.approx(real.mean())
    assert tokens.sample.tolist() == list(range(len(sequences)))
    assert not tokens.tables["segment"].any()


@given(
    documents=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=8),
    length=st.integers(8, 40),
    mode=st.sampled_from(["sentences", "documents"]),
)
def test_sentences_are_packed_greedily_and_long_ones_cut(tmp_path_factory, documents, length, mode):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    bounds = TextFormat(sequence_length=length, break_mode=mode).arrange(store).bounds.tolist()
    assert list(itertools.pairwise(bounds)) == packed_slowly(store, length - 2, mode == "documents")


def test_documents_are_held_out_in_blocks_as_pairs_are_so_that_losses_compare():
    forms = TextFormat(break_mode="none"), TextFormat(break_mode="documents"), SegmentPairFormat(), SentencePairFormat()
    measured = {form.heldout().resolved() for form in forms}
    assert measured == {TextFormat(break_mode="none").resolved()}
    assert TextFormat().heldout().break_mode == "sentences"
    assert TextFormat().heldout(blocks=True).resolved() in measured


@pytest.fixture
def novel(tmp_path):
    """Four hundred documents of 5 to 60 sentences of one to three tokens."""
    lengths = np.random.default_rng(0)
    return make_store(tmp_path, [lengths.integers(1, 4, lengths.integers(5, 61)).tolist() for _ in range(400)])


def sizes(sequences):
    """Tokens and separators of each sequence but the last."""
    return sequences.batch(np.arange(len(sequences) - 1)).real.sum(1).numpy() - 2


@pytest.mark.parametrize("mode", ["sentences", "none"])
def test_a_share_of_the_sequences_is_short_and_uniform_in_length(novel, mode):
    made = TextFormat(sequence_length=34, break_mode=mode, short_sequences=0.25).arrange(novel)
    short = sizes(made) < 28
    assert short.mean() == pytest.approx(0.25 * 26 / 31, abs=0.03)
    assert sizes(made)[short].mean() == pytest.approx((2 + 27) / 2, abs=1.2)
    assert (sizes(TextFormat(sequence_length=34, break_mode=mode).arrange(novel)) < 28).mean() < 0.01


@given(documents=DOCUMENTS, length=st.integers(8, 40), mode=st.sampled_from(["sentences", "documents"]))
def test_short_sequences_are_whole_sentences_too(tmp_path_factory, documents, length, mode):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    bounds = TextFormat(sequence_length=length, break_mode=mode, short_sequences=1.0).arrange(store).bounds
    pieces = [np.arange(a, b, length - 2) for a, b in itertools.pairwise(store.sentences.tolist())]
    assert set(bounds.tolist()) <= {*np.concatenate(pieces).tolist(), len(store.ids)}


def test_held_out_text_keeps_its_length():
    assert TextFormat(short_sequences=0.5).heldout() == TextFormat()
    pairs = SegmentPairFormat(short_sequences=0.5)
    assert pairs.essence() == SegmentPairFormat().essence()
