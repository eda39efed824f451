"""The made language: what each switch ties together, that its control ties nothing, that its entropy is as stated."""

import math
from itertools import pairwise

import numpy as np
import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError
from lightning_modules.data import Data, open_store, pins
from lightning_modules.data.corpora.made import PIECES, WORDS, Language
from lightning_modules.data.corpora.registry import corpus

EVERY = "order,agreement=3,joint,copies=36,topic,length=12"
NONE = "no-order,no-agreement=3,no-joint,no-copies,no-topic,length=12"
SWITCHED = ("order", "agreement=3", "joint", "copies=24", "topic")


def words(name, documents=1000):
    """The words of some documents by kind: kind -> ``[documents sentences places]``, each counted from 0."""
    language = Language.of(name)
    numbers = language.numbers(np.arange(documents))
    first = {kind: WORDS.index(own[0]) for kind, own in language.vocabulary.items()}
    kinds = np.array(language.kinds)
    return {kind: numbers[:, :, kinds == kind] - first[kind] for kind in first}


def entropy(word, key):
    """Nats of a word given another number, from counts, with the correction of Miller and Madow."""
    joint, given = (np.unique(one, return_counts=True)[1] for one in (word + 100 * key, key))
    plain = sum(sign * (n * np.log(n)).sum() for sign, n in ((-1, joint), (1, given))) / len(word)
    return float(plain + (len(joint) - len(given)) / (2 * len(word)))


