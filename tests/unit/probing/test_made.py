"""Probes made from text: balanced, apart, the same every time, and nothing to be had from lengths or words."""

import re
from collections import Counter

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from lightning_modules.config import ConfigError
from lightning_modules.data.pins import fingerprints
from lightning_modules.data.settings import Data
from lightning_modules.probing.made import probe as made_probe
from lightning_modules.probing.made.probe import MADE
from tests.messages import naming

pytestmark = pytest.mark.slow  # examples are made anew for every probe in most tests
_SUBJECTS = ("the old man", "the children", "a small dog", "her two sisters", "this letter", "the captain")
_VERBS = ("is", "are", "was", "were", "has been", "have been")
_RESTS = ("near the {0} of the {1}", "with a {0} for the {1}", "in her {0} after that {1}", "beside a {0} without {1}",
          "where they {0} of the {1}")  # fmt: skip
_TAILS = (
    "and saw him again",
    "and saw them again",
    "and asked us twice",
    "where he was seen",
    "where they stood today",
)
_WORDS = [a + b + c for a in ("bra", "mo", "sti", "ke", "lun") for b in ("ndo", "lli", "ver", "tam") for c in
          ("ing", "ed", "er", "ness", "ly", "al", "ic", "ous", "en", "ive")]  # fmt: skip


def _document(noise: np.random.Generator) -> list[str]:
    def clause():
        rest = noise.choice(_RESTS).format(*noise.choice(_WORDS, 2))
        return f"{noise.choice(_SUBJECTS)} {noise.choice(_VERBS)} {noise.choice(_WORDS)} {rest}"

    lines = []
    for _ in range(60):
        text, kind = clause(), noise.random()
        if kind < 0.5:
            text += f", {noise.choice(['and', 'but'])} {clause()}"
        elif kind < 0.75:
            text += f" {noise.choice(_TAILS)}"
        lines.append(f"{text[0].upper()}{text[1:]}.")
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of simple sentences; every file's tail is held out, a few dozen documents in all."""
    path, noise = tmp_path_factory.mktemp("sentences"), np.random.default_rng(3)
    documents = ["\n".join(_document(noise)) for _ in range(600)]
    (path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture
def data(folder):
    return Data(corpora=(f"text:{folder}/*.txt",))


@pytest.fixture
def reread():
    """The text is read as a test has it read, and by no other test."""
    made_probe._sentences.cache_clear()
    yield
    made_probe._sentences.cache_clear()


@pytest.fixture(params=MADE, ids=lambda probe: probe.name)
def probe(request):
    return request.param


def shallow(examples):
    """Numbers of words and characters, lengths of the first word and the last."""
    return np.array([[text.count(" "), len(text), text.index(" "), len(text.split()[-1])] for text in examples.first])


def test_classes_are_balanced_and_examples_distinct(probe, data):
    for part in probe.examples(data)[:2]:
        counts = Counter(part.labels.tolist())
        assert abs(counts[0] - counts[1]) <= 1
        assert len(part) >= 20


@pytest.mark.usefixtures("reread")
def test_no_document_gives_examples_to_both_parts(probe, data, monkeypatch):
    """The words of the two parts' documents are made to differ; none of one part's is found in the other."""
    read = made_probe.corpus

    class Marked:
        def __init__(self, name):
            self.of = read(name)

        def documents(self, split):
            for number, document in enumerate(self.of.documents(split)):
                mark = f"X{'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}"
                yield [f"{text[:-1]}{mark}." for text in document]

    monkeypatch.setattr(made_probe, "corpus", Marked)
    texts = [" ".join(part.first) for part in probe.examples(data)[:2]]
    train, test = (set(re.findall("X[a-j]{2}", text)) for text in texts)
    assert train
    assert test
    assert not train & test


def test_it_is_the_same_every_time(probe, data, tmp_path, monkeypatch):
    before = probe.examples(data)
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path))
    made_probe._sentences.cache_clear()
    after = probe.examples(data)
    for one, other in zip(before[:2], after[:2], strict=True):
        assert one.first == other.first
        assert one.labels.tolist() == other.labels.tolist()


def test_lengths_do_not_give_the_class_away(probe, data):
    train, test = probe.examples(data)[:2]
    reader = HistGradientBoostingClassifier(max_depth=3, random_state=0).fit(shallow(train), train.labels)
    right = reader.score(shallow(test), test.labels)
    assert abs(right - 0.5) < 3 * 0.5 / len(test) ** 0.5


