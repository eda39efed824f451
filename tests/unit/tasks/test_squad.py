"""SQuAD and QNLI: official scores, files as they should and should not be, and what needs no network."""

import json
import logging
import sys

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data import DataMismatch
from lightning_modules.tasks import TASKS, pins
from lightning_modules.tasks.datasets import qnli
from lightning_modules.tasks.datasets.squad import own_split, read
from lightning_modules.tasks.measured_baselines import baselines
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.scores.decoding import SpanAnswers
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.scores.squad_scores import best_of, best_threshold, halves, normalised
from lightning_modules.tasks.shapes.span import Spans

CONTEXT = "In 1990 the Duke left  Paris. He died in (1994), an old man."


class TestScores:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("The Duke", "duke"),
            ("a an the", ""),
            ("Theatre, another!", "theatre another"),
            ("An\u00a0apple\n pie.", "apple pie"),
            ("«Élan» — 3½", "«élan» — 3½"),
            ("$1,000.50", "100050"),
            ("A.", ""),
            ("İstanbul", "i\u0307stanbul"),
        ],
    )
    def test_texts_are_normalised_as_in_the_official_scripts(self, text, expected):
        assert normalised(text) == expected

    @pytest.mark.parametrize(
        ("answer", "golds", "unanswerable", "expected"),
        [
            ("The Duke!", ["duke"], False, (1, 1)),
            ("the old duke", ["duke of York", "an old man"], False, (0, 0.5)),
            ("York York", ["York York Minster"], False, (0, 0.8)),
            ("Paris", ["London", "Paris, France", "paris"], False, (1, 1)),
            ("the", ["A"], False, (1, 0)),
            ("", ["x"], False, (0, 0)),
            ("the", [], True, (1, 1)),
            ("", ["x"], True, (0, 0)),
            ("x", ["the", "x y"], True, (0, 2 / 3)),
            ("", ["the"], True, (1, 1)),
        ],
    )
    def test_by_hand(self, answer, golds, unanswerable, expected):
        assert best_of(answer, golds, unanswerable) == pytest.approx(expected)

    def test_the_best_threshold_is_that_of_the_official_script(self):
        """Against the loop of `find_best_thresh`."""
        noise = np.random.default_rng(0)
        for _ in range(50):
            count = int(noise.integers(1, 12))
            nulls, has = noise.normal(size=count), noise.random(count) < 0.5
            scores = np.where(has, noise.integers(0, 3, count) / 2, 0.0)
            current = best = float((~has).sum())
            for n in np.argsort(nulls):
                current += scores[n] if has[n] else -1
                best = max(best, current)
            cut = best_threshold(nulls, scores, (~has).astype(float))
            assert np.where(nulls > cut, ~has, scores).sum() == pytest.approx(best)

    def test_equal_null_scores_stay_together(self):
        given, withheld = np.array([1.0, 0, 0]), np.array([0, 1.0, 1])
        assert best_threshold(np.zeros(3), given, withheld) == -np.inf
        assert best_threshold(np.array([0, 1.0, 1]), given, withheld) == 0

    def test_halves_go_by_the_id(self):
        ids = [f"{n:x}" for n in range(400)]
        found = halves(ids)
        assert 150 < found.sum() < 250
        assert halves(ids[::-1]).tolist() == found[::-1].tolist()


def question(name, *answers):
    return Question(name, "Who?", CONTEXT, tuple((CONTEXT.index(text), text) for text in answers))


