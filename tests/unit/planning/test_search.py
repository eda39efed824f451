"""Cells that search for their own best knobs: what is tried, which is chosen, what it costs, what is said of it."""

import pytest

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.planning.search import score
from ablations.running import estimate
from ablations.schema.record import Record
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests import tiny
from tests.messages import names, naming

RATE, LR, BATCH = "objectives.mlm.masking.rate", "optimizer.peak_lr", "training.batch_size"
SEARCH = f"search:\n  axes: {{{LR}: [1.0e-3, 3.0e-3, 9.0e-3]}}\n  metric: heldout.loss\n  seeds: 2\n"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def written(folder, search=SEARCH, scale="", **options):
    """The tiny grid with a search, and with further keys at its scale."""
    file = tiny.grid(folder, extra=search, **options)
    file.write_text(file.read_text().replace("{description: seconds}", f"{{description: seconds{scale}}}"))
    return file


def read(folder, *args, **options):
    return grids.read(written(folder, *args, **options))


def put(records, run, value=None, outcome="done", metric="heldout.loss"):
    metrics = {metric: value} if value is not None else {}
    rest = {"metrics": metrics, "provenance": {"device": "cpu"}}
    rest["cost"] = {"seconds": 2.0, "tokens": 100.0, "flops": 1e6} if outcome == "done" else {}
    return records.put(Record(id=run.id, kind=run.kind, config=run.to_dict(), outcome=outcome, **rest))


def search_with(records, found, losses, rate=None):
    """Finishes the searches of a plan: losses by learning rate, one a seed; None for a run that diverged."""
    for cell in found.cells:
        if rate in (None, cell.values[RATE]):
            for trial in cell.search:
                for run, loss in zip(trial.runs, losses[trial.values[LR]], strict=True):
                    put(records, run, loss, "diverged" if loss is None else "done")


GOOD = {1e-3: (5.0, 5.0), 3e-3: (4.0, 4.6), 9e-3: (4.2, 4.5)}  # means 5.0, 4.3, 4.35; the best single one is 4.0


# --- plans


def test_before_the_search_nothing_of_the_evaluation_is_known_but_its_size(tmp_path):
    found = plan(read(tmp_path), "smoke")
    assert found.counts == {"missing": 2 * 3 * 2}
    assert {run.seed for run in found.runs} == {1000, 1001}
    assert found.open == found.cells
    for cell in found.cells:
        assert (cell.runs, cell.finetunings, cell.chosen) == ((), (), {})
        assert [trial.values for trial in cell.search] == [{LR: 1e-3}, {LR: 3e-3}, {LR: 9e-3}]
        assert [trial.system.get(LR) for trial in cell.search] == [1e-3, 3e-3, 9e-3]
        assert [run.system.get(LR) for run in cell.awaited] == [1e-3, 1e-3]
    assert len(found.awaited) == 4
    assert not {run.id for run in found.awaited} & {run.id for run in found.runs}
    assert found.tokens == (12 + 4) * 12 * 4 * 16
    assert not found.is_finished
    table = found.table()
    assert list(table["search runs"]) == [6, 6]
    assert list(table["state"]) == ["2 to follow", "2 to follow"]
    assert names(estimate.cost(found), "2 of 2 cells", "4 evaluation runs", "first combination")


def test_searches_come_first_and_the_best_mean_is_evaluated(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD)
    found = plan(grid, "smoke", records=records)
    assert [cell.chosen for cell in found.cells] == [{LR: 3e-3}] * 2  # not the learning rate of the first
    assert [run.seed for run in found.runs[:12]] == [1000] * 6 + [1001] * 6
    assert [run.seed for run in found.pending] == [0, 0, 1, 1]
    assert all(run.system.get(LR) == 3e-3 for run in found.pending)
    assert not found.open
    assert not found.awaited
    plain = plan(read(tmp_path / "other", ""), "smoke", seeds=2)
    assert len(plain.runs) == len(found.pending)


def test_what_was_chosen_is_the_run_that_a_grid_with_that_value_has(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD)
    chosen = [run.id for run in plan(grid, "smoke", records=records).pending]
    file = tmp_path / "tiny.yaml"
    file.write_text(file.read_text().replace(SEARCH, "").replace("set:\n", f"set:\n  {LR}: 3.0e-3\n", 1))
    assert [run.id for run in plan(grids.read(file), "smoke").runs] == chosen


