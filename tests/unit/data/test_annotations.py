"""Annotations of a token store: named entities by rule or by spaCy, aligned with pieces, made once."""

import pickle
import sys

import numpy as np
import pytest

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, identity
from lightning_modules.data import Data, SegmentPairFormat, TextFormat, Tokenizer, annotations, open_annotated
from lightning_modules.data.text.annotators import annotator, capitalised
from lightning_modules.objectives import MaskedLM, Masking
from lightning_modules.objectives.masking import Tagged
from lightning_modules.pretraining import fit
from tests.conftest import make_draws
from tests.messages import naming

RULE = ("capitalised", "entities")
LINES = [
    "Yesterday the Duke of Wellington met Mary Ann Evans near the river in Paris.",
    "Nobody there had heard of Copenhagen, Berlin or the old town of Montevideo.",
    '"Come with me," said Tom to Anna, and they went away to see New Orleans again.',
]
NAMES = ["duke", "wellington", "mary ann evans", "paris", "copenhagen", "berlin", "montevideo", "tom", "anna",
         "new orleans"]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "text.txt"
    path.write_text("\n\n".join("\n".join(LINES[n % 3 :] + LINES[: n % 3]) for n in range(40)))
    return f"text:{path}"


@pytest.fixture(params=["wordpiece", "byte_bpe"])
def data(request, corpus):
    size = 90 if request.param == "wordpiece" else 300  # most words have several pieces
    return Data(corpora=(corpus,), tokenizer=Tokenizer(kind=request.param, vocab_size=size))


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("Paris is old.", []),
        ("The New York Times wrote about Oslo.", ["New York Times", "Oslo"]),
        ("He said: Never, and left with Bob.", ["Bob"]),
        ('"The day," said Jo, "That was it."', ["Jo"]),
        ("I met O'Neill and I'm glad; so is J. R. Smith.", ["O'Neill", "J", "R", "Smith"]),
        ("We saw \u00c9mile's house in \u00c5rhus, 1998.", ["\u00c9mile's", "\u00c5rhus"]),
        ("nothing here", []),
    ],
)
def test_the_rule_for_capitals(sentence, names):
    assert [sentence[start:end] for start, end in capitalised(sentence)] == names


def spelled(store, marks):
    """The marked spans as text."""
    found = []
    for piece, mark in zip(store.ids, marks, strict=True):
        text = store.vocabulary.pieces[piece]
        text = text.removeprefix("##") if text.startswith("##") else f" {text.removeprefix(chr(288))}"
        if store.vocabulary.mark_of_words != "##" and not store.vocabulary.pieces[piece].startswith(chr(288)):
            text = text.strip()
        if mark == 1:
            found.append(text)
        elif mark == 2:
            found[-1] += text
    return [text.strip() for text in found]


def test_marks_are_the_pieces_of_names(data):
    store = open_annotated(data, "train", {RULE})
    found = spelled(store, store.marks[RULE])
    assert set(found) == set(NAMES)
    documents = len(store.documents) - 1
    assert [found.count(name) for name in NAMES] == [documents] * len(NAMES)


def test_marks_follow_their_pieces_through_every_format(data):
    store = open_annotated(data, "train", {RULE})
    forms = [TextFormat(sequence_length=48), TextFormat(sequence_length=48, break_mode="none")]
    forms += [SegmentPairFormat(sequence_length=96, excerpt=shown) for shown in ("all", "shuffled", "rest")]
    tagged = {int(piece) for piece, mark in zip(store.ids, store.marks[RULE], strict=True) if mark}
    plain = {int(piece) for piece, mark in zip(store.ids, store.marks[RULE], strict=True) if not mark}
    for form in forms:
        tokens = form.arrange(store).batch(np.arange(12))
        marks = tokens.marks[RULE]
        assert marks.shape == tokens.ids.shape
        assert not marks[tokens.special].any()
        assert set(tokens.ids[marks > 0].tolist()) <= tagged
        assert set(tokens.ids[(marks == 0) & ~tokens.special].tolist()) <= plain
        assert marks.any()


