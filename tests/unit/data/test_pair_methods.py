"""Simple methods on pairs: what they see, what gives a label away, and what their scores are kept under."""

import numpy as np
import pytest

from lightning_modules.data import SegmentPairFormat, TokenStore, Vocabulary
from lightning_modules.data.baselines import bag_of_words, pair_edges
from lightning_modules.data.baselines.bag_of_words import Counted
from lightning_modules.data.baselines.pair_methods import METHODS, Described, scores
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.text.tokenizer import SPECIALS
from tests.unit.data import byte_level
from tests.unit.data.test_formats import make_store

pytestmark = pytest.mark.slow

SIZE, TOPICS = 85, 8


def make_pairs(folder, negatives, seed, documents=80):
    """Pairs of a text whose documents each keep to ten of eighty words, in no order at all."""
    draw = np.random.default_rng(seed)
    sentences, ids = [], []
    for number in range(documents):
        sentences.append(draw.integers(3, 9, 20))
        ids.append(5 + number % TOPICS * 10 + draw.integers(0, 10, sentences[-1].sum()))
    ids, edges = np.concatenate(ids).astype(np.uint16), np.concatenate([[0], np.cumsum(np.concatenate(sentences))])
    vocabulary = Vocabulary(tuple(map(str, range(SIZE))), np.ones(SIZE, dtype=bool))
    store = TokenStore(folder, ids, edges, np.arange(0, 20 * documents + 1, 20), vocabulary, len(ids))
    form = SegmentPairFormat(negatives=negatives, sequence_length=32, short_fraction=0.0)
    return form.arrange(store).of_several_sentences()


@pytest.fixture
def folders(tmp_path):
    made = tmp_path / "train", tmp_path / "heldout"
    for folder in made:
        folder.mkdir()
    return made


def counted(pairs):
    return Counted.of(pairs, np.arange(len(pairs)))


def test_words_are_counted_in_each_segment(folders, monkeypatch):
    monkeypatch.setattr(bag_of_words, "_AT_ONCE", 7)
    pairs = make_pairs(folders[0], "random", 0)
    found = counted(pairs)
    a, b = found.a.toarray(), found.b.toarray()
    for n, (start, end, other, last, label, _) in enumerate(pairs.index.T.tolist()):
        assert a[n].tolist() == np.bincount(pairs.store.ids[start:end], minlength=SIZE).tolist()
        assert b[n].tolist() == np.bincount(pairs.store.ids[other:last], minlength=SIZE).tolist()
        assert found.labels[n] == label
    some = Counted.of(pairs, np.array([5, 2]))
    assert some.a.toarray().tolist() == a[[5, 2]].tolist()
    assert some.labels.tolist() == found.labels[[5, 2]].tolist()


def described(pairs):
    return Described.of(pairs, np.arange(len(pairs)))


def test_topics_give_random_negatives_away_and_swapped_ones_not(folders):
    random = scores(*(described(make_pairs(folder, "random", n)) for n, folder in enumerate(folders)))
    assert random["bow"].accuracy > 0.9 - 1 / TOPICS / 2  # of the negatives, one in eight is of the same topic
    assert random["bow"].auc > 0.93
    swapped = scores(*(described(make_pairs(folder, "swapped", n)) for n, folder in enumerate(folders)))
    assert abs(swapped["bow"].accuracy - 0.5) < 0.08
    for found in (random, swapped):
        assert 0.5 <= found["majority"].accuracy < 0.56
        assert found["majority"].auc == 0.5


