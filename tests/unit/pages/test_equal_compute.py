"""One grid compared at equal amounts of a unit that it did not hold equal."""

import numpy as np
import pytest

from ablations.core.formatting import markdown
from ablations.measurements.measurements import Measurements
from ablations.pages import equal_compute
from ablations.pages.equal_compute import METRIC, UNITS, amounts, compare, value_at
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests.messages import names
from tests.unit.synthetic import LAYERS, make_cell, make_failure, make_grid, make_plan, make_record, publish_page

SMALL, LARGE = make_cell({LAYERS: 2}, seeds=3), make_cell({LAYERS: 12}, seeds=3)
GRID = make_grid(
    axes={LAYERS: [2, 12]},
    baseline={LAYERS: 2},
    claims=[],
    figure=None,
    published=[],
    budget={"equal": "steps"},
)
STEPS = np.array([100.0, 200.0, 400.0, 800.0])


def course(run, start, slope, seconds, *, steps=STEPS, device="cpu"):
    """A run that falls by ``slope`` nats with every doubling of its steps; 1,000 tokens and 1 MFLOP a second."""
    curve = {
        "step": steps.tolist(),
        "tokens": (1000 * steps).tolist(),
        METRIC: (start - slope * np.log2(steps / 100)).tolist(),
    }
    cost = {"tokens": 1000 * steps[-1], "seconds": seconds, "flops": 1e6 * seconds, "parameters": 1.0}
    return make_record(run, curve[METRIC][-1], curve=curve, cost=cost, provenance={"device": device})


def study(large_seconds=800.0, **large):
    """The large model is better at every step, and eight times as slow: the case of ALBERT's Table 6."""
    noise = (0.0, 0.01, 0.03)
    return {run.id: course(run, 6.0 + n, 0.5, 100.0) for run, n in zip(SMALL.runs, noise, strict=True)} | {
        run.id: course(run, 5.7 + 2 * n, 0.5, large_seconds, **large) for run, n in zip(LARGE.runs, noise, strict=True)
    }


def by_layers(unit, records=None, cells=(SMALL, LARGE)):
    equal = compare(Measurements(GRID, cells, records or study()), unit)
    return equal, {at.cell.values[LAYERS]: at for at in equal.cells}


def test_the_better_of_two_is_another_at_equal_time():
    steps, at_steps = by_layers("steps")
    seconds, at_seconds = by_layers("seconds")
    assert (steps.amount, seconds.amount) == (800.0, 100.0)
    assert at_steps[12].interval.mean < at_steps[2].interval.mean
    assert at_seconds[2].interval.mean < at_seconds[12].interval.mean
    # the large one has then made an eighth of its steps: three doublings, 1.5 nats, are still to come
    assert at_seconds[12].values[0] == pytest.approx(5.7)
    assert at_seconds[12].share == pytest.approx(1 / 8)
    text = markdown(equal_compute.sheets(Measurements(GRID, [SMALL, LARGE], study()))[0])
    assert (
        "at equal steps num_layers=12; at equal tokens num_layers=12; at equal FLOPs num_layers=2; "
        "at equal time num_layers=2" in text
    )


def test_differences_are_those_of_the_means():
    _, found = by_layers("steps")
    assert found[2].difference is None
    assert found[12].difference.mean == pytest.approx(-0.3 + 0.04 / 3)
    assert found[12].difference.n == 3


def test_values_between_points_are_interpolated_in_the_logarithm_and_marked():
    record = course(SMALL.runs[0], 6.0, 0.5, 100.0)
    assert value_at(record, "steps", 400) == (5.0, False)
    between, interpolated = value_at(record, "steps", 400 * 2**0.5)
    assert (between, interpolated) == (pytest.approx(4.75), True)
    assert value_at(record, "tokens", 1000 * 400 * 2**0.5)[0] == pytest.approx(between)
    _, found = by_layers("seconds", study(large_seconds=300.0))
    assert found[2].interpolated == 0
    assert found[12].interpolated == 3
    text = markdown(equal_compute.single(Measurements(GRID, [SMALL, LARGE], study(large_seconds=300.0)), "seconds"))
    assert names(text, "interpolated", "measurements")
    assert "33 %" in text


@pytest.mark.parametrize("amount", [50, 99.9, 800.1, 10_000])
def test_nothing_is_extrapolated(amount):
    assert value_at(course(SMALL.runs[0], 6.0, 0.5, 100.0), "steps", amount) is None


def test_the_amount_is_what_every_finished_run_has_reached():
    short = study(steps=STEPS[:3])
    equal, found = by_layers("steps", short)
    assert equal.amount == 400.0
    assert found[2].share == pytest.approx(0.5)
    failed = short | {run.id: make_failure(run) for run in LARGE.runs}
    equal, found = by_layers("steps", failed)
    assert equal.amount == 800.0
    assert found[12].values == {}


def test_at_the_end_it_is_the_final_loss():
    records = study(large_seconds=100.0)
    for unit in UNITS:
        _, found = by_layers(unit, records)
        finals = {run.seed: records[run.id].metrics[METRIC] for run in LARGE.runs}
        assert found[12].values == pytest.approx(finals)
        assert found[12].interpolated == 0


def test_time_is_not_compared_across_device_classes():
    mixed = study(device="NVIDIA H200")
    equal, _ = by_layers("seconds", mixed)
    assert equal.amount is None
    assert "several device classes: NVIDIA H200, cpu" in equal.why
    text = markdown(equal_compute.single(Measurements(GRID, [SMALL, LARGE], mixed), "seconds"))
    assert names(text, "at equal time", "several device classes")
    _, at_steps = by_layers("steps", mixed)
    assert at_steps[12].difference.mean is None  # nor is any difference taken