def test_names_alone_are_hidden_as_long_as_there_are_some(data):
    store = open_annotated(data, "train", {RULE})
    tokens = TextFormat(sequence_length=64).arrange(store).batch(np.arange(20))
    masking = Masking(rate=0.05, units=Tagged(annotator="capitalised", share=1.0), mask=1.0, same=0.0, random=0.0)
    example = MaskedLM(masking=masking).mask_inputs(Example.of(tokens), make_draws(20), store.vocabulary)
    assert (tokens.marks[RULE].reshape(-1)[example.targets["mlm"].where] > 0).all()


def test_annotations_are_made_once_and_again_if_they_are_not_as_they_were_written(data, monkeypatch, capfd):
    first = open_annotated(data, "train", {RULE})
    made = []
    monkeypatch.setattr(annotations, "_marks", lambda *given: made.append(given) or np.array(first.marks[RULE]))
    again = open_annotated(data, "train", {RULE})
    assert not made
    path = again.mark_files[RULE]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert (open_annotated(data, "train", {RULE}).marks[RULE] == first.marks[RULE]).all()
    assert len(made) == 1
    assert "is not as it was written" in capfd.readouterr().err


def test_a_store_keeps_its_annotations_on_the_way_to_a_worker(data):
    store = pickle.loads(pickle.dumps(open_annotated(data, "train", {RULE})))
    assert set(spelled(store, store.marks[RULE])) == set(NAMES)


def test_without_spacy_it_is_said_how_to_install_it(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ConfigError, match=naming("spaCy", "pip install 'ablations[annotate]'", "capitalised")):
        open_annotated(data, "train", {("en_core_web_sm", "entities")})
    with pytest.raises(ConfigError, match=naming("noun_phrases", "pip install")):
        annotator("en_core_web_sm", "noun_phrases")


def test_the_rule_is_for_names():
    with pytest.raises(ConfigError, match=naming("annotator", "capitalised", "noun_phrases")):
        Masking().but(**{"units.kind": "tagged", "units.tags": "noun_phrases", "units.annotator": "capitalised"})


class TestPipelines:
    @pytest.fixture
    def pipeline(self, tmp_path):
        """A pipeline that knows three names and a number."""
        spacy = pytest.importorskip("spacy")
        nlp = spacy.blank("en")
        patterns = [{"label": "PERSON", "pattern": "Mary Ann Evans"}, {"label": "GPE", "pattern": "Paris"}]
        patterns += [{"label": "GPE", "pattern": "Berlin"}, {"label": "CARDINAL", "pattern": "old"}]
        nlp.add_pipe("entity_ruler").add_patterns(patterns)
        nlp.to_disk(tmp_path / "pipeline")
        return str(tmp_path / "pipeline")

    def test_entities_that_are_no_numbers_are_marked(self, data, pipeline):
        store = open_annotated(data, "train", {(pipeline, "entities"), RULE})
        assert set(spelled(store, store.marks[pipeline, "entities"])) == {"mary ann evans", "paris", "berlin"}
        assert set(spelled(store, store.marks[RULE])) == set(NAMES)


def test_a_training_hides_names(tiny, corpus, tmp_path):
    tagged = tiny.but(
        **{"data.corpora": [corpus], "data.tokenizer.vocab_size": 90, "evaluation.sequences": 4,
           "objectives.mlm.masking.units.kind": "tagged", "objectives.mlm.masking.units.annotator": "capitalised"}
    )  # fmt: skip
    words = tagged.but(**{"objectives.mlm.masking.units.share": 0.0})
    with_boundaries = tagged.but(**{"objectives.sbo": {}})
    ended = [fit(system, 0, tmp_path / str(n)) for n, system in enumerate((tagged, words, with_boundaries))]
    assert len({one.metrics["heldout.loss"] for one in ended}) == 3
    assert len({identity(system.essence()) for system in (tagged, words, with_boundaries)}) == 3