def test_swaps_keep_the_words(data):
    """In every probe of order the words of an example are those of some sentence, one of them twice in `distance`."""
    known = {" ".join(sorted(s.lower().replace(",", " ").rstrip(".").split())) for s in _texts(data)}
    for name in ("word_order", "far_order", "coordination"):
        (one,) = [probe for probe in MADE if probe.name == name]
        for text in one.examples(data).test.first:
            assert " ".join(sorted(text.lower().replace(",", " ").rstrip(".").split())) in known


def _texts(data):
    return [
        " ".join(sentence.words)
        for part in made_probe._sentences(tuple(fingerprints(data).items()))
        for sentence in part
    ]


def test_what_each_class_is(data):
    parts = {probe.name: probe.examples(data) for probe in MADE}
    of, words = ({name: part[number] for name, part in parts.items()} for number in (1, 3))
    originals = set(_texts(data))
    for name in ("word_order", "far_order", "agreement", "pronoun_case", "odd_word", "coordination"):
        is_original = np.array([text in originals for text in of[name].first])
        assert is_original[of[name].labels == 0].all(), name
        assert is_original[of[name].labels == 1].mean() < 0.05, name
    for text, label, read in zip(of["distance"].first, of["distance"].labels, words["distance"], strict=True):
        places = {}
        for place, word in enumerate(text.split()):
            places.setdefault(word, []).append(place)
        assert (4 if label else 1) in {b - a for a, *rest in places.values() for b in rest}
        assert len(places[text.split()[read]]) == 2


def test_a_noun_follows_a_determiner_and_a_verb_a_pronoun_with_the_same_forms(data):
    (one,) = [probe for probe in MADE if probe.name == "word_class"]
    parts = one.examples(data)
    for examples, places in ((parts.train, parts.train_words), (parts.test, parts.test_words)):
        assert places is not None
        rows = zip(examples.first, examples.labels.tolist(), places.tolist(), strict=True)
        read = [(text.split()[place - 1 : place + 1], label) for text, label, place in rows]
        assert all(before.lower() in (("they",) if label else ("the", "a")) for (before, _), label in read)
        nouns, verbs = (Counter(word for (_, word), of in read if of == label) for label in (0, 1))
        assert nouns == verbs


@pytest.mark.parametrize("name", ["agreement", "pronoun_case", "odd_word"])
def test_the_word_that_is_read_is_the_one_that_may_be_changed(name, data):
    (one,) = [probe for probe in MADE if probe.name == name]
    examples, originals = one.examples(data), set(_texts(data))
    for text, label, place in zip(examples.test.first, examples.test.labels, examples.test_words, strict=True):
        words = text.split()
        if label:
            patterns = {" ".join([*words[:place], "?", *words[place + 1 :]])}
            assert patterns & {_without(original, place) for original in _like(originals, words, place)}
        elif name == "agreement":
            assert words[place] in {"is", "are", "was", "were", "has", "have"}


def _without(text, place):
    words = text.split()
    return " ".join([*words[:place], "?", *words[place + 1 :]])


def _like(originals, words, place):
    """The sentences with the same first words."""
    start = " ".join(words[:place])
    return [text for text in originals if text.startswith(start)]


def test_too_little_text_is_an_error_that_says_so(tmp_path):
    (tmp_path / "few.txt").write_text("\n\n".join("This is one of the short texts." for _ in range(40)))
    with pytest.raises(ConfigError, match=naming("word_order", "evaluation.probes")):
        MADE[0].examples(Data(corpora=(f"text:{tmp_path}/*.txt",)))


def test_a_text_that_changes_while_a_process_lives_is_read_anew(folder, tmp_path, monkeypatch):
    file, data = tmp_path / "text.txt", Data(corpora=(f"text:{tmp_path}/text.txt",))
    text = (folder / "text.txt").read_text(encoding="utf-8")
    found = []
    for version in (text, text.replace("letter", "ladder")):
        file.write_text(version, encoding="utf-8")
        found.append(" ".join(MADE[0].examples(data).test.first))
    made_probe._sentences.cache_clear()
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    assert found[1] == " ".join(MADE[0].examples(data).test.first)
    assert "letter" in found[0]
    assert "letter" not in found[1]