def test_every_cell_chooses_for_itself(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD, rate=0.15)
    half = plan(grid, "smoke", records=records)
    assert [bool(cell.chosen) for cell in half.cells] == [True, False]
    assert [run.seed for run in half.pending] == [1000] * 3 + [1001] * 3 + [0, 1]
    search_with(records, half, {**GOOD, 9e-3: (1.0, 1.0)}, rate=0.4)
    assert [cell.chosen[LR] for cell in plan(grid, "smoke", records=records).cells] == [3e-3, 9e-3]


@pytest.mark.parametrize("seeds", [1, 5, 1000])
def test_no_seed_both_chooses_and_judges(tmp_path, seeds):
    grid, records = read(tmp_path, rates="[0.15]"), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD)
    (cell,) = plan(grid, "smoke", seeds=seeds, records=records).cells
    assert {run.seed for run in cell.runs} == set(range(seeds))
    assert not {run.seed for trial in cell.search for run in trial.runs} & {run.seed for run in cell.runs}
    with pytest.raises(ConfigError, match=naming("seeds", "1,001", "1,000")):
        plan(grid, "smoke", seeds=1001)


def test_a_search_has_the_budget_of_the_cell(tmp_path):
    search = SEARCH.replace(f"{LR}: [1.0e-3, 3.0e-3, 9.0e-3]", f"{LR}: [1.0e-3], {BATCH}: [4, 8]")
    found = plan(read(tmp_path, search + "budget: {equal: tokens}\n", steps=400), "smoke")
    for cell in found.cells:
        assert [trial.values for trial in cell.search] == [{LR: 1e-3, BATCH: 4}, {LR: 1e-3, BATCH: 8}]
        costs = [found.costs[trial.runs[0].id] for trial in cell.search]
        assert [cost.steps for cost in costs] == [400, 200]
        assert len({cost.tokens for cost in (*costs, found.costs[cell.awaited[0].id])}) == 1


# --- choosing


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        (GOOD, 3e-3),
        ({1e-3: (4.0, 4.0), 3e-3: (4.0, 4.0), 9e-3: (4.0, 4.0)}, 1e-3),  # ties go by the file
        ({1e-3: (9.0, 9.0), 3e-3: (None, 1.0), 9e-3: (None, None)}, 1e-3),  # to diverge is worse than any loss
        ({1e-3: (None, None), 3e-3: (None, 3.0), 9e-3: (2.0, None)}, 9e-3),  # then the fewest, then their mean
        ({1e-3: (None, None), 3e-3: (None, None), 9e-3: (None, None)}, 1e-3),
    ],
)
def test_the_best_mean_is_chosen(tmp_path, losses, chosen):
    grid, records = read(tmp_path, rates="[0.15]"), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), losses)
    (cell,) = plan(grid, "smoke", records=records).cells
    assert cell.chosen == {LR: chosen}


@pytest.mark.parametrize("outcome", ["missing", "oom", "failed", "killed", "timeout", "unmeasured"])
def test_nothing_is_chosen_while_anything_is_unfinished(tmp_path, outcome):
    grid, records = read(tmp_path, rates="[0.15]"), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD)
    run = plan(grid, "smoke").cells[0].search[0].runs[1]  # of the worst combination
    records.path(run.id).unlink()
    if outcome == "unmeasured":
        put(records, run)
    elif outcome != "missing":
        put(records, run, outcome=outcome)
    found = plan(grid, "smoke", records=records)
    assert len(found.open) == 1
    assert found.pending == (() if outcome == "unmeasured" else (run,))
    assert not found.is_finished
    study = Study(tmp_path / "tiny.yaml", "smoke", results_dir=tmp_path / "results")
    said = "done, without heldout.loss" if outcome == "unmeasured" else outcome
    shown = study.plan().text.replace("\\", "")
    assert names(shown, f"waits for rate=0.15, peak_lr=0.001 search 1001 ({said})", "2 evaluation runs")


# --- fine-tuning


