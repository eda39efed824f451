"""Sentence retrieval: margins and both directions by a worked example, its bars, and what was read in training."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data.settings import Data
from lightning_modules.pins import DataMismatch
from lightning_modules.pretraining import fit
from lightning_modules.probing import table
from lightning_modules.probing.parts import TooFewExamples
from lightning_modules.probing.retrieval import Retrieval, bars, cosines, layers, margins, right
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.shapes.texts import TextExamples
from tests.languages import WORDS, texts, tiny_xlm

RNG = np.random.default_rng(0)


def test_a_margin_is_the_ratio_to_the_neighbours_of_both_sides():
    cosine = RNG.random((6, 6))
    found = margins(cosine, 2)
    for x in range(6):
        for y in range(6):
            near = sorted(cosine[x])[-2:] + sorted(cosine[:, y])[-2:]
            assert found[x, y] == pytest.approx(cosine[x, y] / (sum(near) / 4))


def test_a_hub_that_is_near_to_everything_answers_nothing():
    """Each sentence is most like the hub by cosine; its margin is small, for all are."""
    shared, own, noise = np.eye(17)[16], np.eye(17)[:8], np.eye(17)[8:16]
    first = 0.35 * own + shared
    second = 0.35 * own + shared + 0.418 * noise
    second[0] = shared
    cosine = cosines(first, second)
    assert (cosine.argmax(1) == 0).all()
    assert margins(cosine).argmax(1).tolist() == list(range(8))


def test_both_directions_count_and_equal_scores_share_the_answer():
    scores = np.array([[3.0, 2.0, 0.0], [4.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
    assert right(scores).tolist() == [0.5, 0.0, 1.0], "rows find the first and third, columns the third"
    assert right(np.zeros((4, 4))).tolist() == [0.25] * 4
    assert right(scores).mean() == right(scores.T).mean()


def test_bars_find_names_and_digits_and_lengths_and_nothing_else():
    first = [f"word{n} {1000 + n}" for n in range(60)]
    second = [f"Wort {1000 + n}" for n in range(60)]
    found = bars(TextExamples(first, second, np.zeros(60)))
    assert found["words"] == pytest.approx(1, abs=0.05)
    assert found["best_simple"] == max(found["words"], found["letters"], found["length"])
    apart = bars(TextExamples([f"a{chr(98 + n % 20)}" for n in range(60)], [chr(945 + n % 20) for n in range(60)], []))
    assert apart["best_simple"] < 0.1
    long = bars(TextExamples(["a" * (2 + 3 * n) for n in range(60)], ["b" * (2 + 3 * n) for n in range(60)], []))
    assert long["length"] == pytest.approx(1)


@pytest.fixture
def asked(tmp_path, shared_cache, monkeypatch):
    """A retrieval of 80 pairs, and text of two languages to train on."""
    home = tmp_path / "data"
    texts(home, ("en", "de"), lines=80, seed=7)
    lines = [(home / f"text.{language}").read_text().splitlines() for language in ("en", "de")]
    content = "\n".join(sentence for pair in zip(*lines, strict=True) for sentence in pair)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    monkeypatch.setenv("ABLATIONS_DATA", str(home))
    monkeypatch.setattr("lightning_modules.probing.retrieval.FEWEST", 20)
    made = Retrieval("tatoeba_de", "Toy: which?", language="de", files=("text.en", "text.de"), sha256=digest)
    monkeypatch.setitem(table.PROBES, "tatoeba_de", made)
    texts(tmp_path / "text", ("en", "de"), lines=200)
    return made, f"lines:en-de:{tmp_path}/text/*", lines


def test_pairs_that_the_training_text_has_are_not_asked(asked, tmp_path):
    made, corpus, (english, german) = asked
    few = made.examples(Data(corpora=(corpus,))).test
    with (tmp_path / "text" / "text.en").open("a") as one, (tmp_path / "text" / "text.de").open("a") as other:
        for n in range(10, 20):
            one.write(f"{english[n].upper()}\n")  # capitals and what is at the end do not hide it
            other.write(f"{WORDS['de'][n % 5]} {n}\n")
    fewer = made.examples(Data(corpora=(corpus,))).test
    assert set(fewer.first) <= set(few.first)
    assert not {english[n] for n in range(10, 19)} & set(fewer.first)
    for text in few.second:
        assert text in german
    (tmp_path / "text" / "text.en").write_text("\n".join(english))
    (tmp_path / "text" / "text.de").write_text("\n".join(german))
    with pytest.raises(TooFewExamples, match="has all but"):
        made.examples(Data(corpora=(corpus,)))


def test_other_sentences_under_the_same_name_are_refused(asked):
    made, corpus, _ = asked
    other = replace(made, sha256="0" * 16)
    with pytest.raises(DataMismatch, match="are not the pinned ones"):
        other.examples(Data(corpora=(corpus,)))


def test_a_training_ends_with_its_retrieval_beside_untrained_weights_and_bars(asked, tmp_path):
    _, corpus, _ = asked
    changes = {"evaluation.probes": ["tatoeba_de"], "training.steps": 30, "model.languages": ["en", "de"]}
    system = tiny_xlm(corpus, **changes)
    found = fit(system, 0, tmp_path / "run")
    names = {name.removeprefix("probes.tatoeba_de") for name in found.metrics if name.startswith("probes.")}
    endings = {"", "_random", "_words", "_letters", "_length", "_best_simple", "_majority"}
    assert names == endings | {"_embeddings", "_middle", "_last"}
    pairs = unpack(found.examples["probes.tatoeba_de"])
    assert pairs.mean() == pytest.approx(found.metrics["probes.tatoeba_de"])
    assert found.metrics["probes.tatoeba_de_majority"] == pytest.approx(1 / len(pairs))
    left_out = fit(system.but(**{"evaluation.languages": "left_out"}), 0, tmp_path / "left_out")
    assert left_out.metrics["heldout.loss"] != found.metrics["heldout.loss"]
    assert left_out.curve["train.mlm"] == found.curve["train.mlm"], "the training is the same"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation.probes": ["tatoeba_fr"]}, "has sentences in 'fr', which model.languages lacks"),
        ({"evaluation.probes": ["sst2"]}, "names no language of its texts"),
        ({"model.languages": [], "evaluation.languages": "left_out"}, "of a model with languages"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_training(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_xlm("multi30k:en-de").but(**changes)


def test_what_all_sentences_of_a_language_have_does_not_hide_which_is_which():
    """As an embedding of the language, which is longer than what tells sentences apart."""
    own = RNG.standard_normal((40, 8))
    examples = TextExamples([f"a{n}" for n in range(40)], [f"b{n}" for n in range(40)], np.zeros(40))
    everywhere = {"a": 30 * np.eye(8)[0], "b": -30 * np.eye(8)[1]}
    (found,) = layers(examples, ("a", "b"), lambda texts, language: [own + everywhere[language]])
    assert found.mean() == 1
