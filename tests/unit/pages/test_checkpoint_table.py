"""Public checkpoints on the page of a grid that asks: shown if there are any, and missed by name if there are none."""

import pytest

from ablations.pages import checkpoint_table
from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.messages import names, naming


def found(name="gpt2", parameters=124_400_000, **metrics):
    return {"name": name, "parameters": parameters, "positions": 1024, "metrics": metrics, "measuring": {}}


@pytest.fixture
def grid():
    return grids.read("zero_shot")


def test_a_page_without_a_checkpoint_says_how_to_ask_one(grid, tmp_path):
    text = " ".join(checkpoint_table.part(grid, "laptop", tmp_path, {"lambada", "heldout_text"}))
    assert names(text, "None was available", "ablations evaluate FOLDER --beside zero_shot --scale laptop`")


def test_checkpoints_are_shown_small_ones_first_with_what_was_measured(grid, tmp_path):
    checkpoint_table.keep(tmp_path, found("medium", 355_000_000, **{"lambada.accuracy": 0.5512}))
    checkpoint_table.keep(tmp_path, found(**{"lambada.accuracy": 0.4599, "wikitext2.perplexity": 29.41}))
    text = " ".join(checkpoint_table.part(grid, "laptop", tmp_path, {"lambada"}))
    assert text.index("gpt2") < text.index("medium")
    assert names(text, "0.4599", "0.5512", "29.41", "124 M", "LAMBADA accuracy")
    assert "GAP" not in text, "nobody asked it"


def test_a_second_measurement_takes_the_place_of_the_first(tmp_path):
    checkpoint_table.keep(tmp_path, found(**{"lambada.accuracy": 0.1}))
    checkpoint_table.keep(tmp_path, found(**{"lambada.accuracy": 0.2}))
    assert [row["metrics"] for row in checkpoint_table.read(tmp_path)] == [{"lambada.accuracy": 0.2}]


@pytest.mark.parametrize("content", ["no JSON", "[1]", '[{"name": "x"}]', '{"name": "x"}'])
def test_a_damaged_file_is_refused_by_name(tmp_path, content):
    (tmp_path / checkpoint_table.NAME).write_text(content)
    with pytest.raises(ConfigError, match=naming("checkpoints.json", "ablations evaluate")):
        checkpoint_table.read(tmp_path)
