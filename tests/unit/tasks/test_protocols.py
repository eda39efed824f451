"""Settings of fine-tunings: what a task needs, published protocols, knobs for all tasks and for one, in that order."""

import pytest

from ablations.planning import grids
from ablations.planning.cells import Workshop, layout
from ablations.planning.checks.grid_checks import known_knobs
from lightning_modules.config import ConfigError, paths
from lightning_modules.tasks import TASKS, FineTuning
from lightning_modules.tasks.protocols import PROTOCOLS
from tests import tiny
from tests.every import every


@pytest.fixture
def workshop(tmp_path):
    """Makes the fine-tunings of a small grid whose scale sets some knobs."""

    def make(**knobs):
        path = tiny.grid(tmp_path)
        lines = "".join(f"  {name}: {value}\n" for name, value in knobs.items())
        path.write_text(
            path.read_text()
            .replace("axes:\n", f"{lines}axes:\n")
            .replace("seeds: 2", "tasks: [rte, cola]")
            .replace("smoke:", "bare:")
        )
        grid = grids.read(path)
        return Workshop(grid, "bare", layout(grid, "bare").baseline)

    return make


@every("name", PROTOCOLS)
@every("task", [*TASKS, ""])
def test_every_protocol_is_a_valid_setting_of_every_task(name, task):
    settings = FineTuning().but(**{**(TASKS[task].settings if task else {}), **PROTOCOLS[name].settings(task)})
    assert settings.optimizer.peak_lr <= (1e-2 if name == "ulmfit" else 1e-4)  # of an LSTM, and of transformers
    assert settings != FineTuning()


@every("name", PROTOCOLS)
def test_rebuilt_data_sets_are_tuned_as_the_official_ones(name):
    settings = PROTOCOLS[name].settings
    assert settings("qnli_own") == settings("qnli")
    assert settings("squad1_own") == settings("squad1")
    assert settings("sst2_dev_test") == settings("sst2")
    assert settings("mrpc_dev_test") == settings("mrpc")


def test_an_own_split_is_seen_as_often_as_the_official_data():
    for settings in (PROTOCOLS["albert"].settings("squad2"), PROTOCOLS["albert"].settings("squad2_own")):
        size = 130_319 if settings["steps"] > 1000 else 7_543
        assert settings["steps"] * settings["batch_size"] / size == pytest.approx(3, abs=0.01)


def test_the_more_particular_knob_wins(workshop):
    shop = workshop(**{"finetuning.protocol": "bert", "finetuning.epochs": 7, "finetuning.rte.epochs": 9})
    assert shop.finetuning({}, "cola").epochs == 7
    assert shop.finetuning({}, "rte").epochs == 9
    assert shop.finetuning({}, "rte").optimizer.peak_lr == 3e-5
    assert shop.finetuning({"finetuning.protocol": "albert"}, "rte").steps == 800
    assert shop.finetuning({"finetuning.rte.epochs": 2}, "rte").epochs == 2


def test_unknown_protocols_and_bad_values_are_named(workshop):
    with pytest.raises(ConfigError, match=r"no protocol 'brt'. Did you mean 'bert'\?"):
        workshop(**{"finetuning.protocol": "brt"})
    with pytest.raises(ConfigError, match=r"finetuning\.rte\.epochs"):
        workshop(**{"finetuning.rte.epochs": 0})
    with pytest.raises(ConfigError, match=r"no such knob. Did you mean 'finetuning\.rte\.epochs'"):
        workshop(**{"finetuning.rte.epocs": 1})


def test_names_of_tasks_and_of_settings_never_meet():
    assert not {path.partition(".")[0] for path in paths(FineTuning)} & TASKS.keys()
    assert "finetuning.protocol" in known_knobs()
