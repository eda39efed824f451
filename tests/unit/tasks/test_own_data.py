"""A user's own data: from a file of JSON lines of any shape to a fine-tuning, with own splits."""

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from lightning_modules.config import ConfigError, identity
from lightning_modules.data import DataMismatch
from lightning_modules.finetuning.run import finetune
from lightning_modules.places import project
from lightning_modules.tasks import TASKS, fingerprint, pins, rows
from lightning_modules.tasks.measured_baselines import baselines
from lightning_modules.tasks.shapes.choice import Choice
from lightning_modules.tasks.shapes.coreference import Coreference
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.tagging import Tagging
from lightning_modules.tasks.shapes.texts import TextExamples, Texts
from tests.messages import names
from tests.own_rows import own
from tests.tuning import tunings

DOCUMENT = project() / "docs" / "how-to" / "data_set.md"


def words(number, most=6):
    noise = np.random.default_rng(number)
    return [f"w{word:02d}" for word in noise.integers(0, 59, int(noise.integers(3, most)))]


def example(kind, number):
    """One line of each shape; texts differ, every third occurs in two examples."""
    text = words(number // 3 * 3 + number % 3 // 2)
    known = f"x{number} " + " ".join(text)
    answers = [{"text": f"x{number}"}]
    return {
        "sentence": {"text": known, "label": ("no", "yes")[number % 2]},
        "score": {"text": known, "label": number / 4},
        "pair": {"first": " ".join(text), "second": known, "label": number % 2},
        "choice": {"context": " ".join(text), "options": [known, "w01", "w02"], "label": number % 3},
        "span": {"context": known, "question": "w41", "answers": answers},
        "unanswerable": {"context": known, "question": "w41", "answers": answers[number % 2 :]},
        "tags": {"words": text, "tags": ["B-X", "I-X", *["O"] * (len(text) - 2)], "document": number // 2},
        "pronoun": {
            "id": str(number), "text": f"Ann{number} {known} her Eve",
            "pronoun": {"text": "her"}, "a": {"text": f"Ann{number}"}, "b": {"text": "Eve"},
            "label": ("A", "B", "neither")[number % 3],
        },
    }[kind]  # fmt: skip


SHAPES = {
    "sentence": Texts(labels=("no", "yes")),
    "score": Texts(),
    "pair": Texts(labels=("no", "yes"), pair=True),
    "choice": Choice(options=3),
    "span": Spans(),
    "unanswerable": Spans(unanswerable=True),
    "tags": Tagging(("X",), context=True),
    "pronoun": Coreference(),
}


def write(path, lines):
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize("kind", SHAPES)
def test_a_file_of_every_shape_is_fine_tuned_on(kind, home, tiny, tmp_path, monkeypatch):
    write(home / "mine.jsonl", [example(kind, n) for n in range(60)])
    task = own("mine", "Mine?", SHAPES[kind], train="mine.jsonl", held_out=0.25)
    monkeypatch.setitem(TASKS, "mine", task)
    fitted = finetune(tunings(epochs=1)[1](tiny, task="mine"), tmp_path / "run")
    assert {f"mine.{metric}" for metric in task.metrics} <= fitted.metrics.keys()
    assert {f"mine.{task.main}.{method}" for method in task.shape.methods} <= fitted.metrics.keys()
    assert np.isfinite(list(fitted.metrics.values())).all()


@pytest.mark.parametrize("kind", SHAPES)
def test_each_example_is_on_one_side_with_others_of_its_text(kind, home):
    write(home / "mine.jsonl", [example(kind, n) for n in range(90)])
    reader = own("mine", "Mine?", SHAPES[kind], train="mine.jsonl", held_out=0.25).rows
    train, dev = (list(reader(split)) for split in ("train", "dev"))
    assert len(train) + len(dev) == 90
    assert 8 < len(dev) < 40
    sides = [{SHAPES[kind].text_of(row) for row in rows} for rows in (train, dev)]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("kind", SHAPES)
def test_right_answers_of_every_shape_are_told_apart(kind, home):
    untagged = {"tags": ["O"] * len(example("tags", 0)["words"])} if kind == "tags" else {}
    write(home / "mine.jsonl", [example(kind, n) for n in (0, 1, 5)])
    write(home / "same.jsonl", [example(kind, 0) | untagged] * 3)
    task = own("mine", "Mine?", SHAPES[kind], train="mine.jsonl", dev="same.jsonl")
    several, one = ({*task.examples(split).gold()} for split in ("train", "dev"))
    assert len(several) > 1
    assert len(one) == 1


def squad(lines):
    asked = [line | {"answers": [mark | {"answer_start": 0} for mark in line["answers"]]} for line in lines]
    passages = [{"context": line["context"], "qas": [one]} for line, one in zip(lines, asked, strict=True)]
    return json.dumps({"data": [{"title": "t", "paragraphs": passages}]})


def table(lines, separator=",", mark='"'):
    cells = [
        [mark + str(value).replace('"', '""' if mark else '"') + mark for value in line.values()] for line in lines
    ]
    return "\n".join(map(separator.join, [list(lines[0]), *cells])) + "\n"


def test_the_same_examples_in_every_form_are_one_task(home):
    """Columns have other names, and tables may have more of them; quoted cells may hold line ends."""
    texts = ['so "good"', "NA", "null", "Café, closed", "two\nlines", "01"]
    pairs = [{"first": text, "second": f"x{n}", "label": ("no", "yes")[n % 2]} for n, text in enumerate(texts)]
    plain = [pair for pair in pairs if "\n" not in pair["first"]]
    other = [{"n": n, "a": pair["first"], "b": pair["second"], "c": pair["label"]} for n, pair in enumerate(pairs)]
    spans = [{"id": str(n)} | example("span", n) for n in range(9)]
    tags = [{"words": words(n), "tags": ["B-X", "I-X", *["O"] * (len(words(n)) - 2)]} for n in range(9)]
    tagged = "\n\n".join("\n".join(map(" ".join, zip(*line.values(), strict=True))) for line in tags)
    columns = {"first": "a", "second": "b", "label": "c"}
    forms = [  # shape, the same as JSON lines, other forms: file, text, keys of the row
        ("pair", pairs, [("a.csv", table(pairs), {}), ("b.csv", table(other), {"columns": columns})]),
        ("pair", plain, [("a.tsv", table(plain, "\t", ""), {}), ("q.tsv", table(plain, "\t"), {"quoted": True})]),
        ("span", spans, [("a.json", squad(spans), {})]),
        ("tags", tags, [("a.conll", f"-DOCSTART- O\n\n{tagged}\n", {})]),
    ]
    wrong = []
    for kind, lines, others in forms:
        write(home / "mine.jsonl", lines)
        shape = Tagging(("X",)) if kind == "tags" else SHAPES[kind]
        expected = own("mine", "Mine?", shape, train="mine.jsonl", dev="mine.jsonl").examples("dev").items_for_pin()
        for file, text, keys in others:
            (home / file).write_text(text)
            found = own("mine", "Mine?", shape, train=file, dev=file, **keys).examples("dev").items_for_pin()
            if found != expected:
                wrong.append((file, found, expected))
    assert not wrong


MISTAKES = {  # file -> its text, keys of the row, what is said
    "a.csv": ('text,label\n"It rains,no\n', {}, ("line 2", "quoted: false")),
    "b.csv": ("text,label\nIt rains, again,no\n", {}, ("line 2", "3 fields instead of 2")),
    "c.csv": ("review,stars\nGood.,no\n", {}, ("no text", "review, stars", "columns: {text: ...}")),
    "d.csv": ("text,label\nGood.,no\n", {"columns": {"text": "txt", "label": "label"}}, ("no column txt", "'text'?")),
    "e.csv": ("text,label\nGood.,maybe\n", {}, ("line 2", "'maybe'", "no, yes")),
    "f.csv": ('{"text": "A.", "label": "no"}\n', {}, ("JSON lines", ".jsonl")),
    "g.csv": ("", {}, ("empty",)),
    "h.csv": ("text,label\n ,no\n", {}, ("line 2", "empty text")),
    "a.jsonl": ("text,label\nIt rains.,no\n", {}, ("comma-separated", ".csv")),
    "a.json": ('{"text": "A.", "label": "no"}', {}, ("SQuAD", ".jsonl")),
    "a.xlsx": ("x", {}, ("no known form", ".csv", ".parquet")),
    "a.parquet": ("x", {}, ("a.parquet",)),
}


def test_mistakes_in_files_of_ones_own_are_named_in_a_line_or_two(home):
    wrong = []
    for file, (text, keys, said) in MISTAKES.items():
        (home / file).write_text(text)
        with pytest.raises(ConfigError) as caught:
            own("mine", "Mine?", SHAPES["sentence"], train=file, dev=file, **keys).examples("dev")
        if not names(str(caught.value), file, *said) or len(str(caught.value).splitlines()) > 3:
            wrong.append((file, str(caught.value)))
    assert not wrong


ROWS = {  # what stands in the place of a line of the row of the guide -> what is said
    "answer: class": ("answer: clas", ("answer", "'class'?")),
    "labels: [bad, good]": ("label: [bad, good]", ("label", "'labels'?")),
    "  answer: class\n  labels: [bad, good]": ("  answer: number\n  labels: [bad, good]", ("labels", "number", "none")),
    "  labels: [bad, good]\n": ("", ("labels", "list them")),
    "  train: reviews.csv\n": ("", ("train", "hub")),
    "train: reviews.csv": ("train: reviews.csv\n  shape: {pairs: true}", ("pairs", "'pair'?")),
    "train: reviews.csv\n": ("train: reviews.csv\n  held_out: 2\n", ("held_out", "less than 1")),
    "reviews:\n": ("my reviews:\n", ("my reviews", "letters")),
    "title:": ("title: :", ("YAML",)),
    "columns": ("metrics: [f2]\n  columns", ("f2", "accuracy, f1")),
}


def test_mistakes_in_a_row_are_named_with_file_and_key(home):
    (row,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (home / "reviews.csv").write_text(
        "n,review,stars\n" + "".join(f"{n},Film {n},{'bad' if n % 2 else 'good'}\n" for n in range(60))
    )
    (home / "reviews.yaml").write_text(row)
    assert len(rows.read([home])["reviews"].examples("train")) > 40
    wrong = []
    for before, (after, said) in ROWS.items():
        assert before in row
        (home / "reviews.yaml").write_text(row.replace(before, after, 1))
        with pytest.raises(ConfigError) as caught:
            rows.read([home])
        if not names(str(caught.value), "reviews.yaml", *said) or len(str(caught.value).splitlines()) > 3:
            wrong.append((after, str(caught.value)))
    assert not wrong


# two rows over one file that differ in one argument
PAIRS = {
    "held_out": ("sentence", {"held_out": 0.2}, {"held_out": 0.4}),
    "dev": ("sentence", {"held_out": 0.2}, {"dev": "mine.jsonl"}),
    "order of labels": ("sentence", {"shape": Texts(("no", "yes"))}, {"shape": Texts(("yes", "no"))}),
    "context of tags": ("tags", {"shape": Tagging(("X",))}, {"shape": Tagging(("X",), context=True)}),
    "both orders": ("pair", {"shape": SHAPES["pair"]}, {"shape": Texts(("no", "yes"), pair=True, symmetric=True)}),
    "metrics of numbers": ("score", {"metrics": ("spearman",)}, {"metrics": ("spearman", "pearson")}),
}


def row(kind, shape=None, **arguments):
    return own("mine", "Mine?", shape or SHAPES[kind], train="mine.jsonl", **arguments)


def _prints(kind, *rows):
    """The fingerprints of rows, one after the other; each is also read as the runs of its fingerprint would be."""
    found = []
    for arguments in rows:
        TASKS["mine"] = row(kind, **arguments)
        found.append(fingerprint("mine"))
        for split in ("train", "dev"):
            pins.checked("mine", split)
    return found


@pytest.mark.parametrize("case", PAIRS)
def test_a_row_with_another_argument_is_another_run_in_either_order(case, home, monkeypatch):
    kind, one, other = PAIRS[case]
    monkeypatch.setitem(TASKS, "mine", None)
    write(home / "mine.jsonl", [example(kind, n) for n in range(40)])
    there, back = _prints(kind, one, other, one), _prints(kind, other, one, other)
    assert there[0] == there[2] == back[1]
    assert back[0] == back[2] == there[1]
    assert there[0] != there[1]


@pytest.mark.slow
@pytest.mark.nightly
def test_processes_agree_on_the_fingerprint_of_a_row(home, monkeypatch):
    """Two processes one after the other, in either order, and this one, on one cache."""
    write(home / "mine.jsonl", [example("sentence", n) for n in range(40)])
    code = (
        "import sys; from lightning_modules.tasks import TASKS, fingerprint; "
        "from tests.own_rows import own; from lightning_modules.tasks.shapes.texts import Texts; "
        "shape, share = Texts(labels=('no', 'yes')), float(sys.argv[1]); "
        "TASKS['mine'] = own('mine', 'Mine?', shape, train='mine.jsonl', held_out=share); print(fingerprint('mine'))"
    )
    shares = ("0.2", "0.4", "0.2")
    run = [
        subprocess.run(
            [sys.executable, "-c", code, share],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            cwd=project(),
        )
        for seed, share in enumerate(shares)
    ]
    monkeypatch.setitem(TASKS, "mine", None)
    here = _prints("sentence", *({"held_out": float(share)} for share in shares))
    assert [ended.stdout.strip() for ended in run] == here, run[0].stderr
    assert len(set(here)) == 2


def longer(split, least=0, *, more=None):
    """A reader of one's own: the texts that are longer, of a file that it reads by another reader."""
    least = least if more is None else int(np.sum(more))
    return (one for one in row("sentence", held_out=0.4).rows(split) if len(one.first) > least)


class Longer:
    def __init__(self, least):
        self.least = least

    def rows(self, split):
        return longer(split, self.least)


def _closed(least):
    return lambda split: longer(split, least)


READERS = {
    "partial of a large array": lambda least: functools.partial(longer, more=np.repeat(least / 4000, 4000)),
    "bound method": lambda least: Longer(least).rows,
    "closure": _closed,
}


@pytest.mark.parametrize("kind", READERS)
def test_whatever_a_reader_of_ones_own_holds_is_seen(kind, home, monkeypatch):
    write(home / "mine.jsonl", [example("sentence", n) for n in range(40)])
    found = []
    for least in (0, 16, 0):
        files = row("sentence").origin
        monkeypatch.setitem(TASKS, "mine", dataclasses.replace(row("sentence"), rows=READERS[kind](least), files=files))
        found.append(fingerprint("mine"))
        pins.checked("mine", "dev")
    assert found[0] == found[2] != found[1]


def test_a_reader_that_changes_without_a_sign_is_refused_once_and_then_read_anew(home, monkeypatch):
    write(home / "mine.jsonl", [example("sentence", n) for n in range(40)])
    limit = {"least": 0}
    rows = lambda split: longer(split, **limit)  # noqa: E731
    task = dataclasses.replace(row("sentence"), rows=rows, files=row("sentence").origin)
    monkeypatch.setitem(TASKS, "mine", task)
    before = fingerprint("mine")
    limit["least"] = 16
    with pytest.raises(DataMismatch, match="plan it again"):
        pins.checked("mine", "dev")
    assert fingerprint("mine") != before
    assert pins.checked("mine", "dev")


@dataclasses.dataclass(frozen=True)
class Cleaned(Texts):
    """A shape of one's own, whose texts are cleaned before they are read."""

    clean: object = None


class Undecorated(Texts):
    """A shape that takes an argument no field has."""

    def __init__(self, lower):
        super().__init__(("no", "yes"))
        object.__setattr__(self, "lower", lower)


@pytest.mark.parametrize("value", [str.lower, lambda text: text, np.zeros(3), float("nan"), {1: 2}, "abc".upper])
def test_a_shape_that_cannot_identify_runs_is_refused(value, home, monkeypatch):
    write(home / "mine.jsonl", [example("sentence", n) for n in range(40)])
    monkeypatch.setitem(TASKS, "mine", row("sentence", Cleaned(("no", "yes"), clean=value)))
    with pytest.raises(ConfigError, match=r"field clean .*'mine'"):
        fingerprint("mine")
    monkeypatch.setitem(TASKS, "mine", row("sentence", Undecorated(lower=True)))
    with pytest.raises(ConfigError, match=r"Undecorated.*dataclass"):
        fingerprint("mine")


def test_a_shape_of_ones_own_is_told_by_its_fields(home, monkeypatch):
    monkeypatch.setitem(TASKS, "mine", None)
    write(home / "mine.jsonl", [example("sentence", n) for n in range(40)])
    values = (None, "lower", b"lower".hex(), ("a", "b"), frozenset(("a", "b")), {"a": 1}, 1.5)
    prints = _prints("sentence", *({"shape": Cleaned(("no", "yes"), clean=value)} for value in (*values, None)))
    assert len(set(prints)) == len(values)
    assert prints[0] == prints[-1]
    assert fingerprint("mine") not in _prints("sentence", {"shape": Texts(("no", "yes"))})


UNFIT = {  # of three labels, of numbers, of questions that all have answers, of parts that no line names
    "f1": Texts(("no", "yes", "both")),
    "accuracy": Texts(),
    "matthews": Texts(pair=True),
    "no_answer_accuracy": Spans(),
    "best_f1": Spans(),
    "middle_accuracy": Choice(options=3),
    "mismatched_accuracy": Texts(("no", "yes")),
}


def test_a_metric_that_does_not_fit_the_labels_is_refused_with_what_fits():
    wrong = []
    for metric, shape in [*UNFIT.items(), ("f1", Texts())]:
        try:
            own("mine", "Mine?", shape, train="train.jsonl", metrics=(*shape.usual, metric))
        except ConfigError as error:
            if names(str(error), metric, "mine") and all(fitting in str(error) for fitting in shape.usual):
                continue
        wrong.append((metric, shape))
    assert not wrong


def test_every_metric_that_fits_has_a_value():
    noise = np.random.default_rng(0)
    for kind, shape in {"two": SHAPES["pair"], "three": UNFIT["f1"], "numbers": SHAPES["score"]}.items():
        fitting = tuple(metric for metric in shape.measures if metric.rpartition("_")[0] not in shape.parts)
        task = own("mine", "Mine?", shape, train="mine.jsonl", metrics=fitting)
        gold = noise.integers(0, shape.classes, 40) if shape.classes else noise.normal(size=40)
        answers = noise.permutation(gold)
        scores = task.score(answers, TextExamples(["x"] * 40, ["x"] * 40, gold)).metrics
        assert scores.keys() == set(fitting), kind
        assert np.isfinite(list(scores.values())).all(), kind
        if "matthews" in scores:
            assert scores["matthews"] == pytest.approx(matthews_corrcoef(gold, answers)), kind


def test_a_pinned_row_is_its_examples_until_its_definition_changes(monkeypatch):
    examples = {split: part.sha256 for split, part in pins.TASK_PINS.pinned()["wnut17"].items()}
    assert fingerprint("wnut17") == identity(examples)
    changed = dataclasses.replace(TASKS["wnut17"], shape=dataclasses.replace(TASKS["wnut17"].shape, context=True))
    monkeypatch.setitem(TASKS, "wnut17", changed)
    assert fingerprint("wnut17") != identity(examples)


def test_a_metric_that_answers_give_makes_no_other_run_and_has_simple_methods(home, monkeypatch):
    write(home / "mine.jsonl", [example("sentence", n) for n in range(60)])
    found = {}
    for metrics in (("accuracy",), ("accuracy", "f1"), ("f1", "accuracy")):
        monkeypatch.setitem(TASKS, "mine", row("sentence", metrics=metrics))
        found[fingerprint("mine")] = baselines("mine")
        assert baselines("mine")["majority"].keys() == set(metrics)
    assert len(found) == 1


WRONG = {
    "a misspelt key": ("choice", {"options": ["a", "b", "c"], "label": 0, "contxt": "A."}, ("contxt", "context")),
    "another key": ("sentence", {"text": "A.", "label": "no", "comment": ""}, ("comment", "text", "label")),
    "no number": ("score", '{"text": "A.", "label": NaN}', ("label",)),
    "too few options": ("choice", {"context": "A.", "options": ["a", "b"], "label": 0}, ("2", "3")),
    "no such option": ("choice", {"context": "A.", "options": ["a", "b", "c"], "label": 3}, ("3",)),
    "an answer elsewhere": ("span", {"context": "A b.", "question": "c", "answers": [{"text": "c"}]}, ("c", "occur")),
    "an answer twice": ("span", {"context": "b b", "question": "c", "answers": [{"text": "b"}]}, ("2", "start")),
    "a tag too many": ("tags", {"words": ["a"], "tags": ["O", "O"]}, ("1", "2")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_named(name, home):
    kind, line, words = WRONG[name]
    write(home / "mine.jsonl", [example(kind, 0), line, *(example(kind, n) for n in range(1, 9))])
    task = own("mine", "Mine?", SHAPES[kind], train="mine.jsonl", dev="mine.jsonl")
    with pytest.raises(ConfigError) as caught:
        task.examples("train")
    (problem,) = caught.value.problems
    assert names(str(problem), "mine.jsonl", "line 2", *words)


def test_what_is_missing_or_too_small_is_said(home):
    task = own("mine", "Mine?", SHAPES["sentence"], train="mine.jsonl")
    with pytest.raises(ConfigError, match=r"mine\.jsonl is missing"):
        task.examples("train")
    write(home / "mine.jsonl", [example("sentence", 0)])
    with pytest.raises(ConfigError, match="held out"):
        [task.examples(split) for split in ("train", "dev")]


def test_the_examples_of_the_document_are_read(home):
    found = re.findall(r"^\| .* \| (`.*`) \| `(\{.*\})` \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(found) == len(SHAPES)
    for number, (keys, line) in enumerate(found):
        answer, *settings = re.findall(r"`(.*?)`", keys)
        (home / "mine.jsonl").write_text(f"{line}\n")
        head = f"mine{number}:\n  title: Mine?\n  train: mine.jsonl\n  dev: mine.jsonl"
        (home / "mine.yaml").write_text("\n  ".join([head, f"answer: {answer}", *settings]))
        assert len(rows.read([home])[f"mine{number}"].examples("train")) == 1, keys


def test_a_key_misspelt_in_every_line_is_one_problem(home):
    (home / "mine.jsonl").write_text('{"text": "It rains.", "lable": "no"}\n' * 40)
    task = own("mine", "Mine?", SHAPES["sentence"], train="mine.jsonl")
    with pytest.raises(ConfigError) as caught:
        task.examples("train")
    (problem,) = map(str, caught.value.problems)
    assert names(problem, "mine.jsonl", "lines 1, 2, 3 and 37 more", "has no label", "'lable' to 'label'")
