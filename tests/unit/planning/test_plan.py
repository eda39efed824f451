"""Plans: which cells, which runs in which order, how they stand, what they cost."""

import cProfile
import pstats

import pytest

from ablations.core import machine
from ablations.core.store import Records, RecordWarning
from ablations.planning import grids
from ablations.planning.cells import agrees, dimensions
from ablations.planning.cost import ASSUMED_SPEED, LAUNCH_START, RUN_START
from ablations.planning.plan import plan
from ablations.schema.record import Record
from lightning_modules import speed
from lightning_modules.config import ConfigError, flat
from lightning_modules.systems import SYSTEMS
from tests import tiny
from tests.faults.test_malformed_variants import RICH

RATE, LAYERS, HIDDEN, HEADS = "objectives.mlm.masking.rate", "model.num_layers", "model.hidden_size", "model.num_heads"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def read(folder, text=None, **options):
    file = tiny.grid(folder, **options)
    if text is not None:
        file.write_text(text(file.read_text()))
    return grids.read(file)


def more_axes(lines, extra=""):
    drop = ("  model.num_layers: 1\n", "  model.hidden_size: 16\n", "  model.num_heads: 2\n")

    def change(text):
        for line in drop:
            if line.strip().split(":")[0] in lines:
                text = text.replace(line, "")
        return text.replace("axes:\n", f"axes:\n{lines}") + extra

    return change


def finish(records, run, outcome="done", **changes):
    settings = {"cost": {"flops": 4e10, "seconds": 20.0}, "provenance": {"device": "cpu"}, **changes}
    return records.put(Record(id=run.id, kind=run.kind, config=run.to_dict(), outcome=outcome, **settings))


def test_runs_go_seed_by_seed_and_the_baseline_goes_first(tmp_path):
    found = plan(read(tmp_path, rates="[0.8, 0.15, 0.4]", seeds=3), "smoke")
    assert [cell.values[RATE] for cell in found.cells] == [0.15, 0.8, 0.4]
    order = [(run.seed, run.system.get(RATE)) for run in found.runs]
    assert order == [(seed, rate) for seed in range(3) for rate in (0.15, 0.8, 0.4)]


def test_overrides_apply_in_order(tmp_path):
    def change(text):
        other = "  other:\n    seeds: 3\n    set: {training.steps: 7, model.dropout: 0.3, model.activation: relu}\n"
        text = text.replace("scales:\n", f"scales:\n{other}")
        text = text.replace("set:\n", "set:\n  model.dropout: 0.2\n  model.activation: gelu_tanh\n", 1)
        return text.replace("axes:\n", "axes:\n  model.dropout: [0.2, 0.5]\n")

    grid = read(tmp_path, change)
    other, smoke = plan(grid, "other"), plan(grid, "smoke")
    assert {cell.system.training.steps for cell in other.cells} == {7}
    assert {cell.system.training.steps for cell in smoke.cells} == {12}
    assert {cell.system.model.activation for cell in other.cells} == {"relu"}
    assert {cell.system.model.activation for cell in smoke.cells} == {"gelu_tanh"}
    assert {cell.system.model.dropout for cell in other.cells} == {0.2, 0.5}
    assert {len(cell.runs) for cell in other.cells} == {3}


def test_whole_systems_are_an_axis(tmp_path):
    found = plan(read(tmp_path, more_axes("  system: [roberta_base, mask15_large]\n")), "smoke", filters={RATE: 0.15})
    assert [cell.label for cell in found.cells] == ["roberta_base, rate=0.15", "mask15_large, rate=0.15"]
    assert [cell.system.model.norm for cell in found.cells] == ["post", "pre"]
    assert {cell.system.model.hidden_size for cell in found.cells} == {16}


def test_axes_move_together(tmp_path):
    axes = f"  {HIDDEN}: [16, 32]\n  {HEADS}: [2, 4]\n"
    found = plan(read(tmp_path, more_axes(axes, f"zip: [[{HIDDEN}, {HEADS}]]\n")), "smoke")
    assert [(c.values[HIDDEN], c.values[HEADS]) for c in found.cells] == [(16, 2), (16, 2), (32, 4), (32, 4)]
    with pytest.raises(ConfigError, match="a has 2, b has 1"):
        dimensions({"a": [1, 2], "b": [3]}, [("a", "b")])


