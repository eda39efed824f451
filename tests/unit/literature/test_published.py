"""The published record: every row of it, its sums, and the command that prints it."""

import csv
import io
import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.formatting import latex, markdown
from ablations.literature import published_values
from ablations.literature.published_tables import catalogue, find, plain_name, sheet
from ablations.literature.published_values import (
    COLUMNS,
    CONFIDENCE,
    CONFIGURATION,
    FOLDER,
    NAMES,
    chosen,
    read,
    written,
)
from ablations.planning import grids
from lightning_modules.config import ConfigError

TABLES = catalogue()
ROWS = [row for table in TABLES.values() for row in table.rows]
COUNTS = {
    "24hBERT": 3, "ALBERT": 640, "AlexNet": 1, "AWD-LSTM": 48, "BERT": 233, "BERT-compact": 60, "Blog comparison": 21,
    "Cramming": 40, "DistilBERT": 51, "ELMo": 61, "GPT": 94, "GPT-2": 80, "GPT-3": 17, "Khandelwal 2018": 1,
    "LTH-BERT": 2, "Mask15": 133, "Michel 2019": 14, "ModernBERT": 5, "MosaicBERT": 2, "Niven and Kao 2019": 33,
    "Renda 2020": 1, "RoBERTa": 216, "SpanBERT": 220, "SQuAD2.0 leaderboard": 10, "Transformer": 95,
    "Transformer-XL": 102, "ULMFiT": 80, "XLM": 130, "XLNet": 279,
}  # fmt: skip


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
        assert Counter(row.paper for row in ROWS) == COUNTS
        assert len(ROWS) == 2672

    def test_each_stands_once(self):
        keys = Counter((row.paper, row.table, row.variant, row.metric, row.split) for row in ROWS)
        assert [key for key, count in keys.items() if count > 1] == []

    @pytest.mark.parametrize("name", published_values.files())
    def test_files_share_one_schema(self, name):
        header = (FOLDER / name).read_text(encoding="utf-8").splitlines()[0].split(",")
        fixed, names = set(COLUMNS), set(NAMES)
        assert [c for c in header if c in fixed] == list(COLUMNS)
        assert [c for c in header if c in names] == [c for c in NAMES if c in header]
        assert [c for c in header if c not in fixed | names] == [c for c in CONFIGURATION if c in header]
        papers = {plain_name(row.paper) for row in read(name)}
        assert name == "others.csv" or papers == {plain_name(name.removesuffix(".csv"))}

    def test_the_direction_follows_from_the_metric(self):
        lower = re.compile(r"\b(ppl|PPL|bits|error|Parameters|FLOPs|time|distance|relative size)\b")
        for row in ROWS:
            rule = "" if row.unit == "text" else "lower" if lower.search(row.metric) else "higher"
            assert row.better == rule, (row.paper, row.table, row.metric)

    def test_each_says_where_it_is_from(self):
        assert {row.confidence for row in ROWS} == set(CONFIDENCE)
        assert not [row for row in ROWS if re.search(r"\.txt|transcript|\bseeds? 0\d", f"{row.source} {row.note}")]

    def test_configurations_agree_with_printed_counts(self):
        counted = [row for row in ROWS if row.metric == "Parameters" and row.knobs.get("parameters_M")]
        assert len(counted) > 30
        assert all(row.value == row.knobs["parameters_M"] for row in counted)


