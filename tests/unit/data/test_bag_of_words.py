"""The word-count baseline of pairs: what it counts, what it can tell, and what it is kept under."""

import numpy as np
import pytest

from lightning_modules.data import InputFormat, TokenStore, Vocabulary
from lightning_modules.data.baselines import bag_of_words
from lightning_modules.data.baselines.bag_of_words import Baseline, Counted, baseline, cached_baseline

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
    form = InputFormat(kind="segment_pairs", negatives=negatives, sequence_length=32, short_fraction=0.0)
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


def test_topics_give_random_negatives_away_and_swapped_ones_not(folders):
    random = baseline(*(counted(make_pairs(folder, "random", n)) for n, folder in enumerate(folders)))
    assert random.bow > 0.9 - 1 / TOPICS / 2  # of the negatives, one in eight is of the same topic
    swapped = baseline(*(counted(make_pairs(folder, "swapped", n)) for n, folder in enumerate(folders)))
    assert abs(swapped.bow - 0.5) < 0.08
    for found in (random, swapped):
        assert 0.5 <= found.majority < 0.56


def test_majority_is_the_share_of_the_more_frequent_label_and_all_there_is_without_training_pairs(folders):
    train, heldout = (counted(make_pairs(folder, "random", 0)) for folder in folders)
    few = Counted(train.a[:4], train.b[:4], np.array([0, 0, 1, 1]))
    for labels, majority in (([0, 0, 0, 1], 0.75), ([1, 1, 1, 0], 0.75), ([1, 1, 1, 1], 1.0)):
        asked = Counted(heldout.a[:4], heldout.b[:4], np.array(labels))
        assert baseline(few, asked) == Baseline(majority, majority, majority)
        assert baseline(train, asked).majority == majority


def test_the_cache_answers_for_the_same_pairs_only(folders, monkeypatch):
    train, heldout = make_pairs(folders[0], "random", 0), make_pairs(folders[1], "random", 1)
    found = cached_baseline(train, heldout, np.arange(40))
    assert cached_baseline(train, heldout, np.arange(40, 80)) != found
    assert len(list(folders[0].glob("pair-baseline-*.json"))) == 2
    monkeypatch.setattr(bag_of_words, "baseline", lambda *_: pytest.fail("was computed again"))
    assert cached_baseline(train, heldout, np.arange(40)) == found


def test_at_most_so_many_pairs_are_learned_from(folders, monkeypatch):
    monkeypatch.setattr(bag_of_words, "MOST_PAIRS", 30)
    learned = []
    monkeypatch.setattr(bag_of_words, "baseline", lambda train, _: learned.append(train) or Baseline(0.5, 0.5, 0.5))
    cached_baseline(make_pairs(folders[0], "random", 0), make_pairs(folders[1], "random", 1), np.arange(10))
    assert learned[0].labels.shape == (30,)
