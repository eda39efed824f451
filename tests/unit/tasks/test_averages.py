"""Averages over tasks: by the rules of papers, and as metrics of a grid."""

import pytest

from ablations.measurements import summaries
from ablations.measurements.measurements import Measurements
from ablations.measurements.sides import comparable
from ablations.pages import tables
from ablations.planning import grids
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS as ALL
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.scores.averages import BERT, GLUE, bert_average, glue_average
from tests import tiny
from tests.unit.synthetic import RATE, make_cell, make_grid, make_record

# BERT, Table 1: MNLI-m, MNLI-mm, QQP, QNLI, SST-2, CoLA, STS-B, MRPC, RTE, and the printed average
PRINTED = {
    "BiLSTM+ELMo+Attn": ((76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8), 71.0),
    "BERT-base": ((84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4), 79.6),
    "BERT-large": ((86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1), 82.1),
}


class TestRules:
    @pytest.mark.parametrize("row", PRINTED)
    def test_of_berts_table_1(self, row):
        scores, average = PRINTED[row]
        # the printed scores are themselves rounded: by hand the second row is 638.5 / 9 = 70.94
        assert bert_average(dict(zip(BERT, scores, strict=True))) == pytest.approx(average, abs=0.06)

    def test_by_hand(self):
        names = {name for part in GLUE for name in part}
        scores = dict.fromkeys(names, 0.0)
        assert glue_average(scores | {"wnli.accuracy": 0.9}) == pytest.approx(0.1)
        assert glue_average(scores | {"mrpc.f1": 0.9}) == pytest.approx(0.05)
        assert glue_average(scores | {"mnli.mismatched_accuracy": 0.9}) == pytest.approx(0.05)
        assert bert_average(scores | {"mnli.mismatched_accuracy": 0.9}) == pytest.approx(0.1)
        assert bert_average(scores | {"wnli.accuracy": 0.9, "mrpc.accuracy": 0.9, "stsb.pearson": 0.9}) == 0.0

    @pytest.mark.parametrize("absent", BERT)
    def test_a_missing_score_leaves_no_average(self, absent):
        scores = {name: 0.5 for part in (BERT, *GLUE) for name in part}
        assert (bert_average(scores), glue_average(scores)) == (0.5, 0.5)
        del scores[absent]
        assert bert_average(scores) is None
        assert glue_average(scores) is None
        assert not ALL[absent.partition(".")[0]].own_split, "which never stands in"


TASKS = ("rte", "cola")


def make_cells(rates=(0.15, 0.4), seeds=3):
    """Cells fine-tuned on RTE and CoLA: accuracy .6 + seed / 100 + rate / 10 and correlation .2."""
    cells, records = [], {}
    for rate in rates:
        cell = make_cell({RATE: rate}, seeds)
        tuned = tuple(Run.finetuning_of(run, task, "examples", FineTuning()) for run in cell.runs for task in TASKS)
        cell = cell.model_copy(update={"finetunings": tuned})
        cells.append(cell)
        records |= {run.id: make_record(run, 4.6) for run in cell.runs}
        for run in tuned:
            score = {"rte": {"rte.accuracy": 0.6 + run.seed / 100 + rate / 10}, "cola": {"cola.matthews": 0.2}}
            records[run.id] = make_record(run, 0.0, kind="finetune", metrics=score[run.task], curve={})
    return cells, records


def grid_of(*names):
    metrics = [{"name": name} for name in names]
    return make_grid(metrics=metrics, tasks=list(TASKS), figure=None, claims=[], published=[], axes={RATE: [0.15, 0.4]})


def values(cell, records, metric):
    return Measurements(grid_of(metric), [cell], records).values(cell, metric)


class TestMetricsOfAGrid:
    def test_a_mean_is_taken_within_each_seed_then_over_seeds(self):
        cells, records = make_cells()
        assert values(cells[0], records, "tasks.mean") == pytest.approx({0: 0.4075, 1: 0.4125, 2: 0.4175})
        base, other = summaries.summarise(Measurements(grid_of("tasks.mean"), cells, records))
        assert base.metrics["tasks.mean"].interval.mean == pytest.approx(0.4125)
        assert base.metrics["tasks.mean"].runs == tuple(run.id for run in cells[0].runs)
        found = other.metrics["tasks.mean"]
        assert found.difference.mean == pytest.approx(0.0125)
        assert found.contrast.n == found.interval.n == 3

    def test_a_seed_that_lacks_a_part_has_no_mean(self):
        cells, records = make_cells()
        gone, failed = (
            next(r for r in cells[0].finetunings if (r.seed, r.task) == key) for key in ((0, "rte"), (1, "cola"))
        )
        del records[gone.id]
        records[failed.id] = records[failed.id].but(outcome="failed")
        assert list(values(cells[0], records, "tasks.mean")) == [2]
        item = summaries.summarise(Measurements(grid_of("tasks.mean"), cells, records))[1]
        assert item.metrics["tasks.mean"].contrast.n == 1

    def test_means_made_on_several_devices_are_not_compared_with_others(self):
        cells, records = make_cells()
        mixed = next(run for run in cells[1].finetunings if run.seed == 1)
        records[mixed.id] = records[mixed.id].but(provenance={"device": "cuda"})
        found = Measurements(grid_of("tasks.mean"), cells, records)
        compared = comparable([found.of(cell, "tasks.mean") for cell in (cells[1], cells[0])])
        assert [list(side) for side in compared.sides] == [[0, 2], [0, 2]]
        assert any("seeds 1 are left out" in note for note in compared.notes)

    def test_tables_have_it_where_the_tasks_suffice(self):
        cells, records = make_cells()
        grid = grid_of("rte.accuracy", "tasks.mean", "glue.bert_average")
        reading = tables.results(Measurements(grid, cells, records))[0]
        assert "mean of the tasks" in reading.headings
        assert "glue.bert_average" not in reading.headings
        (row, *_) = reading.rows
        assert row[reading.headings.index("mean of the tasks")].startswith("0.41")


class TestGrids:
    def write(self, folder, metric, tasks):
        file = tiny.grid(folder)
        text = file.read_text().replace("metrics:\n", f"tasks: {tasks}\nmetrics:\n  - {{name: {metric}}}\n")
        assert text != file.read_text()
        file.write_text(text)
        return file

    def test_an_average_without_its_tasks_is_a_problem(self, tmp_path):
        file = self.write(tmp_path, "glue.bert_average", "[rte, cola]")
        with pytest.raises(
            ConfigError, match=r"tiny\.yaml:\d+: .*bsent from 'tasks': mnli, mrpc, qnli, qqp, sst2, stsb"
        ):
            grids.read(file)

    def test_a_plain_mean_needs_some_task(self, tmp_path):
        assert grids.read(self.write(tmp_path / "a", "tasks.mean", "[rte]")).metrics[0].name == "tasks.mean"
        with pytest.raises(ConfigError, match="bsent from 'tasks': any task"):
            grids.read(self.write(tmp_path / "b", "tasks.mean", "[]"))
