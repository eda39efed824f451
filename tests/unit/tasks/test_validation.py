"""The part of the training examples that trials of a search are scored on: what is drawn, and what is kept from it."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import finetune
from lightning_modules.tasks import TASKS, expected_work, pins, validation
from lightning_modules.tasks.measured_baselines import baselines, with_same_labels
from lightning_modules.tasks.reading.passages import Question, SpanExamples
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.validation import divided, examples
from tests.messages import naming
from tests.toy import toy_task
from tests.toy_shapes import TOYS
from tests.tuning import tunings

SETTINGS, tuning = tunings(steps=4, validation_share=0.25)
MADE = {
    **TOYS,
    "toy": toy_task("toy"),
    "toy_pairs": toy_task("toy_pairs", "pair"),
    "toy_real": toy_task("toy_real", labels=()),
}
DIVIDED = [name for name in MADE if name != "toy_alone"]  # all of its questions are the same


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for name, task in MADE.items():
        monkeypatch.setitem(TASKS, name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def items(of):
    return [str(item) for item in of.items_for_pin()]


# --- what is drawn


@pytest.mark.parametrize("name", DIVIDED)
def test_a_part_of_the_training_examples_of_every_shape_is_kept_from_training(name):
    whole, kept, scored = (examples(name, *which) for which in (("train", None), ("train", 0.25), ("dev", 0.25)))
    assert 0.15 * len(whole) < len(scored) <= round(0.25 * len(whole))
    assert set(items(kept)) | set(items(scored)) <= set(items(whole))
    texts = [{text for about in part.about() for text in about} for part in (kept, scored)]
    assert texts[0]
    assert not texts[0] & texts[1]


def test_the_part_is_a_random_one_of_a_fixed_size():
    about = [(f"text {n}",) for n in range(1000)]
    kept, scored = divided(about, 0.1, "some")
    assert (len(kept), len(scored)) == (900, 100)
    assert sorted([*kept, *scored]) == list(range(1000))
    assert 400 < scored.mean() < 600
    assert divided(about, 0.1, "some")[1].tolist() == scored.tolist()
    assert divided(about, 0.1, "other")[1].tolist() != scored.tolist()


def test_at_most_two_thousand_are_scored():
    assert len(divided([(str(n),) for n in range(30_000)], 0.5, "large")[1]) == 2000


def test_questions_about_a_passage_stay_together():
    rows = [Question(f"q{n}", "Who?", f"Passage {n // 5} .", ((0, "Passage"),)) for n in range(100)]
    kept, scored = divided(SpanExamples.of(rows).about(), 0.2, "questions")
    assert len(scored) == 20
    assert not set(kept // 5) & set(scored // 5)


def test_pairs_that_share_a_text_through_others_stay_together():
    chains = [(f"{n}a", f"{n}b") for n in range(20)] + [(f"{n}b", f"{n}c") for n in range(20)]
    kept, scored = divided(chains, 0.3, "pairs")
    assert len(scored) == 12
    assert not set(kept % 20) & set(scored % 20)


def test_only_whole_sentences_are_scored_and_their_phrases_are_not_trained_on():
    sentences = [f"the film {n} is a quiet joy {n}" for n in range(40)]
    phrases = [f"film {n} is" for n in range(40)] + [f"joy {n}" for n in range(40)] + ["quiet"]
    texts = [*phrases, *sentences, "a quiet", "disquiet joys"]  # a part of a word is none of its text
    kept, scored = divided([(text,) for text in texts], 0.1, "phrases")
    own = [texts[n] for n in scored.tolist()]
    trained = [texts[n] for n in kept.tolist()]
    assert len(own) == 12
    assert set(own) <= {*sentences, "disquiet joys"}
    assert not [text for text in trained if any(f" {text} " in f" {sentence} " for sentence in own)]
    assert len(trained) >= 3 * (40 - 12)


@pytest.mark.parametrize(
    "about", [[("one passage",)] * 50, [(str(n),) for n in range(3)]], ids=["one passage", "too few"]
)
def test_what_cannot_be_divided_is_refused_by_name(about):
    with pytest.raises(ConfigError, match=naming("finetuning.validation_share", "some", "0.1")):
        divided(about, 0.1, "some")


# --- fine-tunings


@pytest.mark.parametrize("few", [None, 16])
def test_seeds_and_numbers_of_examples_share_the_part(tiny, few):
    data = [tuning(tiny, seed=seed, train_examples=few).data for seed in (0, 1)]
    scored = [items(one.dev.examples) for one in data]
    trained = [items(one.train.examples) for one in data]
    rest = items(examples("toy", "train", 0.25))
    assert scored[0] == scored[1] == items(examples("toy", "dev", 0.25))
    assert set(trained[0]) <= set(rest)
    assert (len(trained[0]), trained[0] == trained[1]) == (few or len(rest), few is None)


def test_a_record_has_the_usual_names_and_the_scores_of_the_part(tiny, tmp_path):
    usual = finetune(tuning(tiny, validation_share=None), tmp_path / "a")
    run = tuning(tiny)
    fitted = finetune(run, tmp_path / "b")
    labels = run.data.dev.examples.labels
    right = unpack(fitted.examples["right"])
    assert usual.metrics.keys() == fitted.metrics.keys()
    assert len(right) == len(examples("toy", "dev", 0.25)) != len(examples("toy", "dev", None))
    assert fitted.metrics["toy.accuracy"] == pytest.approx(right.mean())
    answer = np.bincount(examples("toy", "train", 0.25).labels).argmax()
    assert fitted.metrics["toy.accuracy.majority"] == pytest.approx((labels == answer).mean())


def test_with_few_labels_a_simple_method_has_the_same_few(monkeypatch, tiny):
    seen = []

    def by_words(self, train, dev):
        seen.append(items(train))
        return {"majority": np.zeros(len(dev), dtype=int), "tfidf": np.ones(len(dev), dtype=int)}

    monkeypatch.setattr("lightning_modules.tasks.shapes.texts.Texts.baselines", by_words)
    trained = {seed: items(tuning(tiny, seed=seed, train_examples=10).data.train.examples) for seed in (0, 1)}
    found = {seed: with_same_labels("toy", 0.25, 10, seed) for seed in (0, 1)}
    assert seen == [trained[0], trained[1]]
    assert len(trained[0]) == 10
    assert trained[0] != trained[1]
    assert found[0].keys() == {"tfidf"}


@pytest.mark.parametrize("count", [None, 48, 64])
def test_with_all_labels_no_second_score_stands_beside_it(count):
    assert with_same_labels("toy", 0.25, count, 0) == {}


def test_a_fine_tuning_on_few_examples_keeps_both_scores(tiny, tmp_path):
    settings = SETTINGS.but(train_examples=10)
    metrics = finetune(tuning(tiny, settings=settings), tmp_path).metrics
    assert metrics["toy.accuracy.tfidf"] == baselines("toy", 0.25)["tfidf"]["accuracy"]
    few = with_same_labels("toy", 0.25, 10, 0)["tfidf"]["accuracy"]
    assert metrics["toy.accuracy.tfidf_same_labels"] == few


def test_the_planned_work_is_that_of_what_is_left(tiny):
    settings = SETTINGS.but(steps=None, epochs=1)
    assert (
        expected_work(tiny, "toy", settings)[0]
        == 48 // 8
        < expected_work(tiny, "toy", settings.but(validation_share=None))[0]
    )
    assert validation.size(64, 0.25) == 16
