"""The same run gives the same numbers: after an interruption, with loader workers, in this process or in another."""

from collections.abc import Mapping

import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules import pretraining as fitting
from lightning_modules.pretraining import fit
from lightning_modules.training.execution import Execution
from lightning_modules.training.recorder import Interrupted
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as tiny_grids
from tests.depth import moments
from tests.faults.support import contents

STEPS = 12
AT_ONCE = Execution(checkpoint_seconds=0.0)
TIMES = ("seconds",)  # what a clock says, which differs


def same(one, other):
    """Whether two checkpoints hold the same, but for times."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one if key not in TIMES)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.fixture
def last_checkpoint(monkeypatch):
    """The state that a training saves after each step, kept in memory: the last one is returned."""
    kept = {}

    def save(self, checkpoint, path, storage_options=None):
        write(self, checkpoint, path)
        kept[path.parent] = torch.load(path, weights_only=True)

    from lightning_modules.training.checkpoint import AtomicCheckpoints

    write = AtomicCheckpoints.save_checkpoint
    monkeypatch.setattr(AtomicCheckpoints, "save_checkpoint", save)
    return kept


@pytest.mark.parametrize("stop", moments(STEPS, 3, STEPS))
def test_weights_moments_rate_generators_and_position_resume_to_the_bit(tiny, tmp_path, last_checkpoint, stop):
    """Stopped at random steps, dropout on, two micro-batches a step: the last checkpoints are equal."""
    system = tiny.but(**{"training.steps": STEPS, "training.micro_batch_size": 4, "model.dropout": 0.2})
    fit(system, 0, tmp_path / "straight", execution=AT_ONCE)
    asked = iter(range(1, STEPS + 1))
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "resumed", stop=lambda: next(asked) == stop, execution=AT_ONCE)
    torch.manual_seed(999)
    fit(system, 0, tmp_path / "resumed", execution=AT_ONCE)
    straight, resumed = (last_checkpoint[tmp_path / name] for name in ("straight", "resumed"))
    assert straight["global_step"] == STEPS
    assert {"optimizer_states", "lr_schedulers", "callbacks", "loops", "state_dict"} <= straight.keys()
    for part in straight.keys() & resumed.keys():
        assert same(straight[part], resumed[part]), part
    one, other = (load_file(tmp_path / name / WEIGHTS) for name in ("straight", "resumed"))
    assert same(one, other)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_loader_workers_change_no_weight(tiny, workers):
    def trained(number):
        module, data = tiny.build(0), tiny.data_module(0)
        data.workers = number
        trainer = pl.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0,
        )  # fmt: skip
        torch.manual_seed(0)  # dropout
        trainer.fit(module, data)
        return module.state_dict()

    assert same(trained(0), trained(workers))


def test_a_pool_of_processes_makes_the_records_of_this_process(cached):
    grid = grids.read(tiny_grids.grid(cached, rates="[0.15, 0.4]", seeds=2))
    alone, again, pool = (Records(cached / name) for name in ("alone", "again", "pool"))
    for records, executor in ((alone, "inline"), (again, "inline"), (pool, "local")):
        summary = execute(plan(grid, "smoke", records=records), records, executor)
        assert summary.outcomes == {"done": 4}
    assert contents(alone) == contents(again) == contents(pool)


def test_a_loss_that_stops_being_finite_ends_the_run_within_a_tick(cached, monkeypatch):
    """NaN from step 70 of 200 on: the loss is read every third step."""
    grid = grids.read(tiny_grids.grid(cached, rates="[0.15]", seeds=1, steps=200))
    records, seen = Records(cached / "results"), []

    class Poisoned(fitting.Pretrain):
        def training_step(self, example, index):
            loss = super().training_step(example, index)
            seen.append(index)
            if len(seen) < 70:
                return loss
            self.running.add({"mlm": (torch.tensor(float("nan")), 1.0, 1.0)})
            return loss * float("nan")

    monkeypatch.setattr("lightning_modules.training.pretrain.Pretrain", Poisoned)
    summary = execute(plan(grid, "smoke", records=records), records, "inline")
    (record,) = records.all()
    assert (record.outcome, summary.executed) == ("diverged", 1)
    assert record.detail in {f"loss not finite at step {step}" for step in (70, 71, 72)}
    assert len(seen) <= 72
    assert execute(plan(grid, "smoke", records=records), records, "inline").executed == 0