def test_records_without_curve_or_cost_are_no_data():
    bare = {id: record.but(curve={}) for id, record in study().items()}
    assert by_layers("steps", bare)[0].amount is None
    assert equal_compute.sheets(Measurements(GRID, [SMALL, LARGE], bare)) is None
    free = course(SMALL.runs[0], 6.0, 0.5, 100.0).but(cost={})
    assert amounts(free, "seconds") == []
    assert amounts(free, "steps") == STEPS.tolist()
    assert equal_compute.sheets(Measurements(GRID, [SMALL, LARGE], {})) is None


def test_cells_of_the_same_runs_are_no_comparison():
    twin = SMALL.but(label="twin")
    assert equal_compute.sheets(Measurements(GRID, [SMALL, twin], study())) is None
    twin = twin.but(values={LAYERS: 12})
    assert by_layers("steps", cells=(SMALL, twin))[1][12].difference is None
    text = markdown(equal_compute.single(Measurements(GRID, [SMALL, twin], study()), "steps"))
    assert "same runs" in text
    assert "0.00 [0.00, 0.00]" not in text


def test_means_over_other_seeds_are_not_ranked():
    records = study(large_seconds=8000.0)  # the large one has no point yet at 1e8 FLOPs but for a cheap seed
    cheap = LARGE.runs[0]
    records[cheap.id] = course(cheap, 5.0, 0.5, 100.0)
    equal, found = by_layers("flops", records)
    assert (equal.amount, len(found[2].values), len(found[12].values)) == (1e8, 3, 1)
    text = markdown(equal_compute.sheets(Measurements(GRID, [SMALL, LARGE], records))[0])
    assert "at equal FLOPs num_layers" not in text


def test_losses_on_other_texts_are_not_ranked():
    longer = LARGE.model_copy(update={"system": LARGE.system.but(**{"format.sequence_length": 64})})
    text = markdown(equal_compute.sheets(Measurements(GRID, [SMALL, longer], study()))[0])
    assert "depends on what is equal" not in text


def test_seconds_of_a_machine_with_other_work_are_not_compared():
    records = study()
    slow, even = LARGE.runs[0], LARGE.runs[1]
    records[even.id] = course(even, 5.7, 0.5, 960.0)
    assert by_layers("seconds", records)[0].amount == 100.0
    records[slow.id] = course(slow, 5.7, 0.5, 1200.0)
    equal, _ = by_layers("seconds", records)
    assert equal.amount is None
    assert names(equal.why, "13 min", "20 min")
    assert by_layers("tokens", records)[0].amount == 800_000.0


def test_the_page_has_it_and_the_csv_every_number(tmp_path):
    written = publish_page(make_plan(GRID, [SMALL, LARGE]), study(), tmp_path)
    assert {"equal_compute.md", "equal_compute.csv", "equal_compute.json"} <= set(written)
    head, _, large = (tmp_path / "equal_compute.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), large.split(","), strict=True))
    assert (cells["steps amount"], cells["seconds amount"], cells["seconds share"]) == ("800", "100", "0.125")
    assert float(cells["steps difference"]) == pytest.approx(-0.3 + 0.04 / 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    publish_page(make_plan(GRID, [SMALL, LARGE]), study(), tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_cells_that_are_not_told_from_the_best_are_named_and_no_rank_is_made_of_them():
    third = make_cell({LAYERS: 6}, seeds=3)
    near = {run.id: course(run, 5.7 + n, 0.5, 800.0) for run, n in zip(third.runs, (0.07, 0.0, 0.04), strict=True)}
    cells, records = [SMALL, LARGE, third], study() | near
    text = markdown(equal_compute.sheets(Measurements(GRID, cells, records))[0])
    assert "at equal steps num_layers=12 (not distinguished from num_layers=6)" in text
    noisy = study() | {run.id: course(run, 5.0 + n, 0.5, 100.0) for run, n in zip(SMALL.runs, (0, 2, 1), strict=True)}
    assert "depends on what is equal" not in markdown(
        equal_compute.sheets(Measurements(GRID, [SMALL, LARGE], noisy))[0]
    )


def test_where_cells_are_asked_for_different_shares_of_the_text_the_table_says_how_many():
    """At 40 % a step learns from eight thirds of the answers of one at 15 %, from the same tokens."""
    rate = "objectives.mlm.masking.rate"
    few, many = make_cell({rate: 0.15}, seeds=3), make_cell({rate: 0.4}, seeds=3)
    grid = GRID.model_copy(update={"axes": {rate: (0.15, 0.4)}, "baseline": {rate: 0.15}})
    records = {run.id: course(run, 6.0, 0.5, 100.0) for run in (*few.runs, *many.runs)}
    reading, everything, _ = equal_compute.sheets(Measurements(grid, (few, many), records))
    column = reading.headings.index("predictions per 100 tokens")
    shares = [float(row[column]) for row in reading.rows]
    assert shares == pytest.approx([100 * cell.system.predictions_per_token() for cell in (few, many)], abs=0.05)
    assert shares[1] / shares[0] == pytest.approx(8 / 3, rel=0.1)
    steps = [row[everything.headings.index("predictions a step")] for row in everything.rows]
    assert steps == [cell.system.predictions_per_step() for cell in (few, many)]
    alike = equal_compute.sheets(Measurements(GRID, (SMALL, LARGE), study()))[0]
    assert not any("predictions" in heading for heading in alike.headings)


def test_a_study_reads_at_equal_amounts_and_names_units(tmp_path):
    empty = Study("masking_ratio", "smoke", results_dir=tmp_path)
    assert names(empty.table(at="seconds").text, "at equal time", "no finished run")
    assert empty.at_equal("steps") == []
    with pytest.raises(ConfigError, match="Did you mean 'seconds'"):
        empty.table(at="second")