class TestSpansScored:
    def test_answers_of_1_1(self):
        shape = Spans()
        examples = shape.read([question("q1", "the Duke", "Duke"), question("q2", "Paris")], "made here")
        found = shape.score(SpanAnswers(["Duke", "He left Paris"], np.array([9.0, 9])), examples, ("f1", "exact_match"))
        assert found.metrics == {"f1": 0.75, "exact_match": 0.5}
        assert found.predictions == {"q1": "Duke", "q2": "He left Paris"}
        assert unpack(found.kept["right"]) == pytest.approx([1, 0.5], abs=1 / 255)

    def test_answers_of_2_0(self):
        shape = Spans(unanswerable=True)
        examples = shape.read([question("a", "Duke"), question("b", "1990"), question("c"), question("d")], "made here")
        answers = SpanAnswers(["Duke", "1990", "1994", "1994"], np.array([-2.0, 1, 2, -1]))
        found = shape.score(answers, examples, tuple(shape.measures))
        assert found.predictions == {"a": "Duke", "b": "", "c": "", "d": "1994"}
        assert found.metrics["f1"] == found.metrics["exact_match"] == 0.5
        assert found.metrics["best_f1"] == 0.75
        assert found.metrics["has_answer_f1"] == found.metrics["no_answer_accuracy"] == 0.5
        assert 0 <= found.metrics["held_out_f1"] <= found.metrics["best_f1"]
        assert unpack(found.kept["right"]).tolist() == [1, 0, 1, 0]

    def test_the_held_out_threshold_is_that_of_the_other_half(self):
        ids = [f"{n:x}" for n in range(60)]
        shape, half = Spans(unanswerable=True), halves(ids)
        examples = shape.read([question(name, *["Duke"] * (n % 2)) for n, name in enumerate(ids)], "made here")
        odd = np.arange(60) % 2 == 1
        nulls = np.where(odd, 0.0, 1.0) + np.where(half, 10, 0)  # each half has a cut of its own
        found = shape.score(SpanAnswers(["Duke"] * 60, nulls), examples, tuple(shape.measures)).metrics
        expected = np.where(half, ~odd, odd).mean()  # a cut of 10 answers all of one half, a cut of 0 none of the other
        assert found["held_out_f1"] == found["held_out_exact_match"] == pytest.approx(expected)
        same = shape.score(SpanAnswers(["Duke"] * 60, np.where(odd, 0.0, 1.0)), examples, tuple(shape.measures)).metrics
        assert same["held_out_f1"] == same["best_f1"] == 1.0


def paragraph(*asked, context=CONTEXT):
    """One paragraph of the official form; questions are (id, answers)."""
    return {
        "context": context,
        "qas": [
            {"id": name, "question": "Who left?", "answers": [{"answer_start": s, "text": t} for s, t in answers]}
            for name, answers in asked
        ],
    }


def articles(*paragraphs):
    return {"version": "x", "data": [{"title": f"T{n}", "paragraphs": [p]} for n, p in enumerate(paragraphs)]}


@pytest.fixture
def folder(home, monkeypatch):
    """A folder with small files of SQuAD 1.1, unpinned."""
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    for split in ("train", "dev"):
        write(home, f"{split}-v1.1.json", articles(paragraph((f"{split}1", [(12, "Duke")]), ("x", [(3, "1990")]))))
    return home


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)


def write(folder, name, content):
    path = folder / "squad" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