def drifting(folder, seed):
    """Swapped pairs of a text that repeats each word within a few sentences."""
    pairs = make_pairs(folder, "swapped", seed, documents=200)
    draw, store = np.random.default_rng(seed), pairs.store
    place = np.arange(len(store.ids))
    topic = 5 + (place // 8 + draw.integers(0, 3, len(place))) % 80
    ids = np.where(draw.random(len(place)) < 0.5, topic, 5 + draw.integers(0, 80, len(place))).astype(np.uint16)
    store = TokenStore(folder, ids, store.sentences, store.documents, store.vocabulary, len(ids))
    return described(PairSequences(store, pairs.index, pairs.length))


def test_words_repeated_across_the_boundary_tell_the_order_and_counts_do_not(folders):
    found = scores(*(drifting(folder, n) for n, folder in enumerate(folders)))
    assert found["boundary"].auc > 0.7
    assert found["together"].auc > 0.7
    for blind in ("bow", "overlap"):
        assert found[blind].auc < 0.5 + 4 * found[blind].auc_error


def test_words_across_the_boundary_are_those_next_to_it_and_at_the_far_ends(tmp_path):
    store = make_store(tmp_path, [[30, 30]])
    ids = np.arange(60, dtype=np.uint16) % 40 + 5
    ids[29], ids[30], ids[0], ids[59] = 50, 50, 51, 51
    store = TokenStore(tmp_path, ids, store.sentences, store.documents, store.vocabulary, len(ids))
    across = counted(PairSequences(store, np.array([[0], [30], [30], [60], [0], [2]]), 64)).across
    near, far = across[0].toarray()[0], across[1].toarray()[0]
    assert np.flatnonzero(near).tolist() == [50]
    assert np.flatnonzero(far).tolist() == [51]


def relabelled(pairs, labels):
    index = pairs.index.copy()
    index[4] = labels
    return PairSequences(pairs.store, index, pairs.length)


PLANTED = {  # method -> what of the bounds gives the label away
    "lengths": lambda pairs: np.diff(pairs.index[:2], axis=0)[0] > np.diff(pairs.index[2:4], axis=0)[0],
    "edges": lambda pairs: ~np.isin(pairs.index[0], pairs.store.sentences),  # A begins in mid-sentence
    "starts": lambda pairs: np.isin(pairs.index[0], pairs.store.document_starts),
}


@pytest.mark.parametrize("method", PLANTED)
def test_what_is_planted_is_found_by_its_method_and_not_by_words(folders, method):
    planted = []
    for n, folder in enumerate(folders):
        pairs = make_pairs(folder, "random", n, documents=200)
        told = PLANTED[method](pairs)
        assert 0.1 < told.mean() < 0.9
        draw = np.random.default_rng(n).random((2, len(told)))
        planted.append(described(relabelled(pairs, np.where(draw[0] < 0.7, told, draw[1] < 0.5))))
    found = scores(*planted)
    for able in (method, "edges", "together"):
        assert found[able].auc > 0.5 + 5 * found[able].auc_error
    assert found["overlap"].auc < 0.5 + 3 * found["overlap"].auc_error
    assert found["corpora"].auc == 0.5


def test_corpora_tell_partners_from_elsewhere(folders):
    def of_two(folder, seed):
        pairs = make_pairs(folder, "random", seed)
        store = pairs.store
        halves = TokenStore(folder, store.ids, store.sentences, store.documents, store.vocabulary, 0, (40,))
        return described(PairSequences(halves, pairs.index, pairs.length))

    found = scores(*(of_two(folder, n) for n, folder in enumerate(folders)))
    assert found["corpora"].accuracy == pytest.approx(0.75, abs=0.05)  # half of the negatives are of the other corpus
    assert found["starts"].accuracy < 0.6


def test_edges_are_those_of_the_text(tmp_path):
    store = make_store(tmp_path, [[4, 3, 5], [2, 6]])
    index = np.array([[0, 4, 4, 7, 0, 2], [1, 7, 12, 16, 1, 2]]).T
    pairs = PairSequences(store, index, 24)
    edges = pair_edges.edges(pairs)
    assert edges[:, :4].tolist() == [[1, 1, 1, 1], [0, 1, 1, 0]]
    assert pair_edges.starts(pairs).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert pair_edges.lengths(pairs)[:, :4].tolist() == [[4, 3, 7, 1], [6, 4, 10, 2]]
    classes = edges[:, 4:].reshape(2, 4, -1).argmax(-1)
    pieces = store.ids[np.array([[0, 3, 4, 6], [1, 6, 12, 15]])]
    inside = ~store.vocabulary.begins_word[pieces]
    assert ((classes == 0) == inside).all()
    assert (classes[~inside] == 2).all()  # the pieces of this store are numbers


INSIDE, CAPITAL, DIGIT, END, QUOTE, SIGN, WORD = range(7)


def classes_of(folder, vocabulary, ids, bounds):
    """Classes of the first and last piece of A, then of B."""
    store = TokenStore(folder, np.array(ids), np.array([0, len(ids)]), np.array([0, 1]), vocabulary, len(ids))
    pairs = PairSequences(store, np.array([[*bounds, 0, 2]]).T, len(ids) + 3)
    return pair_edges.edges(pairs)[0, 4:].reshape(4, -1).argmax(-1).tolist()


@pytest.mark.parametrize("size", byte_level.SIZES)
@pytest.mark.parametrize("language", byte_level.LOWER)
def test_no_piece_of_a_lower_case_word_is_a_capital_a_digit_or_a_sign(tmp_path, language, size):
    text = byte_level.LOWER[language]
    encoder = byte_level.encoder(tmp_path, text, size)
    for word in text.split():
        ids = encoder([word])[0].tolist()
        for end in range(1, len(ids) + 1):  # the segments are all beginnings of the word, and the rest of it
            first, last, *rest = classes_of(tmp_path, encoder.vocabulary, ids, (0, end, end, len(ids)))
            assert first == WORD
            assert last == (WORD if end == 1 else INSIDE)
            assert rest == ([INSIDE] * 2 if end < len(ids) else [7, 7])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" É", CAPITAL),
        (" Ελ", CAPITAL),
        (" é", WORD),
        (" ש", WORD),
        (" の", WORD),
        ("é", INSIDE),
        (" «", QUOTE),
        ("”", QUOTE),
        ("…", END),
        (" ٣", DIGIT),
        ("、", SIGN),
        (" ", WORD),
    ],
)
def test_a_byte_level_piece_is_of_the_class_of_its_first_letter(tmp_path, text, number):
    vocabulary = Vocabulary.of([*SPECIALS, byte_level.spelt(text)], "byte_bpe")
    assert classes_of(tmp_path, vocabulary, [5, 5], (0, 1, 1, 2)) == [number] * 4


