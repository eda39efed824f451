"""Trials of a search that are shorter than the runs they choose for."""

import pytest

from ablations.core import machine
from ablations.planning.plan import plan
from ablations.planning.search import shortened
from ablations.schema.grid import Search
from lightning_modules.config import ConfigError
from tests.messages import naming
from tests.unit.planning.test_search import LR, SEARCH, read


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def test_trials_may_be_shorter_and_are_probed_only_where_a_probe_chooses(tmp_path):
    extra = SEARCH.replace("search:\n", "search:\n  length: 0.5\n")
    cells = plan(read(tmp_path, extra, steps=10), "smoke").cells
    assert {trial.system.training.steps for cell in cells for trial in cell.search} == {5}
    assert {cell.system.training.steps for cell in cells} == {10}
    own = plan(read(tmp_path, extra, ", search: {length: 0.2}", steps=10), "smoke").cells
    assert {trial.system.training.steps for cell in own for trial in cell.search} == {2}
    system = cells[0].system.but(**{"evaluation.probes": ("agreement",)})
    for metric, probes in (("heldout.loss", ()), ("probes.agreement", ("agreement",))):
        assert shortened(system, Search(axes={LR: (1e-3,)}, metric=metric)).evaluation.probes == probes


@pytest.mark.parametrize("length", ["0", "1.5", "half"])
def test_a_length_that_is_no_share_is_refused(tmp_path, length):
    with pytest.raises(ConfigError, match=naming("search.length", length)):
        read(tmp_path, SEARCH.replace("search:\n", f"search:\n  length: {length}\n"))
