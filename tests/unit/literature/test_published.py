"""The published record: every row of it, its sums, and the command that prints it."""

import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.formatting import latex, markdown
from ablations.literature.published_tables import catalogue, find, sheet
from ablations.literature.published_values import (
    COLUMNS,
    chosen,
    read,
    written,
)
from ablations.planning import grids
from lightning_modules.config import ConfigError

TABLES = catalogue()
ROWS = [row for table in TABLES.values() for row in table.rows]


def run(*words):
    ended = CliRunner().invoke(app, ["published", *words], env={"COLUMNS": "60"})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


def cells(name):
    """{(variant, split): {metric: row}} of one table."""
    found = {}
    for row in TABLES[name].rows:
        found.setdefault((row.variant, row.split), {})[row.metric] = row
    return found


def value(name, variant, metric, split="dev"):
    return cells(name)[variant, split][metric].value


class TestRows:
    def test_none_is_lost(self):
        assert len({row.paper for row in ROWS}) == 29
        assert len(ROWS) == 2672

    def test_each_stands_once(self):
        keys = Counter((row.paper, row.table, row.variant, row.metric, row.split) for row in ROWS)
        assert [key for key, count in keys.items() if count > 1] == []

    def test_the_direction_follows_from_the_metric(self):
        lower = re.compile(r"\b(ppl|PPL|bits|error|Parameters|FLOPs|time|distance|relative size)\b")
        for row in ROWS:
            rule = "" if row.unit == "text" else "lower" if lower.search(row.metric) else "higher"
            assert row.better == rule, (row.paper, row.table, row.metric)

    def test_configurations_agree_with_printed_counts(self):
        counted = [row for row in ROWS if row.metric == "Parameters" and row.knobs.get("parameters_M")]
        assert len(counted) > 30
        assert all(row.value == row.knobs["parameters_M"] for row in counted)


class TestSpotValues:
    """By hand from the papers."""

    def test_values(self):
        intrinsic = "pairs from SQuAD and RACE dev"
        assert value("albert.t5", "NSP", "SOP acc", intrinsic) == "52.0"
        assert value("albert.t5", "SOP", "SOP acc", intrinsic) == "86.5"
        assert value("bert.t6", "L3 H768 A12", "LM ppl", "held-out") == "5.84"
        assert value("roberta.t2", "DOC-SENTENCES (no NSP)", "SQuAD2.0 F1") == "79.7"
        assert value("bert.t1", "OpenAI GPT", "QNLI", "GLUE test (server)") == "87.4"
        assert value("bert.t1-v1", "OpenAI GPT", "QNLI", "GLUE test (server)") == "88.1"

    def test_grids_show_what_they_showed(self):
        sources = {(g, s.file, s.table): chosen(s) for g in grids.available() for s in grids.read(g).published}
        assert all(sources.values())
        ner = sources["feature_layers", "bert", "T7 NER"]
        assert {r.knobs["features"]: r.value for r in ner}["concatenated last four"] == "96.1"
        early = sources["albert_size_ladder", "albert", "T2-early main, of an earlier version"]
        assert [r.value for r in early if r.metric == "Avg"] == ["76.6"]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def albert_avg(row):
    """F1 and EM of one SQuAD count as one score."""
    squad = [mean((row[f"SQuAD{v} F1"], row[f"SQuAD{v} EM"])) for v in ("1.1", "2.0")]
    return mean([*squad, row["MNLI"], row["SST-2"], row["RACE"]])


def glue_avg(row):
    """Pairs of measures or of dev sets count as one score, the diagnostics not at all; WNLI at its majority."""
    pairs = [("MRPC F1", "MRPC acc"), ("STS-B Pearson", "STS-B Spearman"), ("QQP F1", "QQP acc"), ("MNLI-m", "MNLI-mm")]
    single = ["CoLA MCC", "SST-2", "QNLI", "RTE"]
    return mean([*(mean((row[a], row[b])) for a, b in pairs), *(row[n] for n in single), row.get("WNLI", 65.1)])


def all_others(metric):
    return lambda row: mean(number for name, number in row.items() if name != metric)


ALBERT = ["t2", "t2-early", "t3", "t4", "t5", "t6", "t7", "t8", "t11", "t12", "t13", "readme"]
AVERAGES = {
    **{f"albert.{key}": ("Avg", albert_avg) for key in ALBERT},
    "bert.t1": ("Average", all_others("Average")),
    "bert.t1-v1": ("Average", all_others("Average")),
    "bertcompact.readme": ("GLUE score", glue_avg),
    "cramming.glue": ("GLUE avg", all_others("GLUE avg")),
    "distilbert.t1": ("GLUE macro score", all_others("GLUE macro score")),
    "gpt.t5": ("Avg", all_others("Avg")),
    "gpt2.t4": ("CNN/DM R-AVG", all_others("CNN/DM R-AVG")),
    "spanbert.t2": ("Avg", all_others("Avg")),
    "spanbert.t5": ("Avg (incl. WNLI majority)", glue_avg),
    "xlm.t1": ("XNLI Avg", all_others("XNLI Avg")),
}  # fmt: skip
ODD = {  # one number is off as printed; most columns are missing here
    ("distilbert.t1", "BERT-base"),
    ("bert.t1-v1", "Pre-OpenAI SOTA"),
}


