"""What a plan counts of a training whose steps show rows of several lengths, or equally many tokens."""

import pytest

from ablations.measurements.sides import one_text
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError, identity
from lightning_modules.systems import ROBERTA_BASE
from tests import tiny

FIRST = {"format.first_share": 0.75, "format.first_length": 8}


def planned(folder, equal):
    file = tiny.grid(folder, steps=40)
    text = file.read_text().replace("  objectives.mlm.masking.rate: [0.15, 0.4]", "  format.first_share: [0.0, 0.75]")
    text = text.replace("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {format.first_share: 0.0}")
    file.write_text(text.replace("axes:", f"  format.first_length: 8\nbudget: {{equal: {equal}}}\naxes:"))
    return plan(grids.read(file), "smoke")


def test_equal_tokens_give_a_curriculum_more_steps(tmp_path):
    full, curriculum = planned(tmp_path, "tokens").table().itertuples()
    assert full.tokens == 40 * 4 * 16
    assert curriculum.steps == 64  # three quarters of them of half the length
    assert curriculum.tokens == full.tokens


def test_equal_flops_do_so_too(tmp_path):
    full, curriculum = planned(tmp_path, "flops").table().itertuples()
    assert curriculum.steps > 60
    assert curriculum.flops == pytest.approx(full.flops, rel=0.02)


def test_equal_steps_show_fewer_tokens(tmp_path):
    full, curriculum = planned(tmp_path, "steps").table().itertuples()
    assert (full.steps, curriculum.steps) == (40, 40)
    assert curriculum.tokens == 4 * (30 * 8 + 10 * 16)


def test_a_step_by_tokens_is_planned_as_one_of_full_sequences():
    by_tokens = ROBERTA_BASE.but(**{"training.batch_by": "tokens", "format.break_mode": "documents"})
    assert (by_tokens.tokens(), by_tokens.flops()) == (ROBERTA_BASE.tokens(), ROBERTA_BASE.flops())
    assert identity(by_tokens.essence()) != identity(ROBERTA_BASE.essence())


def test_the_first_steps_by_tokens_have_more_rows_and_as_many_tokens():
    full = ROBERTA_BASE.but(**{"training.batch_by": "tokens"})
    curriculum = full.but(**FIRST | {"format.first_length": 128})
    assert curriculum.shown() == {128: 375_000 * 8192 * 4, 512: 125_000 * 8192}
    assert curriculum.tokens() == full.tokens()
    assert curriculum.flops() < full.flops(), "attention is cheaper in short rows"


@pytest.mark.parametrize("idle", [{"format.first_length": 8}, {**FIRST, "format.first_length": 512}])
def test_a_curriculum_without_shorter_sequences_is_none(idle):
    assert identity(ROBERTA_BASE.but(**idle).essence()) == identity(ROBERTA_BASE.essence())
    assert ROBERTA_BASE.but(**idle).format.stages(10) == [(512, 10)]


def test_a_share_without_a_length_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"format: first_share 0\.9 needs first_length"):
        ROBERTA_BASE.but(**{"format.first_share": 0.9})


@pytest.mark.parametrize("name", ["input_format", "short_sequences"])
def test_arms_show_as_many_tokens_and_are_measured_on_one_text(name):
    cells = plan(grids.read(name), "laptop").cells
    assert one_text(cells, "heldout.loss")
    tokens = [cell.system.tokens() for cell in cells]
    assert max(tokens) - min(tokens) <= 32 * 128, "no more than one step"