def test_names_stand_for_knobs_and_small_values_for_published_ones(tmp_path):
    (tmp_path / "rich.yaml").write_text(RICH)
    found = plan(grids.read(tmp_path / "rich.yaml"), "smoke")
    assert found.baseline is found.cells[0]
    assert found.cells[0].label == "single, embedding_size=8"  # the grid says 768
    printed = {cell.values["model.embedding_size"]: cell.printed for cell in found.cells}
    assert printed == {ours: {"model.embedding_size": theirs} for ours, theirs in ((8, 768), (2, 64), (4, 128))}
    for cell in found.cells:
        assert cell.system.model.embedding_size == cell.values["model.embedding_size"]
        is_pair = cell.values["objective"] == "pairs"
        assert cell.system.format.kind == ("segment_pairs" if is_pair else "full_sentences")
        assert cell.system.get("objectives.sentence.weight") == (0.5 if is_pair else None)
        assert [(run.task, run.finetuning.epochs, run.finetuning.batch_size) for run in cell.finetunings] == [
            ("rte", 2, 8)
        ]
    other = plan(found.grid, "smoke", axes={"model.embedding_size": [3, 4]}, filters={"objective": "pairs"})
    assert [cell.printed for cell in other.cells] == [{}, {"model.embedding_size": 128}]


def test_excluded_cells_keep_their_reason(tmp_path):
    extra = f"exclude:\n  - when: {{{LAYERS}: 2, {RATE}: [0.4, 0.8]}}\n    reason: too slow\n"
    found = plan(read(tmp_path, more_axes(f"  {LAYERS}: [1, 2]\n", extra)), "smoke")
    assert len(found.cells) == 3
    assert found.excluded == (({LAYERS: 2, RATE: 0.4}, "too slow"),)


@pytest.mark.parametrize("equal", ["steps", "tokens", "flops"])
def test_budgets(tmp_path, equal):
    axes = "  training.batch_size: [4, 8]\n"

    def change(text):
        text = text.replace("  training.batch_size: 4\n", "").replace("axes:\n", f"axes:\n{axes}")
        return text.replace("seeds:", f"budget: {{equal: {equal}}}\nseeds:")

    found = plan(read(tmp_path, change, steps=400), "smoke")
    costs = {(c.values["training.batch_size"], c.values[RATE]): found.costs[c.runs[0].id] for c in found.cells}
    base = costs[4, 0.15]
    assert base.steps == 400
    if equal == "steps":
        assert {cost.steps for cost in costs.values()} == {400}
    elif equal == "tokens":
        assert {cost.tokens for cost in costs.values()} == {base.tokens}
        assert costs[8, 0.4].steps == 200
    else:
        assert costs[4, 0.4].steps < 400
        assert all(cost.flops == pytest.approx(base.flops, rel=0.01) for cost in costs.values())


def test_a_budget_leaves_one_step_at_least(tmp_path):
    def change(text):
        text = text.replace("  training.batch_size: 4\n", "").replace(
            "axes:\n", "axes:\n  training.batch_size: [4, 4096]\n"
        )
        return text.replace("seeds:", "budget: {equal: tokens}\nseeds:")

    found = plan(read(tmp_path, change), "smoke")
    assert min(cost.steps for cost in found.costs.values()) == 1