class TestReader:
    def test_official_and_rebuilt_training_questions_are_two_tasks(self, folder, no_hub):
        with pytest.raises(ConfigError, match=r"train-v1\.1\.reconstructed\.json is missing.* the task 'squad1'\."):
            TASKS["squad1_own"].examples("train")
        write(folder, "train-v1.1.reconstructed.json", articles(paragraph(("other", [(12, "Duke")]))))
        assert TASKS["squad1"].examples("train").ids == ["train1", "x"]
        assert TASKS["squad1_own"].examples("train").ids == ["other"]
        (folder / "squad/train-v1.1.json").unlink()
        assert TASKS["squad1_own"].examples("train").ids == ["other"]
        with pytest.raises(ConfigError, match=r"train-v1\.1\.json is missing.* rajpurkar/squad .*'squad1_own'"):
            TASKS["squad1"].examples("train")

    def test_dev_questions_of_own_tasks_are_official_ones_first(self, folder, no_hub):
        write(folder, "dev-v1.1.reconstructed.json", articles(paragraph(("copy", [(12, "Duke")]))))
        assert TASKS["squad1_own"].examples("dev").ids == TASKS["squad1"].examples("dev").ids == ["dev1", "x"]
        (folder / "squad/dev-v1.1.json").unlink()
        assert TASKS["squad1_own"].examples("dev").ids == ["copy"]
        with pytest.raises(ConfigError, match=r"dev-v1\.1\.json is missing"):
            TASKS["squad1"].examples("dev")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"data": [\n  }', r"dev-v1\.1\.json: .*JSON.*line 2 column 3"),
            ([1], r"dev-v1\.1\.json: .*object"),
            ({"data": []}, r"has no questions"),
            ({"data": [{"title": "T", "paragraphs": [{"qas": []}]}]}, r"data\.0\.paragraphs\.0\.context: Field"),
            (articles(paragraph(("1", [("4", "x")]))), r"answers\.0\.answer_start: .*valid integer"),
            (articles(paragraph(("1", [(12, "Duke")]), context="")), r"1 dev questions have an answer that .*: 1\."),
        ],
    )
    def test_what_is_wrong_is_named(self, folder, content, message):
        write(folder, "dev-v1.1.json", content)
        with pytest.raises(ConfigError, match=message):
            TASKS["squad1"].examples("dev")

    def test_impossible_questions_have_no_answers(self, folder):
        content = articles(paragraph(("1", [(12, "Duke")]), ("2", [])))
        for asked, impossible in zip(content["data"][0]["paragraphs"][0]["qas"], (True, False), strict=True):
            asked["is_impossible"] = impossible
        with pytest.raises(
            ConfigError, match=r"qas\.0: .*has answers, but is_impossible is true[\s\S]*qas\.1: .*has no"
        ):
            read(write(folder, "dev-v2.0.json", content))

    def test_misplaced_answers_are_moved_to_the_nearest_place(self, folder, caplog):
        content = articles(paragraph(("1", [(40, "1990")]), ("2", [(0, "left Paris")]), ("3", [(55, "an")])))
        write(folder, "train-v1.1.json", content)
        with caplog.at_level(logging.WARNING):
            found = TASKS["squad1"].examples("train")
        assert found.answers == [((3, "1990"),), ((17, "left  Paris"),), ((57, "an"),)]
        assert "moved the answers of 3 questions" in caplog.text

    def test_answers_that_are_nowhere(self, folder, caplog):
        content = articles(paragraph(("1", [(0, "Rome")]), ("2", [(12, "Duke"), (0, "Rome")]), ("3", [(3, "1990")])))
        write(folder, "train-v1.1.json", content)
        with caplog.at_level(logging.WARNING):
            assert TASKS["squad1"].examples("train").ids == ["2", "3"]
        assert "skipped 1 questions" in caplog.text
        write(folder, "dev-v1.1.json", content)
        with pytest.raises(ConfigError, match=r"2 dev questions .* not occur in their passage: 1, 2\."):
            TASKS["squad1"].examples("dev")

    def test_the_dev_set_of_2_0_is_divided_by_article(self, folder, no_hub):
        parts = [paragraph((f"{n}", [(12, "Duke")]), (f"{n}b", [])) for n in range(12)]
        path = write(folder, "dev-v2.0.json", articles(*parts))
        train, dev = (TASKS["squad2_own"].examples(split) for split in ("train", "dev"))
        assert (len(train), len(dev)) == (16, 8)
        assert not {name.strip("b") for name in train.ids} & {name.strip("b") for name in dev.ids}
        again = own_split(read(path)[::-1], "dev")
        assert {row.id for row in again} == set(dev.ids)
        with pytest.raises(ConfigError, match=r"train-v2\.0\.json is missing.* rajpurkar/squad_v2 .*'squad2_own'"):
            TASKS["squad2"].examples("train")
        write(folder, "train-v2.0.json", articles(paragraph(("t", []))))
        assert (TASKS["squad2"].examples("train").ids, len(TASKS["squad2"].examples("dev"))) == (["t"], 24)
        assert len(TASKS["squad2_own"].examples("train")) == 16

    def test_without_a_folder_the_hub_is_asked(self, monkeypatch):
        datasets = pytest.importorskip("datasets")
        row = {"id": "1", "question": "Who?", "context": CONTEXT, "answers": {"answer_start": [12], "text": ["Duke"]}}
        asked = []
        monkeypatch.setattr(datasets, "load_dataset", lambda name, split: asked.append((name, split)) or [row])
        assert TASKS["squad1"].examples("dev").answers == [((12, "Duke"),)]
        assert asked == [("rajpurkar/squad", "validation")]


