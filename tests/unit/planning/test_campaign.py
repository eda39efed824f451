"""The queue of a campaign: its rows are planned, or refused with their lines, and a slice is a part of a plan."""

import pytest

from ablations.core.store import Records
from ablations.planning import campaign, grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests import tiny
from tests.messages import names
from tests.unit.run_graphs import put

AXES = """\
tasks: [bigram_shift]
looks: [2, 3]
claims:
  - {id: less, statement: s, metric: heldout.loss,
     a: {objectives.mlm.masking.rate: 0.15}, b: {objectives.mlm.masking.rate: 0.4}}
  - {id: task, statement: s, metric: bigram_shift.accuracy,
     a: {objectives.mlm.masking.rate: 0.15}, b: {objectives.mlm.masking.rate: 0.8}}
"""
RATE = "objectives.mlm.masking.rate"


@pytest.fixture
def file(tmp_path):
    """A grid of three rates, the last of which stands for another, with a task and two looks."""
    made = tiny.grid(tmp_path, rates="[0.15, 0.4, 0.6]", extra=AXES)
    metric = "  - {name: bigram_shift.accuracy}\n"
    entry = f"{{description: seconds, stands_for: {{{RATE}: [0.15, 0.4, 0.8]}}}}"
    text = made.read_text().replace("{description: seconds}", entry)
    made.write_text(text.replace("metrics:\n", "metrics:\n" + metric))
    return made


def queue(folder, *rows):
    path = folder / "queue.yaml"
    path.write_text("rows:\n" + "".join(f"  - {{reason: r, {row}}}\n" for row in rows))
    return path


@pytest.mark.nightly
def test_the_projects_queue_can_be_planned(tmp_path):
    rows = campaign.planned(None, Records(tmp_path).snapshot())
    assert len(rows) > 10
    assert rows[0][0].grid == "pretraining_gain"


@pytest.mark.parametrize(
    ("row", "place", "said"),
    [
        ("grid: masking_ration, scale: smoke", "grid", ["masking_ration", "masking_ratio"]),
        ("grid: GRID, scale: smok", "scale", ["smok", "smoke"]),
        ("grid: GRID, scale: smoke, look: 3", "look", ["looks 1 to 2"]),
        ("grid: GRID, scale: smoke, look: 0", "look", ["0", "1"]),
        ("grid: GRID, scale: smoke, slice: {objectives.mlm.masking.rat: 0.15}", "rat", ["axis", RATE]),
        (f"grid: GRID, scale: smoke, slice: {{{RATE}: [0.15, 0.81]}}", RATE, ["0.81", "0.8"]),
        ("grid: GRID, scale: smoke, slice: {tasks: [bigram_shft]}", "tasks", ["bigram_shft", "bigram_shift"]),
        ("grid: GRID, scale: smoke, slice: {tasks: bigram_shift}", "tasks", ["list"]),
        ("grid: GRID, scale: smoke, slize: {}", "slize", ["slice"]),
        ("grid: GRID", "scale", ["required"]),
    ],
)
def test_a_bad_row_is_told_with_its_line_and_the_nearest_word(tmp_path, file, row, place, said):
    path = queue(tmp_path, f"grid: {file}, scale: smoke", row.replace("GRID", str(file)))
    with pytest.raises(ConfigError) as raised:
        campaign.planned(path, Records(tmp_path / "results").snapshot())
    (problem,) = raised.value.problems
    assert problem.path.startswith("queue.yaml:3: rows.1"), problem
    assert place in problem.path
    assert names(problem.message, *said), problem


def test_a_second_look_waits_for_the_first_and_its_words_do_not(tmp_path, file):
    records, row = Records(tmp_path / "results"), f"grid: {file}, scale: smoke, look: 2"

    def planned(row):
        return [found for _, found in campaign.planned(queue(tmp_path, row), records.snapshot())]

    assert planned(row) == [None]
    with pytest.raises(ConfigError, match="no cell has"):
        planned(f"{row}, slice: {{tasks: [x]}}")
    for n, run in enumerate(plan(grids.read(file), "smoke").runs):
        metrics = {"heldout.loss": 4 + n * (-1) ** n / 10, "bigram_shift.accuracy": 0.5 + n * n % 7 / 100}
        put(records, run, metrics=metrics)
    (found,) = planned(row)
    assert len(found.runs) == 12 + 6  # both claims are open


class TestSlices:
    def test_a_cell_has_the_name_that_claims_have_for_it(self, file):
        whole = plan(grids.read(file), "smoke")
        part = whole.sliced({RATE: [0.15, 0.8]})
        assert [cell.values[RATE] for cell in part.cells] == [0.15, 0.6]
        assert {run.id for run in part.runs} < {run.id for run in whole.runs}
        assert len(part.runs) == 8
        assert whole.sliced({}) is whole
        assert part.label(part.runs[0].id) == whole.label(part.runs[0].id)

    def test_tasks_come_with_the_models_that_they_start_from(self, file):
        whole = plan(grids.read(file), "smoke")
        assert [run.task for run in whole.sliced({"tasks": []}).runs] == [""] * 6
        part = whole.sliced({RATE: 0.4, "tasks": ["bigram_shift"]})
        assert [run.task for run in part.runs] == ["", "bigram_shift"] * 2
        assert all(run.start in part.runs for run in part.runs if run.task)

    def test_a_part_answers_the_claims_all_of_whose_sides_it_makes(self, file):
        whole = plan(grids.read(file), "smoke")
        assert whole.claims == ["less", "task"]
        assert whole.sliced({RATE: [0.15, 0.4]}).claims == ["less"]
        assert whole.sliced({RATE: [0.15, 0.8]}).claims == ["task"]
        assert whole.sliced({RATE: [0.15, 0.8], "tasks": []}).claims == []