def test_asking_for_something_else_changes_the_folder(tmp_path):
    grid = read(tmp_path)
    assert plan(grid, "smoke", axes={RATE: [0.15, 0.4]}, seeds=2).folder_name == "smoke"
    names = {
        plan(grid, "smoke", axes={RATE: [0.15, 0.5]}).folder_name,
        plan(grid, "smoke", seeds=3).folder_name,
        plan(grid, "smoke", filters={RATE: 0.4}).folder_name,
    }
    assert len(names) == 3
    assert all(name.startswith("smoke-") and len(name) == 12 for name in names)
    assert plan(grid, "smoke", filters={RATE: 0.4}).baseline is None
    assert plan(grid, "smoke", seeds=3).folder_name == plan(grid, "smoke", seeds=3).folder_name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "smoky"}, r"'tiny' has no scale 'smoky'\. Did you mean 'smoke'\?"),
        ({"axes": {"objectives.mlm.masking.rates": [0.1]}}, r"is not an axis of 'tiny'\. Did you mean"),
        ({"axes": {RATE: [1.5]}}, r"less than or equal to 1, not 1\.5 \(cell rate=1\.5\)"),
        ({"filters": {"rate": 0.4}}, r"rate: is not an axis of 'tiny'"),
        ({"filters": {RATE: 0.3}}, r"no cell has rate=0\.3\. The axes at scale 'smoke' are .*: 0\.15, 0\.4"),
        ({"seeds": 0}, r"seeds: .*\b1\b.*\b0\b"),
    ],
)
def test_bad_requests_are_refused_with_the_nearest_spelling(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        plan(read(tmp_path), **{"scale": "smoke", **options})


def test_numbers_are_compared_as_numbers():
    assert agrees({"a": 0.1 + 0.05, "b": "post"}, {"a": [0.15, 0.4], "b": "post"})
    assert not agrees({"a": True}, {"a": 1})
    assert agrees({"a": [1, 2]}, {"a": [1, 2]})


def test_states_come_from_the_records(tmp_path):
    grid, records = read(tmp_path, rates="[0.15, 0.2, 0.3, 0.4, 0.5, 0.6]", seeds=1), Records(tmp_path / "results")
    runs = plan(grid, "smoke").runs
    finish(records, runs[0])
    finish(records, runs[1], "diverged")
    finish(records, runs[2], "failed")
    old = runs[3].but(numerics={**runs[3].numerics, "data": 0})
    finish(records, old)
    damaged, newer = finish(records, runs[4]), finish(records, runs[5])
    records.path(damaged.id).write_text("{")
    path = records.path(newer.id)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 9'))

    with pytest.warns(RecordWarning):
        found = plan(grid, "smoke", records=records)
    assert [found.states[run.id] for run in found.runs] == ["done", "diverged", "failed", "stale", "missing", "newer"]
    assert found.pending == (runs[2], runs[3], runs[4])
    assert found.speed == 2e9
    assert found.speed_source == "median of 2 finished runs on cpu"
    with pytest.warns(RecordWarning):
        assert len(list(records.all())) == 4


def test_time_is_estimated_from_runs_of_like_size_where_there_are_any(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    runs = plan(grid, "smoke").runs
    size = runs[0].system.flops_per_token()

    def at(run, times, speed):
        """A finished run whose tokens cost ``times`` as many FLOPs."""
        finish(records, run, cost={"flops": 20 * speed, "seconds": 20.0, "tokens": 20 * speed / (times * size)})

    for run, times in zip(runs[:2], (10, 0.1), strict=True):
        at(run, times, 9e9)
    assert plan(grid, "smoke", records=records).speed == 9e9
    at(runs[2], 1.5, 2e9)
    found = plan(grid, "smoke", records=records)
    assert (found.speed, found.speed_source) == (2e9, "median of 1 finished runs of like size on cpu")


def test_time_and_disk_are_estimated(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    fresh = plan(grid, "smoke", records=records)
    assert 0 < fresh.speed < ASSUMED_SPEED["cpu"]
    assert "assumed" in fresh.speed_source
    assert fresh.tokens == 4 * 12 * 4 * 16
    each = RUN_START + fresh.flops / 4 / fresh.speed
    assert fresh.seconds == pytest.approx(LAUNCH_START + 4 * each / min(fresh.slots, 4), rel=1e-3)
    assert list(fresh.table()["seconds a run"]) == pytest.approx([each, each], rel=0.05)
    assert fresh.disk > 4 * 8_000
    for run in fresh.runs:
        finish(records, run)
    over = plan(grid, "smoke", records=records)
    assert (over.tokens, over.flops, over.seconds, over.disk, over.pending) == (0, 0, 0, 0, ())
    table = over.table()
    assert list(table["state"]) == ["2 done", "2 done"]
    assert table["parameters"].nunique() == 1


def test_runs_of_a_second_do_not_tell_the_speed(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    first, second, *_ = plan(grid, "smoke", records=records).runs
    finish(records, first, cost={"flops": 1e9, "seconds": 1.0})
    assert "assumed" in plan(grid, "smoke", records=records).speed_source
    finish(records, second, cost={"flops": 1e12, "seconds": 20.0})
    assert plan(grid, "smoke", records=records).speed == 5e10


def test_cells_of_different_grids_share_their_runs(tmp_path):
    a = plan(read(tmp_path / "a"), "smoke")
    text = (tmp_path / "a" / "tiny.yaml").read_text().replace("Does a tiny", "Would another")
    (tmp_path / "other.yaml").write_text(text.replace("[0.15, 0.4]", "[0.15, 0.8]"))
    b = plan(grids.read(tmp_path / "other.yaml"), "smoke")
    assert len({run.id for run in a.runs} & {run.id for run in b.runs}) == 2


def test_rates_and_probabilities_shape_no_weight():
    """Plans count parameters once for all cells that differ in fractions only."""
    system = SYSTEMS["roberta_base"].but(**{"model.num_layers": 1, "model.hidden_size": 64})
    wrong = []
    for path, value in {**flat(system.model), **flat(system.objectives)}.items():
        if isinstance(value, float):
            where = f"model.{path}" if path in flat(system.model) else f"objectives.{path}"
            for other in (value / 2, value * 0.9 + 0.05):
                try:
                    changed = system.but(**{where: other})
                except ConfigError:
                    continue  # shares that must add up to one
                wrong += [where] * (changed.parameters() != system.parameters())
    assert wrong == []


BIG = """\
question: Which of hundreds?
base: roberta_base
set: {model.hidden_size: 64, format.sequence_length: 32, training.batch_size: 4}
axes:
  objectives.mlm.masking.rate: [RATES]
  model.num_layers: [1, 2, 3, 4, 5]
  optimizer.peak_lr: [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4, 1e-3]
  model.dropout: [0.0, 0.1]
budget: {equal: flops}
scales: {smoke: {}}
metrics: [{name: heldout.loss}]
"""


@pytest.mark.slow
def test_the_work_of_a_plan_grows_with_its_cells_and_no_faster(tmp_path):
    """Calls are counted, not seconds: 1,100 or so a cell are four seconds for ten thousand cells.

    Tests also check types, which doubles them.
    """
    calls = {}
    for rates in (1, 2, 4, 8):  # the first alone pays for what is done once a process
        (tmp_path / "big.yaml").write_text(
            BIG.replace("RATES", ", ".join(f"{n / 25:.2f}" for n in range(1, rates + 1)))
        )
        grid = grids.read(tmp_path / "big.yaml")
        with cProfile.Profile() as profile:
            found = plan(grid, "smoke")
        assert len(found.cells) == len(found.runs) == 100 * rates
        calls[rates] = pstats.Stats(profile).total_calls
    a_cell = (calls[8] - calls[4]) / 400
    assert a_cell < 2300
    assert a_cell < 1.1 * (calls[4] - calls[2]) / 200


def test_a_knob_that_arms_set_can_be_set_where_these_are_left_out():
    """Of six translators one alone has a number of steps of its own, and an axis is never set."""
    grid, steps, rest = grids.read("translation_start"), {"training.steps": 12}, ["random", "decoder"]
    found = plan(grid, "smoke", set=steps, axes={"start": rest})
    assert [cell.system.training.steps for cell in found.cells] == [12, 12]
    with pytest.raises(ConfigError, match=r"training\.steps: varies in .* as 'random, same FLOPs' sets it: leave"):
        plan(grid, "smoke", set=steps)
    with pytest.raises(ConfigError, match=r"masking\.rate: varies in .*: give its values by `axes`"):
        plan(grids.read("masking_ratio"), "smoke", set={"objectives.mlm.masking.rate": 0.3})


def test_a_knob_is_set_in_every_cell(tmp_path):
    grid = grids.read(tiny.grid(tmp_path))
    usual, changed = plan(grid, "smoke"), plan(grid, "smoke", set={"training.clip_norm": 0.5})
    assert {cell.system.training.clip_norm for cell in changed.cells} == {0.5}
    assert [cell.values for cell in changed.cells] == [cell.values for cell in usual.cells]
    assert not {run.id for run in changed.runs} & {run.id for run in usual.runs}
    assert changed.folder_name.startswith("smoke-")
    again = plan(grid, "smoke", **changed.overrides)
    assert again.runs == changed.runs


def test_auto_is_the_faster_precision_until_runs_have_records(tmp_path, monkeypatch):
    grid, records, knob = read(tmp_path), Records(tmp_path / "results"), "training.precision"
    assert speed.precision() in ("fp32", "bf16")

    def planned(faster):
        monkeypatch.setattr(speed, "precision", lambda: faster)
        found = plan(grid, "smoke", records=records, set={knob: "auto"})
        (chosen,) = {run.to_dict()["system"]["training"]["precision"] for run in found.runs}
        assert found.overrides["set"] == {knob: chosen}
        return chosen, found.runs

    found = {faster: planned(faster) for faster in ("fp32", "bf16")}
    assert [chosen for chosen, _ in found.values()] == ["fp32", "bf16"]
    finish(records, found["fp32"][1][0])
    assert planned("bf16")[0] == "fp32", "a study is of one precision"