class TestBaselines:
    def test_the_commonest_answer_and_the_nearest_candidate(self, folder, caplog):
        context = "Ann was born in Rome long ago. Later Bob came to Oslo by train."
        content = articles(paragraph(("1", [(50, "Oslo")]), context=context))
        content["data"][0]["paragraphs"][0]["qas"][0]["question"] = "Who came by train?"
        write(folder, "dev-v1.1.json", content)
        found = baselines("squad1")
        assert found == {
            "majority": {"f1": 0.0, "exact_match": 0.0},
            "sliding_window": {"f1": 1.0, "exact_match": 1.0},
        }

    def test_where_most_have_none_the_majority_is_no_answer(self):
        shape = Spans(unanswerable=True)
        examples = shape.read([question("1", "Duke"), question("2"), question("3")], "made here")
        assert shape.baselines(examples, examples)["majority"].texts == [""] * 3
        metrics = shape.score(shape.baselines(examples, examples)["majority"], examples, ("f1", "best_f1")).metrics
        assert metrics == pytest.approx({"f1": 2 / 3, "best_f1": 2 / 3})


class TestQnli:
    HEADING = "index\tquestion\tsentence\tlabel\n"

    @pytest.fixture
    def glue(self, folder):
        path = folder / "glue/QNLI"
        path.mkdir(parents=True)
        (path / "dev.tsv").write_text(self.HEADING + "0\tWho slept?\tTim slept  well.\tentailment\n")
        return path

    def test_training_pairs_are_made_of_squad(self, folder, glue, no_hub):
        context = "Ann left Rome. Bob came to Oslo. Then Bob slept."
        held_out = "Kim ate. Tim slept well."
        parts = [
            paragraph(("1", [(15, "Bob")]), ("2", [(9, "Rome. Bob")]), context=context),
            paragraph(("3", [(0, "Kim")]), context=held_out),
            paragraph(("4", [(0, "Kim")]), context="Kim ate."),
        ]
        write(folder, "train-v1.1.reconstructed.json", articles(*parts))  # and not the official file beside it
        found = TASKS["qnli_own"].examples("train")
        assert (found.first, found.second) == (["Who left?"] * 2, ["Bob came to Oslo.", "Ann left Rome."])
        assert found.labels.tolist() == [0, 1]
        assert TASKS["qnli_own"].examples("train").second == found.second  # from the cache
        assert TASKS["qnli_own"].examples("dev").second == ["Tim slept well."]
        with pytest.raises(ConfigError) as caught:
            TASKS["qnli"].examples("train")
        said = str(caught.value)
        assert f"QNLI was not found: {glue}/train.tsv is missing. Set ABLATIONS_DATA" in said
        assert "or read it from the Hugging Face hub: nyu-mll/glue (qnli)" in said
        assert "'qnli_own', whose training pairs are rebuilt from SQuAD 1.1" in said

    def test_other_training_questions_are_not_the_pinned_pairs(self, glue, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setenv("ABLATIONS_DATA", str(glue.parent.parent))
        with pytest.raises(DataMismatch, match=r"'qnli_own' \(train\)"):
            pins.checked("qnli_own", "train")

    def test_sentences_are_where_they_are_said_to_be(self):
        found = [CONTEXT[start:end] for start, end in qnli.segmented(CONTEXT)]
        assert found == ["In 1990 the Duke left  Paris.", "He died in (1994), an old man."]