class TestSpotValues:
    """By hand from the papers."""

    def test_albert_sentence_objectives(self):
        intrinsic = "pairs from SQuAD and RACE dev"
        assert value("albert.t5", "NSP", "SOP acc", intrinsic) == "52.0"
        assert value("albert.t5", "SOP", "SOP acc", intrinsic) == "86.5"
        assert [value("albert.t5", v, "Avg") for v in ("None", "NSP", "SOP")] == ["79.0", "79.2", "80.1"]

    def test_bert_sizes(self):
        assert value("bert.t6", "L3 H768 A12", "LM ppl", "held-out") == "5.84"
        assert value("bert.t6", "L6 H768 A3", "MNLI-m") == "80.6"
        assert value("bert.t6", "L24 H1024 A16", "MRPC") == "87.8"

    def test_roberta_formats(self):
        assert value("roberta.t2", "DOC-SENTENCES (no NSP)", "SQuAD2.0 F1") == "79.7"
        assert value("roberta.t2", "SENTENCE-PAIR (+NSP)", "RACE") == "63.0"
        assert "SQuAD1.1 F1" not in cells("roberta.t2")["XLNet_BASE (K=7)", "dev"]

    def test_versions_stay_apart(self):
        french = [(r.table, r.value) for r in ROWS if r.variant == "Transformer (big)" and "en-fr BLEU" in r.metric]
        assert french == [("T2 WMT14", "41.8"), ("T2-early WMT14, of the earlier version", "41.0")]
        assert {r.variant for r in TABLES["albert.t2-early"].rows} == {"BERT-xlarge"}
        assert "BERT-xlarge" not in {r.variant for r in TABLES["albert.t2"].rows}
        assert "Speedup" not in {r.metric for r in TABLES["albert.t2-early"].rows}
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
NOT_RECOMPUTED = {
    "albert.t9-glue-ensembles": "ensembles: the leaderboard counts measures and diagnostics that are not printed",
    "roberta.t5-glue-ensembles": "ensembles: the leaderboard counts measures and diagnostics that are not printed",
    "gpt.t4": "the GLUE score counts tasks of other tables and measures that are not printed",
    "spanbert.t6": "the mean of all tasks, of which two are printed",
    "spanbert.t7": "the mean of all tasks, of which two are printed",
    "distilbert.t4": "changes of a mean", "distilbert.abstract": "a share", "modernbert.t1": "no columns beside it",
    "mosaicbert.abstract": "no columns beside it", "mosaicbert.readme": "no columns beside it",
}  # fmt: skip
ODD = {  # one number is off as printed; most columns are missing here
    ("distilbert.t1", "BERT-base"),
    ("bert.t1-v1", "Pre-OpenAI SOTA"),
}


