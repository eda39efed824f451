"""Runs that start from the weights of others: how they are planned, named, and found in the records."""

import pytest

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import FineTuning, fingerprint
from tests.unit.run_graphs import LAYERS, RATE, WARM, planned, put, read


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def kinds(runs):
    return [(run.seed, run.kind, run.task or run.system.model.num_layers) for run in runs]


# --- the graph


def test_fine_tunings_follow_the_pretrainings_seed_by_seed(tmp_path):
    found = planned(tmp_path, rates="[0.15, 0.4]", seeds=2, extra="tasks: [rte, cola]\n")
    one_seed = [("pretrain", 1)] * 2 + [("finetune", "rte"), ("finetune", "cola")] * 2
    assert kinds(found.runs) == [(seed, *rest) for seed in (0, 1) for rest in one_seed]
    for cell in found.cells:
        assert [(run.seed, run.task) for run in cell.finetunings] == [
            (s, task) for s in (0, 1) for task in ("rte", "cola")
        ]
        assert {run.parents for run in cell.finetunings} == {(run.id,) for run in cell.runs}
        assert [run.start for run in cell.finetunings[::2]] == list(cell.runs)
    assert found.label(found.cells[1].finetunings[3].id) == "rate=0.4 seed 1 on cola"
    assert list(found.table()["tasks"]) == ["rte, cola"] * 2
    assert list(found.table()["state"]) == ["6 missing"] * 2


def test_cells_that_differ_in_fine_tuning_alone_share_their_pretraining(tmp_path):
    found = planned(
        tmp_path, seeds=2, axes="  finetuning.epochs: [1, 2]\n", extra="tasks: [cola]\n",
        knobs={"finetuning.batch_size": 64},
    )  # fmt: skip
    one, two = found.cells
    assert one.label == "epochs=1, rate=0.15"
    assert one.runs == two.runs
    assert one.system == two.system
    assert [run.finetuning.epochs for run in (one.finetunings[0], two.finetunings[0])] == [1, 2]
    assert {run.finetuning.batch_size for run in (*one.finetunings, *two.finetunings)} == {64}
    assert len(found.runs) == 2 * (1 + 2)


def test_a_warm_start_brings_its_chain(tmp_path):
    found = planned(tmp_path, seeds=2, knobs={LAYERS: 4, WARM: "[1, 2]"}, extra="tasks: [cola]\n")
    assert kinds(found.runs) == [(seed, *rest) for seed in (0, 1) for rest in
                                 (("pretrain", 1), ("pretrain", 2), ("pretrain", 4), ("finetune", "cola"))]  # fmt: skip
    first, second, third, tuned = found.runs[:4]
    assert [run.parents for run in (first, second, third, tuned)] == [(), (first.id,), (second.id,), (third.id,)]
    assert [run.system.training.warm_start for run in (first, second, third)] == [(), (1,), (1, 2)]
    assert found.cells[0].runs[0] == third
    assert found.label(second.id) == "2 layers to start from, seed 0"
    assert all(run.id in found.costs and run.id in found.states for run in found.runs)
    assert plan(read(tmp_path, rates="[0.15]", seeds=1), "smoke").runs[0].id == first.id  # the plain run of that depth


def test_a_cell_may_start_from_another_cell(tmp_path):
    variants = f"variants:\n  depth:\n    shallow: {{{LAYERS}: 1}}\n    stacked: {{{LAYERS}: 2, {WARM}: [1]}}\n"
    grid = read(
        tmp_path, axes="  depth: [stacked, shallow]\n", rates="[0.15]", seeds=1,
        extra=variants,
    )  # fmt: skip
    found = plan(grid, "smoke")
    assert [cell.label for cell in found.cells] == ["stacked, rate=0.15", "shallow, rate=0.15"]
    assert found.runs == (found.cells[1].runs[0], found.cells[0].runs[0])  # parents first
    assert found.label(found.runs[0].id) == "shallow, rate=0.15 seed 0"