def counted(language, contexts):
    """The entropy of counts for some contexts: the mean over places of the least given one or two words in sight.

    A copy depends on its mark and one other word, every other place on one word. The first half of a document is
    context alone. Fillers count as one word where they are context.
    """
    text = language.numbers(np.arange(2000))
    flat, length = text.reshape(len(text), -1), language.length
    fillers = [WORDS.index(word) for word in language.vocabulary["filler"]]
    merged = np.where(np.isin(flat, fillers), 99, flat)
    found = np.zeros((length, max(contexts) + 1))
    for place in range(length):
        ends = np.arange(flat.shape[1] // 2 + place, flat.shape[1], length)
        word = flat[:, ends].ravel()
        found[place, 0] = entropy(word, np.zeros_like(word))
        for back in range(1, max(contexts) + 1):
            mark = 100 * merged[:, ends - 1].ravel() * (language.kinds[place] == "copy")
            found[place, back] = entropy(word, merged[:, ends - back].ravel() + mark)
    least = np.minimum.accumulate(found, axis=1).mean(axis=0)
    return [float(least[context]) for context in contexts]


@pytest.mark.parametrize(
    "name", ["order,joint,length=5", "order=30,topic,length=5", "agreement=2,copies=18,length=6", "topic,length=3"]
)
def test_the_stated_entropy_is_that_of_counts(name):
    language = Language.of(f"{name},sentences=12")
    contexts = (0, 1, 2, 6, 18)
    assert counted(language, contexts) == pytest.approx([language.nats(context) for context in contexts], abs=0.02)


@pytest.mark.parametrize(
    ("name", "reach", "gain"),
    [
        ("order", 1, math.log(4)),
        ("agreement=3", 3, math.log(4)),
        ("joint", 1, math.log(8)),
        ("copies=24", 24, math.log(16) / 2),
    ],
)
def test_what_a_switch_saves_begins_where_its_source_is_in_sight(name, reach, gain):
    on = Language.of(f"{name},length=8")
    assert on.nats(reach - 1) == on.nats(0)
    assert on.nats(0) - on.nats(reach) == pytest.approx(gain / 8)
    assert on.nats(reach) == on.nats(10_000)


@pytest.mark.parametrize("name", SWITCHED)
def test_a_control_has_the_same_words_as_often_and_depends_on_nothing(name):
    off = f"no-{name.partition('=')[0]}" + ("=3" if name.startswith("agreement") else "")
    ours, theirs = words(name), words(off)
    assert Language.of(name).kinds == Language.of(off).kinds
    assert Language.of(off).nats(10_000) == Language.of(name).nats(0) == Language.of(off).nats(0)
    for kind in ours:
        a, b = (np.bincount(found[kind].ravel()) / found[kind].size for found in (ours, theirs))
        assert len(a) == len(b)
        assert np.allclose(a, 1 / len(a), rtol=0.15)
        assert np.allclose(a, b, rtol=0.2)


class TestDependencies:
    ours, control = words(EVERY, 300), words(NONE, 300)

    def test_a_sentence_begins_with_what_the_one_before_ended_with(self):
        assert (self.ours["given"][:, 1:] == self.ours["new"][:, :-1]).all()
        share = (self.control["given"][:, 1:] == self.control["new"][:, :-1]).mean()
        assert share == pytest.approx(1 / 4, abs=0.03)

    def test_neither_end_of_a_sentence_tells_the_other(self):
        told = entropy(self.ours["new"].ravel(), self.ours["given"].ravel())
        assert told == pytest.approx(math.log(4), abs=0.02)

    def test_verbs_agree(self):
        assert (self.ours["verb"] == self.ours["subject"] // 2).all()
        assert (self.control["verb"] == self.control["subject"] // 2).mean() == pytest.approx(1 / 4, abs=0.03)

    def test_two_words_determine_each_other(self):
        assert (self.ours["left"] == self.ours["right"]).all()
        assert (self.control["left"] == self.control["right"]).mean() == pytest.approx(1 / 8, abs=0.02)

    def test_a_word_behind_the_mark_again_is_the_one_at_the_distance(self):
        copy, again = self.ours["copy"][:, :, 0], self.ours["mark"][:, 3:, 0] == 1
        same = copy[:, 3:] == copy[:, :-3]
        assert same[again].all()
        assert same[~again].mean() == pytest.approx(1 / 16, abs=0.02)
        assert again.mean() == pytest.approx(0.5, abs=0.02)
        near = copy[:, 2:] == copy[:, :-2]
        assert near.mean() == pytest.approx(1 / 16, abs=0.02)
        other = self.control["copy"][:, :, 0]
        assert (other[:, 3:] == other[:, :-3])[again].mean() == pytest.approx(1 / 16, abs=0.02)

    def test_topical_words_of_a_document_are_of_its_topic(self):
        topics = self.ours["topical"] // 4
        assert (topics == topics[:, :1, :1]).all()
        assert set(topics.ravel()) == {0, 1, 2, 3}
        mixed = self.control["topical"] // 4
        assert (mixed == mixed[:, :1, :1]).mean() == pytest.approx(1 / 4, abs=0.03)


@pytest.mark.parametrize("name", ["agreement=2,joint,length=5", "agreement=1,no-joint,order,length=7"])
def test_neighbours_cost_what_counts_say(name):
    """Given all other words a word is told by the one it is tied to: both hidden, alone and together."""
    language, kinds = Language.of(name), Language.of(name).kinds
    numbers = language.numbers(np.arange(2000)).reshape(2000, -1)
    partner = {
        "new": 1,
        "given": -1,
        "subject": language.agreement,
        "verb": -language.agreement,
        "left": 1,
        "right": -1,
    }
    row, nothing = 2 * language.length, np.zeros(2000, dtype=np.int64)
    alone, together = [], []
    for place in range(row - 1):
        at = language.length * 4 + place  # in the midst of a document
        costs = []
        for one, other in ((at, at + 1), (at + 1, at)):
            tied = one + partner.get(kinds[one % language.length], len(numbers))
            seen = nothing if tied == other or tied > len(numbers) else numbers[:, tied]
            costs.append(entropy(numbers[:, one], seen))
        alone.append(sum(costs))
        both = entropy(numbers[:, at], nothing) + entropy(numbers[:, at + 1], numbers[:, at])
        ties = at + partner.get(kinds[at % language.length], len(numbers)) == at + 1
        together.append(both if ties else sum(costs))
    assert language.neighbours_nats(row, together=False) == pytest.approx(np.mean(alone), abs=0.03)
    assert language.neighbours_nats(row, together=True) == pytest.approx(np.mean(together), abs=0.03)
    with pytest.raises(ConfigError, match="copies"):
        Language.of("copies=8,length=8").neighbours_nats(8, together=True)


def test_texts_differ_in_nothing_but_their_switches():
    ours, control = words("order,topic,length=7", 20), words("order,no-topic,length=7", 20)
    assert all((ours[kind] == control[kind]).all() for kind in ours if kind != "topical")
    assert (ours["topical"] != control["topical"]).any()
    far = words("no-copies", 20), words("copies=32", 20)
    assert all((far[0][kind] == far[1][kind]).all() for kind in far[0] if kind != "copy")


def test_sizes_are_as_asked_and_splits_differ():
    name = "made:order,length=5,sentences=4,documents=48"
    train, heldout = (list(corpus(name).documents(split)) for split in ("train", "heldout"))
    assert (len(train), len(heldout)) == (48, 3)
    assert {len(document) for document in train + heldout} == {4}
    assert {sentence.count(" ") + 1 for document in train for sentence in document} == {5}
    assert train[:3] != heldout
    assert list(corpus(name).documents("train")) == train
    longer = list(corpus("made:order,length=5,sentences=4,documents=64").documents("train"))
    assert longer[:48] == train, "a larger text begins with the smaller one"


def test_every_word_is_one_piece_of_the_stated_vocabulary():
    data = Data(corpora=("made:order,topic,length=6,documents=200",)).but(**{"tokenizer.vocab_size": PIECES})
    store = open_store(data, "train")
    assert store.vocabulary.size == PIECES
    assert len(store.ids) == store.words == 200 * 16 * 6
    assert {store.vocabulary.pieces[i] for i in np.unique(store.ids)} == set(WORDS)
    assert [end - start for start, end in pairwise(store.sentences[:4].tolist())] == [6, 6, 6]
    with pytest.raises(ConfigError, match=f"at most {PIECES} pieces"):
        open_store(data.but(**{"tokenizer.vocab_size": PIECES + 1}), "train")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ordr", r"no switch 'ordr'\. Did you mean 'order'"),
        ("", r"there is no switch ''.*Allowed: order\[=<per cent>\], agreement=<words>.*length=<number>"),
        ("no-length=6", "there is no switch 'no-length'"),
        ("order,no-order", "'order' is named twice.*'no-order'"),
        ("length=6,order,length=6", "'length' is named twice"),
        ("joint=3", "'joint' takes no value. Leave '=3' out"),
        ("order=0", "'order=0' needs a whole number from 1 to 100"),
        ("no-copies=8", "'no-copies' takes no value"),
        ("copies", "'copies' needs a whole number.*copies=8"),
        ("copies=far", "'copies=far' needs a whole number"),
        ("agreement=0", "'agreement=0' needs a whole number from 1"),
        ("order,documents=0", "'documents=0' needs a whole number from 1"),
        ("copies=12", "copies=12 is no number of whole sentences of 8 words. The nearest is copies=16"),
        ("copies=128", "no word returns after 128 words in a document of 16 sentences of 8 words: set sentences=17"),
        ("agreement=8", "needs 9 words.* set length=9"),
        ("order,agreement=6", "what is named needs 9 words.* set length=9"),
        ("order,topic,length=4", "needs 5 words.*set length=5"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(name, said):
    with pytest.raises(ConfigError, match=said) as error:
        Data.read({"corpora": [f"made:{name}"]})
    assert f"made:{name}" in str(error.value)


PINNED = [name for name in pins.pinned() if name.startswith("made:")]


@pytest.mark.parametrize("name", PINNED)
def test_held_out_text_is_what_was_pinned(name):
    meter = pins.Meter()
    assert sum(len(document) for document in meter(corpus(name).documents("heldout"))) == meter.part.sentences
    assert meter.part == pins.pinned()[name]["heldout"]


def test_training_text_is_what_was_pinned():
    assert pins.measured(PINNED[0]) == pins.pinned()[PINNED[0]]


@pytest.mark.nightly
def test_the_texts_of_grids_are_pinned():
    """So that planning makes no text, and a changed recipe is noticed."""
    known = [grids.read(name) for name in grids.available()]
    variants = [knobs for grid in known for axis in grid.variants.values() for knobs in axis.values()]
    named = {name for knobs in variants for name in knobs.get("data.corpora", ()) if name.startswith("made:")}
    assert named
    assert named <= set(PINNED)