def _averages(row):
    named = re.search(r"^(?!Coref).*(\bAvg\b|\bavg\b|Average$|GLUE|R-AVG)", row.metric)
    return row.unit != "text" and named is not None


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

    def test_no_average_is_forgotten(self):
        with_one = {name for name, table in TABLES.items() if any(_averages(row) for row in table.rows)}
        assert with_one == set(AVERAGES) | set(NOT_RECOMPUTED)

    def test_race_is_its_two_parts(self):
        odd = set()
        for name in find(["albert.t10", "gpt.t3", "roberta.t7", "xlnet.t2"], TABLES):
            for (variant, _), row in cells(name).items():
                if "RACE high" in row:
                    whole = (1436 * row["RACE middle"].number + 3498 * row["RACE high"].number) / 4934
                    if whole != pytest.approx(row["RACE"].number, abs=0.1):
                        odd.add((name, variant))
        assert odd == {
            ("albert.t10-squad-race-single", "RoBERTa"), ("roberta.t7", "RoBERTa"), ("gpt.t3", "BiAttention MRU (9x)"),
        }  # fmt: skip

    def test_f1_follows_from_precision_and_recall(self):
        odd = set()
        for name in ("spanbert.t3", "spanbert.t4"):
            for (variant, _), row in cells(name).items():
                for task in {metric[:-2] for metric in row if metric.endswith(" P")}:
                    p, r = row[f"{task} P"].number, row[f"{task} R"].number
                    if 2 * p * r / (p + r) != pytest.approx(row[f"{task} F1"].number, abs=0.1):
                        odd.add((variant, task))
        assert odd == {("Our BERT", "Coref CEAF")}


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

    def test_columns_stand_as_printed_even_if_the_first_row_has_gaps(self):
        assert sheet(TABLES["xlnet.t4"]).headings[1:4] == ["IMDb error", "Yelp-2 error", "Yelp-5 error"]
        assert sheet(TABLES["gpt.t2"]).headings[1:4] == ["MNLI-m", "MNLI-mm", "SNLI"]

    def test_headings_name_splits_and_units_that_differ(self):
        assert sheet(TABLES["bert.t4"]).headings == ["", "SWAG acc dev", "SWAG acc test"]
        assert sheet(TABLES["albert.t4"]).headings[1:3] == ["Parameters (M)", "SQuAD1.1 F1 (%)"]

    def test_notes_say_what_they_are_about(self):
        notes = sheet(TABLES["bert.t1"]).notes
        assert notes[0] == "BERT, T1 GLUE test: Devlin et al. 2019, arXiv 1810.04805, Table 1 (checked)."
        assert "Unit: %." in notes
        assert notes[-1].startswith("QNLI of Pre-OpenAI SOTA, ")
        assert "Lower is better: LM ppl." in sheet(TABLES["bert.t6"]).notes
        assert "E=128 all-shared: MNLI 82.0 here, 81.6 in T2/T3." in sheet(TABLES["albert.t4"]).notes

    def test_names_find_tables(self):
        assert list(find(["albert.T4", "bert.t6"], TABLES)) == ["albert.t4", "bert.t6"]
        assert list(find(["albert.t9"], TABLES)) == ["albert.t9-glue-single", "albert.t9-glue-ensembles"]
        assert list(find(["Transformer-XL.t6", "gpt-3.t3.2"], TABLES)) == ["transformerxl.t6", "gpt3.t3.2"]
        assert list(find(["mask15.t7"], TABLES)) == ["mask15.t1+t7"]
        assert len(find(["albert"], TABLES)) == 18
        assert {table.file for table in find(["others"], TABLES).values()} == {"others.csv"}

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
    def test_the_list(self):
        code, output = run()
        assert code == 0
        assert "ALBERT: 640 values" in output
        assert re.search(r"^  albert.t4 +72  sharing$", output, re.MULTILINE)
        assert output.endswith(f"2,672 values in {len(TABLES)} tables of 29 papers and other sources\n")
        assert run("--format", "md")[1].startswith("| name | paper | table | values |\n")

    def test_tables_are_aligned_and_never_folded(self):
        code, output = run("albert.t4", "mask15.readme")
        assert code == 0
        line = next(line for line in output.splitlines() if "shared-FFN" in line)
        assert line.split()[-9:] == ["57", "89.2", "82.1", "78.2", "75.4", "81.5", "90.8", "62.6", "79.5"]
        assert "m=0.40 (100% [MASK])" in output

    def test_notations(self):
        assert "| E=768 shared-FFN | 57 | 89.2 |" in run("albert.t4", "--format", "md")[1]
        assert r"E=768 shared-FFN & 57 & 89.2 &" in run("albert.t4", "--format", "tex")[1]

    def test_csv_can_be_read_back(self, tmp_path):
        (tmp_path / "all.csv").write_text(run("--format", "csv")[1], encoding="utf-8")
        again = read("all", folder=tmp_path)
        assert len(again) == len(ROWS)
        for old, new in zip(ROWS, again, strict=True):
            assert {c: getattr(old, c) for c in COLUMNS} == {c: getattr(new, c) for c in COLUMNS}
            assert {k: v for k, v in old.knobs.items() if v} == {k: v for k, v in new.knobs.items() if v}
        assert written(again) == (tmp_path / "all.csv").read_text(encoding="utf-8")

    def test_csv_keeps_signs(self):
        rows = list(csv.DictReader(io.StringIO(run("distilbert.t4", "--format", "csv")[1])))
        assert [row["value"] for row in rows] == ["-2.96", "-1.46", "-0.31", "-3.69"]

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
