"""Tasks: what they read, how it is scored, what needs no network, and what is said when it is absent."""

import json

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from lightning_modules import pin
from lightning_modules.data import DataMismatch
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS, FineTuning, expected_work, fingerprint, pins
from lightning_modules.tasks.datasets import bigram_shift
from lightning_modules.tasks.measured_baselines import baselines
from lightning_modules.tasks.scores.metrics import METRICS
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.texts import TextExamples, Texts
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.task import Task

# Three lines of each data set in its official form; training and dev files are alike.
OFFICIAL = {
    "cola": (
        "CoLA/{split}.tsv",
        "gj04\t1\t\tOur friends won't buy this, let alone the next one.\n"
        'gj04\t0\t*\tThe  "book was read\u00a0by.\n'
        "bc01\t1\t\tJohn slept.\n",
    ),
    "sst2": ("SST-2/{split}.tsv", "sentence\tlabel\none long string of cliches . \t0\ngood \t1\n`` fine ''\t1\n"),
    "mrpc": (
        "MRPC/{split}.tsv",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t13\t14\tHe said it does not fit.\t"The business does not fit, he said.\r\n'
        '0\t20\t21\t"A" and "b\tHis wife said he was "100 percent" there.\r\n'
        "1\t22\t23\tNo quote.\tNone at all.\r\n",
    ),
    "stsb": (
        "STS-B/sts-{split}.csv",
        "main-captions\tMSRvid\t2012test\t0000\t5.000\tA man dances.\tA man is dancing.\n"
        'main-forums\tanswers\t2015\t0007\t2.5\t"It runs.\tIt ran.\thttp://a\thttp://b\n'
        "main-news\theadlines\t2016\t0012\t0.400\tOne dead in storm\tStocks fall\n",
    ),
    "rte": (
        "RTE/{split}.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tNo weapons found.\tWeapons found.\tnot_entailment\n"
        '1\tThe Pope "died.\tHe is dead.\tentailment\n2\tIt rains.\tIt is wet.\tentailment\n',
    ),
    "wnli": (
        "WNLI/{split}.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tThe drain is clogged. It has to be cleaned.\tIt has hair.\t0\n"
        "1\tJane knocked.\tSusan did not answer.\t1\n2\tA. B.\tC.\t1\n",
    ),
}
_QUESTIONS = "1\t3\t4\tWhat is it?\tWhat is this?\t1\n2\t5\t6\tWho?\tWhere?\t0\n3\t7\t8\tIs it?\tIs it so?\t1\n"
_CAPTIONS = "1c\tentailment\tA man.\tOne.\n2c\tneutral\tA man.\tHe runs.\n3c\tcontradiction\tA dog.\tA cat.\n"
OFFICIAL |= {
    "qqp": ("QQP/{split}.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n" + _QUESTIONS),
    "snli": ("../snli/snli_1.0_{split}.txt", "pairID\tgold_label\tsentence1\tsentence2\n" + _CAPTIONS),
    "sst5": ("../sst5/{split}.txt", "4\tsuperb !\n0\tdire .\n2\t so so\n"),
}
LABELS = {"cola": [1, 0, 1], "sst2": [0, 1, 1], "mrpc": [1, 0, 1], "stsb": [5, 2.5, 0.4], "rte": [1, 0, 0],
          "wnli": [0, 1, 1], "qqp": [1, 0, 1], "snli": [0, 1, 2], "sst5": [4, 0, 2]}  # fmt: skip