def test_knobs_of_fine_tuning_are_searched_by_the_score_of_a_task(tmp_path):
    knob = "finetuning.optimizer.peak_lr"
    search = f"search:\n  axes: {{{knob}: [1.0e-5, 3.0e-5]}}\n  metric: rte.accuracy\n"
    grid = read(tmp_path, "tasks: [rte, cola]\n" + search, rates="[0.15]")
    records = Records(tmp_path / "results")
    found = plan(grid, "smoke")
    (cell,) = found.cells
    assert [[run.kind for run in trial.work] for trial in cell.search] == [["pretrain", "finetune"]] * 2
    assert cell.search[0].runs == cell.search[1].runs  # what comes before the knob is trained once
    assert [(run.kind, run.task) for run in found.runs] == [("pretrain", ""), ("finetune", "rte"), ("finetune", "rte")]
    assert cell.tasks == ("rte", "cola")
    for trial, accuracy in zip(cell.search, (0.5, 0.6), strict=True):
        put(records, trial.runs[0], 4.0)
        put(records, trial.finetunings[0], accuracy, metric="rte.accuracy")
    (cell,) = plan(grid, "smoke", records=records).cells
    assert cell.chosen == {knob: 3e-5}
    assert {run.finetuning.optimizer.peak_lr for run in cell.finetunings} == {3e-5}
    assert [run.task for run in cell.finetunings] == ["rte", "cola"] * 2


def test_what_starts_from_a_diverged_run_counts_as_diverged(tmp_path):
    search = f"tasks: [rte]\nsearch:\n  axes: {{{LR}: [1.0e-3, 3.0e-3]}}\n  metric: rte.accuracy\n"
    grid, records = read(tmp_path, search, rates="[0.15]"), Records(tmp_path / "results")
    first, second = plan(grid, "smoke").cells[0].search
    put(records, first.runs[0], outcome="diverged")
    put(records, second.runs[0], 4.0)
    assert plan(grid, "smoke", records=records).open
    put(records, second.finetunings[0], 0.1, metric="rte.accuracy")
    assert plan(grid, "smoke", records=records).cells[0].chosen == {LR: 3e-3}
    assert score(first, "rte.accuracy", records).lost == 1


def test_the_earlier_name_of_a_search_still_reads(tmp_path):
    usual = read(tmp_path / "a")
    earlier = written(tmp_path / "b", SEARCH.replace("search:", "tune:"))
    assert grids.read(earlier).search == usual.search
    both = written(tmp_path / "c", SEARCH + SEARCH.replace("search:", "tune:"))
    with pytest.raises(ConfigError, match=r"tune.*'search'"):
        grids.read(both)


# --- what only trials have

SHARE, PEAK = "finetuning.validation_share", "finetuning.optimizer.peak_lr"
TRIED = f"axes: {{{PEAK}: [1.0e-5, 3.0e-5]}}"
ON_TASK = f"search:\n  set: {{{SHARE}: 0.1}}\n  {TRIED}\n  metric: rte.accuracy\n"


def on_task(folder, search=ON_TASK, **options):
    return read(folder, "tasks: [rte]\n" + search, **options)


def test_trials_are_scored_on_part_of_the_training_set_and_evaluations_on_the_dev_set(tmp_path):
    grid, records = on_task(tmp_path), Records(tmp_path / "results")
    found = plan(grid, "smoke")
    for cell in found.cells:
        assert [trial.values for trial in cell.search] == [{PEAK: 1e-5}, {PEAK: 3e-5}]
        assert {run.finetuning.validation_share for trial in cell.search for run in trial.finetunings} == {0.1}
        assert {run.finetuning.validation_share for run in cell.awaited if run.task} == {None}
        assert SHARE not in cell.search[0].label
    for run in found.runs:
        put(records, run, 4.0 if run.kind == "pretrain" else 0.5, metric="rte.accuracy" if run.task else "heldout.loss")
    chosen = plan(grid, "smoke", records=records)
    assert {run.finetuning.validation_share for cell in chosen.cells for run in cell.finetunings} == {None}
    plain = plan(on_task(tmp_path / "plain", ""), "smoke")
    assert len(plain.runs) == len(chosen.pending)