def test_costs_of_a_fine_tuning_are_its_own(tmp_path):
    knobs = {"finetuning.epochs": 2, "finetuning.max_length": 8, "finetuning.batch_size": 32}
    knobs["finetuning.train_examples"] = "null"
    found = planned(tmp_path, extra="tasks: [cola]\n", knobs=knobs)
    pretrained, tuned = (found.costs[run.id] for run in found.runs)
    assert tuned.steps == 2 * -(-8551 // 32)
    assert 0 < tuned.tokens <= 2 * 8551 * 8
    assert tuned.parameters == pretrained.parameters
    assert found.flops == pretrained.flops + tuned.flops


# --- identities


def test_tasks_change_no_pretraining(tmp_path):
    without = planned(tmp_path / "a", rates="[0.15, 0.4]", seeds=2)
    text = (tmp_path / "a" / "tiny.yaml").read_text() + "tasks: [cola]\n"
    (tmp_path / "a" / "more.yaml").write_text(text)
    with_tasks = plan(grids.read(tmp_path / "a" / "more.yaml"), "smoke")
    assert [run.id for run in with_tasks.runs if run.kind == "pretrain"] == [run.id for run in without.runs]


def test_what_a_fine_tuning_is():
    system, print_ = SYSTEMS["roberta_base"], fingerprint("cola")
    text, other = (dict.fromkeys(system.data.corpora, print_) for print_ in ("aa", "ab"))
    pretrained = Run.pretraining(system, 0, text)
    run = Run.finetuning_of(pretrained, "cola", print_, FineTuning())
    assert (
        Run.finetuning_of(Run.pretraining(system.but(name="another"), 0, text), "cola", print_, FineTuning()).id
        == run.id
    )
    others = [
        Run.finetuning_of(Run.pretraining(system, 1, text), "cola", print_, FineTuning()),
        Run.finetuning_of(Run.pretraining(system, 0, other), "cola", print_, FineTuning()),
        Run.finetuning_of(Run.pretraining(system.but(**{RATE: 0.4}), 0, text), "cola", print_, FineTuning()),
        Run.finetuning_of(pretrained, "rte", fingerprint("rte"), FineTuning()),
        Run.finetuning_of(pretrained, "cola", "another text", FineTuning()),
        Run.finetuning_of(pretrained, "cola", print_, FineTuning(epochs=4)),
        run.but(parents=["0" * 16]),
        run.but(numerics={**run.numerics, "finetune": 99}),
        pretrained,
    ]
    assert len({run.id, *(other.id for other in others)}) == 1 + len(others)
    assert Run.read(run.to_dict()) == run
    assert Run.read(run.to_dict()).start == pretrained


# --- states


@pytest.mark.parametrize("outcome", ["diverged", "invalid"])
def test_what_can_never_start_is_orphaned(tmp_path, outcome):
    records = Records(tmp_path / "results")
    options = {"knobs": {LAYERS: 2, WARM: "[1]"}, "extra": "tasks: [cola]\n"}
    first, second, tuned = planned(tmp_path, **options).runs
    put(records, first, outcome)
    found = planned(tmp_path, records, **options)
    assert [found.states[run.id] for run in found.runs] == [outcome, "orphaned", "orphaned"]
    assert found.pending == ()
    put(records, second)  # a record counts, whatever became of the parent
    found = planned(tmp_path, records, **options)
    assert [found.states[run.id] for run in found.runs] == [outcome, "done", "missing"]
    assert found.pending == (tuned,)


def test_a_parent_that_is_tried_again_keeps_its_children(tmp_path):
    records = Records(tmp_path / "results")
    pretrained, tuned = planned(tmp_path, extra="tasks: [cola]\n").runs
    for outcome in ("failed", "killed", "oom", "timeout"):
        put(records, pretrained, outcome)
        assert planned(tmp_path, records, extra="tasks: [cola]\n").pending == (pretrained, tuned)


def test_records_of_other_numerics_make_children_stale(tmp_path):
    records = Records(tmp_path / "results")
    options = {"knobs": {LAYERS: 2, WARM: "[1]"}, "extra": "tasks: [cola]\n"}
    runs = planned(tmp_path, **options).runs
    old_first = runs[0].but(numerics={**runs[0].numerics, "pretrain": 0})
    old_second = runs[1].but(numerics=old_first.numerics, parents=[old_first.id])
    old_tuned = runs[2].but(numerics={**runs[2].numerics, "pretrain": 0}, parents=[old_second.id])
    for old in (old_first, old_second, old_tuned):
        put(records, old)
    assert planned(tmp_path, records, **options).counts == {"stale": 3}


# --- chains that cannot be


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({LAYERS: 2, WARM: [2]}, r"warm_start \[2\].*model\.num_layers 2"),
        ({LAYERS: 4, WARM: [2, 1]}, r"warm_start \[2, 1\]"),
        ({LAYERS: 4, WARM: [0]}, r"warm_start \[0\]"),
        ({LAYERS: 4, WARM: [1], "model.sharing": "all", "model.sharing_groups": 2},
         r"warm_start.*2 .*1"),
        ({LAYERS: 4, WARM: [1.5]}, r"training.warm_start.0: .*integer"),
    ],
)  # fmt: skip
def test_impossible_chains_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        SYSTEMS["roberta_base"].but(**changes)
