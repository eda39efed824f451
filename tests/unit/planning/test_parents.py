"""Parents by role: described in a run's settings, derived, ordered, charged once."""

import pytest

from ablations.schema.run import Run
from lightning_modules.config import ConfigError, identity
from lightning_modules.systems import SYSTEMS
from tests.unit.run_graphs import RATE, planned

START, STOP = "training.start", "training.stop_after"


def test_a_start_may_have_a_seed_of_its_own(tmp_path):
    found = planned(
        tmp_path, rates="[0.15, 0.4]", seeds=2, knobs={START: f"{{training.steps: 25, {RATE}: 0.15, seed: 7}}"}
    )
    trunk, *arms = found.runs
    assert (trunk.seed, {run.seed for run in arms}) == (7, {0, 1})
    assert {run.parents for run in arms} == {(trunk.id,)}
    assert len(found.runs) == 1 + 2 * 2


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ConfigError, match=r"training\.start\.seed: must be a whole number"):
        SYSTEMS["bert_base"].but(**{START: {"training.steps": 5, "seed": seed}})


def test_another_seed_is_another_run():
    system = SYSTEMS["bert_base"]
    usual, other = (system.but(**{START: {"training.steps": 5, **seed}}) for seed in ({}, {"seed": 3}))
    assert identity(usual.essence()) != identity(other.essence())
    assert other.resolved().essence() == other.essence()
    run = Run.pretraining(other, 0, dict.fromkeys(other.corpora, "aa"))
    assert run.start.seed == 3
    assert Run.read(run.to_dict()).start.id == run.start.id


def test_a_stop_at_the_last_step_is_none():
    system = SYSTEMS["bert_base"].but(**{"training.steps": 50})
    assert identity(system.but(**{STOP: 50}).essence()) == identity(system.essence())
    stopped = system.but(**{STOP: 20})
    assert identity(stopped.essence()) != identity(system.essence())
    assert stopped.tokens() == system.tokens(20)
    assert stopped.flops() < system.flops()


def test_a_checkpoint_on_the_way_is_a_start_of_its_own(tmp_path):
    found = planned(tmp_path, rates="[0.15, 0.4]", knobs={START: f"{{training.steps: 25, {STOP}: 5, {RATE}: 0.15}}"})
    trunk, *arms = found.runs
    assert (trunk.system.training.steps, found.costs[trunk.id].steps) == (25, 5)
    assert all(run.start.id == trunk.id for run in arms)
    assert all(not run.system.training.stop_after for run in arms)