class TestSums:
    @pytest.mark.parametrize("name", AVERAGES)
    def test_averages_follow_from_their_columns(self, name):
        metric, rule = AVERAGES[name]
        checked = 0
        for (variant, _), row in cells(name).items():
            if metric in row and (name, variant) not in ODD:
                numbers = {one.metric: one.number for one in row.values()}
                assert rule(numbers) == pytest.approx(numbers[metric], abs=0.1), variant  # both sides are rounded
                checked += 1
        assert checked


class TestLayout:
    def test_every_value_is_printed_exactly_once(self):
        for name, table in TABLES.items():
            found = sheet(table)
            printed = [entry for row in found.rows for entry in row[1:] if entry]
            assert Counter(printed) == Counter(row.value for row in table.rows), name
            assert [row[0] for row in found.rows] == list(dict.fromkeys(row.variant for row in table.rows))
            assert {len(row) for row in found.rows} == {len(found.headings)}
            assert len(set(found.headings)) == len(found.headings), name
            assert markdown(found)
            assert latex(found)

    def test_names_find_tables(self):
        assert list(find(["albert.T4", "bert.t6"], TABLES)) == ["albert.t4", "bert.t6"]
        assert list(find(["albert.t9"], TABLES)) == ["albert.t9-glue-single", "albert.t9-glue-ensembles"]

    def test_a_repeated_cell_is_refused(self):
        table = TABLES["albert.t4"]
        doubled = type(table)(table.file, table.paper, table.table, (*table.rows, table.rows[0]))
        with pytest.raises(ConfigError, match=r"T4 sharing: line \d+ repeats Parameters of E=768 all-shared"):
            sheet(doubled)


class TestMalformed:
    HEADER = ",".join([*COLUMNS, "num_layers"])
    ROW = "P,,T1 x,a,MNLI,84.2,%,dev,higher,paper,copy,,12"

    def read(self, folder, *rows, header=HEADER):
        (folder / "p.csv").write_text("\n".join([header, *rows]) + "\n")
        return read("p", folder=folder)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (ROW.replace("84.2", "84,2"), "p.csv:3: has 14 cells, but the header has 13"),
            (ROW.replace("84.2", "nan"), "p.csv:3: the value 'nan' is not a number"),
            (ROW.replace("84.2", "O(n)"), r"p.csv:3: the value 'O\(n\)' is not a number"),
            (ROW.replace("%", "text"), "p.csv:3: better is 'higher', but text cannot be ordered"),
            (ROW.replace("higher", ""), "p.csv:3: better is ''. Allowed: higher, lower."),
            (ROW.replace("copy", "copied"), "p.csv:3: confidence is 'copied'. Did you mean 'copy'"),
            (ROW.replace("T1 x", ""), "p.csv:3: 'table' is empty"),
            (ROW, "p.csv:3: repeats line 2: a, MNLI"),
        ],
    )
    def test_bad_rows_are_named_with_their_lines(self, tmp_path, row, message):
        with pytest.raises(ConfigError, match=message):
            self.read(tmp_path, self.ROW, row)

    def test_unknown_columns_are_refused(self, tmp_path):
        with pytest.raises(ConfigError, match=r"p.csv:1: there is no column 'layer'. Did you mean 'layers'"):
            self.read(tmp_path, header=self.HEADER.replace("num_layers", "layer"))

    def test_a_text_is_a_value_too(self, tmp_path):
        (row,) = self.read(tmp_path, self.ROW.replace("84.2,%,dev,higher", "O(n),text,,"))
        assert (row.value, row.better) == ("O(n)", "")


class TestCommand:
    def test_csv_can_be_read_back(self, tmp_path):
        (tmp_path / "all.csv").write_text(run("--format", "csv")[1], encoding="utf-8")
        again = read("all", folder=tmp_path)
        assert len(again) == len(ROWS)
        for old, new in zip(ROWS, again, strict=True):
            assert {c: getattr(old, c) for c in COLUMNS} == {c: getattr(new, c) for c in COLUMNS}
            assert {k: v for k, v in old.knobs.items() if v} == {k: v for k, v in new.knobs.items() if v}
        assert written(again) == (tmp_path / "all.csv").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("name", "answer"),
        [
            ("albert.t44", "albert.t44: there is no such table. Did you mean 'albert.t4'?"),
            ("alberta", "alberta: there is no such paper or table. Did you mean 'albert'?"),
            ("bertt6", "Did you mean 'bert.t6'?"),
            ("qqqq", "Allowed: 24hbert, albert, alexnet"),
        ],
    )
    def test_unknown_names_get_the_nearest(self, name, answer):
        code, output = run(name, "bert.t6")
        assert code == 2
        assert answer in output