@pytest.fixture
def official(tmp_path, monkeypatch):
    """A folder of data sets with three examples a split, unpinned."""
    for name, content in OFFICIAL.values():
        for split in ("train", "dev"):
            path = tmp_path / "glue" / name.format(split=split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", newline="")
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return tmp_path / "glue"


class TestEveryTask:
    @pytest.mark.parametrize("name", OFFICIAL)
    def test_reads_three_examples_in_the_official_form(self, name, official):
        task = TASKS[name]
        for split in ("train", "dev"):
            examples = task.examples(split)
            assert len(examples) == 3
            assert examples.labels.tolist() == LABELS[name]
            assert (examples.second is None) == (not task.shape.pair)
            for text in examples.first + (examples.second or []):
                assert text == " ".join(text.split())
                assert text
        assert examples.labels.dtype == (np.int64 if task.shape.labels else np.float64)

    def test_right_answers_score_one_and_a_constant_nothing(self):
        wrong, labels = [], np.array([0, 1, 1, 0, 1])
        for task in (task for task in TASKS.values() if isinstance(task.shape, Texts)):
            outputs = np.eye(2)[labels] if task.shape.labels else labels[:, None] * 2.0 + 1
            examples = TextExamples(["a"] * 5, None, labels)
            right = task.score(task.shape.answers(list(outputs), None), examples).metrics
            constant = task.score(np.zeros(5), examples).metrics
            nothing = {metric: 0.4 if metric.endswith("accuracy") else 0.0 for metric in task.metrics}
            if right != pytest.approx(dict.fromkeys(task.metrics, 1.0)) or constant != nothing:
                wrong.append((task.name, right, constant))
        assert not wrong

    def test_splits_are_pinned_at_their_official_sizes(self):
        for name, parts in pins.TASK_PINS.pinned().items():
            sizes = tuple(parts[split].examples for split in ("train", "dev"))
            assert sizes == (TASKS[name].official or sizes), name

    def test_planning_opens_no_data(self, monkeypatch):
        monkeypatch.setattr(Task, "examples", None)
        wrong = []
        for name, parts in pins.TASK_PINS.pinned().items():
            steps, tokens, flops = expected_work(SYSTEMS["roberta_base"], name, FineTuning(epochs=2, batch_size=16))
            train, shape = parts["train"].examples, TASKS[name].shape
            least, rows = 2 * -(-train // 16), 2 * train * shape.rows
            if isinstance(shape, Spans):  # long passages are several windows
                fits = least <= steps < 4 * least and tokens > 0
            else:
                fits = steps == least and rows * 8 < tokens <= rows * 128
            if not (fits and flops > 0 and len(fingerprint(name)) == 64):
                wrong.append((name, steps, tokens, flops))
        assert not wrong


class TestPins:
    def test_other_examples_are_refused_naming_both(self, official, monkeypatch):
        wanted = pins.measured(TASKS["rte"])
        monkeypatch.setattr(pins.Pins, "pinned", lambda _: {"rte": wanted})
        assert len(pins.checked("rte", "train")) == 3
        path = official / "RTE/train.tsv"
        path.write_text(path.read_text().replace("It rains.", "It rained a lot."))
        with pytest.raises(DataMismatch, match=r"'rte' \(train\).*3 examples, 18 words instead of .* 16 words"):
            pins.checked("rte", "train")

    def test_labels_and_order_count(self, official):
        before = pins.measured(TASKS["rte"])
        path = official / "RTE/train.tsv"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], *lines[:0:-1]]))
        assert pins.measured(TASKS["rte"])["train"] != before["train"]
        assert pins.measured(TASKS["rte"])["dev"] == before["dev"]

    def test_pinning_keeps_the_other_pins(self, official, tmp_path, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setenv("ABLATIONS_DATA", str(official.parent))
        own = pins.Pins("task", tmp_path / "pins.json", task_named, pins.measured)
        monkeypatch.setitem(pin.KINDS, "task", own)
        pin.main("task", "rte")
        pin.main("task", "cola")
        assert list(json.loads((tmp_path / "pins.json").read_text())) == ["cola", "rte"]
        assert own.pinned()["rte"] == pins.measured(TASKS["rte"])


class TestBigramShift:
    @pytest.mark.slow
    def test_is_what_was_pinned(self):
        pytest.importorskip("gensim")
        train, dev = (pins.checked("bigram_shift", split) for split in ("train", "dev"))
        assert train.labels.mean() == dev.labels.mean() == 0.5
        assert not set(train.first) & set(dev.first)

    def test_swaps_two_different_neighbours_but_never_the_first(self):
        assert bigram_shift.swappable(["The", "cat", "saw", "the", "dog,", "once"]) == [1, 2]
        assert bigram_shift.swappable(["The", "the", "The", "the", "The"]) == []
        assert bigram_shift.swappable(["A", "b", "c", "d"]) == []


@pytest.mark.parametrize("name", METRICS)
def test_metrics_agree_with_the_libraries(name):
    noise = np.random.default_rng(0)
    if name in ("spearman", "pearson"):
        labels, answers = noise.integers(0, 6, 50) / 2, noise.normal(size=50)
        reference = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}[name](answers, labels)[0]
    else:
        labels, answers = noise.integers(0, 2, 50), noise.integers(0, 2, 50)
        names = {"accuracy": "accuracy_score", "f1": "f1_score", "matthews": "matthews_corrcoef"}
        reference = getattr(sklearn.metrics, names[name])(labels, answers)
    assert METRICS[name].of(labels, answers) == pytest.approx(reference)


@pytest.mark.parametrize("name", sorted(METRICS.keys() - {"accuracy", "f1"}))
def test_a_correlation_with_what_is_constant_is_zero(name):
    varied, constant = np.array([0, 1, 1, 0, 1]), np.ones(5, dtype=int)
    for labels, answers in ((varied, constant), (constant, varied), (constant, constant)):
        assert METRICS[name].of(labels, answers) == 0.0
        assert METRICS[name].by_example(labels, answers).tolist() == [0.0] * 5


class TestBaselines:
    def test_three_examples_give_all_metrics_and_are_cached(self, official, monkeypatch):
        for name in ("cola", "mrpc", "stsb"):
            for split in ("train", "dev"):
                path = official.parent / "glue" / OFFICIAL[name][0].format(split=split)
                heading, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
                path.write_text("".join([heading, *lines * 20]), encoding="utf-8", newline="")
            found = baselines(name)
            assert set(found) == {"majority", "tfidf"}
            assert all(set(scores) == set(TASKS[name].metrics) for scores in found.values())
            assert found["tfidf"][TASKS[name].main] > found["majority"][TASKS[name].main]  # dev equals train here
        kept = baselines("cola")
        monkeypatch.setattr("lightning_modules.tasks.measured_baselines.examples", None)
        assert baselines("cola") == kept

    def test_the_majority_is_that_of_the_training_examples(self, official):
        path = official / "RTE/dev.tsv"
        path.write_text(path.read_text().replace("\tentailment", "\tnot_entailment"))
        assert baselines("rte")["majority"] == {"accuracy": 0.0}