def test_pairs_that_share_a_segment_are_one_cluster(tmp_path):
    store = make_store(tmp_path, [[2] * 20])
    starts = np.array([[0, 2], [4, 6], [0, 6], [8, 10], [2, 0], [10, 12], [14, 16]]).T
    index = np.stack([starts[0], starts[0] + 2, starts[1], starts[1] + 2, *np.zeros((2, 7), np.int64)])
    found = pair_edges.clusters(PairSequences(store, index, 16)).tolist()
    assert found[0] == found[1] == found[2] == found[4]
    assert found[3] == found[5]
    assert len(set(found)) == 3


def test_majority_is_the_share_of_the_more_frequent_label_and_all_there_is_without_training_pairs(folders):
    train, heldout = (make_pairs(folder, "random", 0) for folder in folders)
    few = Described.of(relabelled(train, np.arange(len(train)) % 4 > 1), np.arange(4))
    for labels, majority in (([0, 0, 0, 1], 0.75), ([1, 1, 1, 0], 0.75), ([1, 1, 1, 1], 1.0)):
        asked = Described.of(relabelled(heldout, np.resize(labels, len(heldout))), np.arange(4))
        found = scores(few, asked)
        assert set(found) == set(METHODS)
        assert {score.accuracy for score in found.values()} == {majority}
        assert scores(described(train), asked)["majority"].accuracy == majority