def test_trials_share_their_pretraining_within_and_between_cells(tmp_path):
    file = written(tmp_path, "tasks: [rte]\n" + ON_TASK, rates="[0.15]")
    examples = "  finetuning.train_examples: [100, 1000]\n  finetuning.from_scratch: [false, true]\nbaseline:"
    file.write_text(file.read_text().replace("baseline:", examples, 1))
    found = plan(grids.read(file), "smoke")
    assert len(found.cells) == 4
    assert [(run.kind, run.seed) for run in found.runs if run.kind == "pretrain"] == [("pretrain", 1000)]
    tuned = [run for run in found.runs if run.task]
    assert len(tuned) == 4 * 2
    assert {bool(run.parents) for run in tuned if run.finetuning.from_scratch} == {False}


def test_other_knobs_of_trials_are_theirs_alone(tmp_path):
    grid = read(tmp_path, SEARCH.replace("search:\n", "search:\n  set: {optimizer.weight_decay: 0.5}\n"))
    for cell in plan(grid, "smoke").cells:
        assert {trial.system.optimizer.weight_decay for trial in cell.search} == {0.5}
        assert cell.awaited[0].system.optimizer.weight_decay != 0.5


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("set:\n", f"set:\n  {SHARE}: 0.1\n", f"set.{SHARE}"),
        ("set:\n", "set:\n  finetuning.rte.validation_share: 0.1\n", "set.finetuning.rte.validation_share"),
        ("axes:\n", f"axes:\n  {SHARE}: [null, 0.1]\n", f"axes.{SHARE}"),
        ("{description: seconds}", f"{{description: seconds, set: {{{SHARE}: 0.1}}}}", f"scales.smoke.set.{SHARE}"),
        (f"axes: {{{PEAK}: [1.0e-5, 3.0e-5]", f"axes: {{{SHARE}: [0.1, 0.2]", f"search.axes.{SHARE}"),
    ],
)
def test_runs_that_are_compared_are_scored_on_the_dev_set(tmp_path, old, new, where):
    file = written(tmp_path, "tasks: [rte]\n" + ON_TASK.replace(f"  set: {{{SHARE}: 0.1}}\n", ""))
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    assert any(names(line, where, "search", "dev set") for line in str(raised.value).splitlines())


def test_no_override_of_a_plan_scores_compared_runs_on_the_training_set(tmp_path):
    for search in ("", ON_TASK):
        with pytest.raises(ConfigError, match=naming(SHARE, "search", "dev set")):
            plan(on_task(tmp_path, search), "smoke", set={SHARE: 0.1})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (SHARE, "finetuning.validation_shar", ("search.set.finetuning.validation_shar", f"'{SHARE}'?")),
        (f"{SHARE}: 0.1", f"{SHARE}: 1.5", (f"search.set.{SHARE}", "1.5")),
        (f"{SHARE}: 0.1", f"{PEAK}: 1.0e-4", (f"search.set.{PEAK}", "searched")),
        (f"{SHARE}: 0.1", f"{RATE}: 0.2", (f"search.set.{RATE}", "axis")),
        (f"{SHARE}: 0.1", "finetuning.cola.epochs: 2", ("search.set.finetuning.cola.epochs", "rte.accuracy")),
    ],
)
def test_mistakes_in_what_trials_have_are_named(tmp_path, old, new, words):
    with pytest.raises(ConfigError) as raised:
        on_task(tmp_path, ON_TASK.replace(old, new))
    (line,) = str(raised.value).splitlines()
    assert names(line, *words)


VARIED = (
    "axes:\n  start: [all, frozen]\nvariants:\n  start:\n    all: {}\n    frozen: {FROZEN}\nbaseline: {start: all}\n"
)


def test_a_search_replaces_a_knob_of_variants_that_differ_in_more(tmp_path):
    file = written(tmp_path, "tasks: [rte]\n" + ON_TASK)
    old = file.read_text()[file.read_text().index("axes:") : file.read_text().index("seeds:")]
    frozen = f"{{finetuning.features.layers: last, {PEAK}: 1.0e-3}}"
    file.write_text(file.read_text().replace(old, VARIED.replace("{FROZEN}", frozen)))
    _, cell = plan(grids.read(file), "smoke").cells
    assert [run.finetuning.optimizer.peak_lr for trial in cell.search for run in trial.finetunings] == [1e-5, 3e-5]
    file.write_text(file.read_text().replace(frozen, f"{{{PEAK}: 1.0e-3}}"))
    with pytest.raises(ConfigError, match=r"compared or searched"):
        grids.read(file)
