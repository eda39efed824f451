"""Grids that ask pretrained models without training: runs, settings, refusals, and what a plan says of them."""

import pytest

from ablations.measurements.sides import one_text
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.schema.kinds import KINDS
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT
from tests import tiny
from tests.messages import naming

ONE_WAY = """
  objectives.mlm: null
  objectives.lm.direction: left_to_right
  model.direction: left_to_right
  format.kind: full_sentences
  format.break_mode: none
"""


def grid(folder, measure="measure: [heldout_text, cloze]\n", knobs="", axes="  training.steps: [4, 8]", more=""):
    """A grid of tiny language models that are asked."""
    file = tiny.grid(folder, extra=measure + more)
    text = file.read_text().replace("set:\n", f"set:{ONE_WAY}{knobs}", 1)
    text = text.replace("  objectives.mlm.masking.rate: [0.15, 0.4]", axes).replace("  training.steps: 12\n", "")
    file.write_text(text.replace("baseline: {objectives.mlm.masking.rate: 0.15}\n", ""))
    return file


def made(file):
    return plan(grids.read(file), "smoke")


def test_every_pretraining_is_asked_every_task(tmp_path):
    found = made(grid(tmp_path))
    for cell in found.cells:
        assert [(run.kind, run.task, run.seed) for run in cell.zero_shot] == [
            ("measure", task, seed) for seed in (0, 1) for task in ("heldout_text", "cloze")
        ]
        assert [run.start.id for run in cell.zero_shot[::2]] == [run.id for run in cell.runs]
        assert cell.tasks == ("heldout_text", "cloze")
        assert cell.tuned == ()
    order = [run.id for run in found.runs]
    assert all(order.index(run.parents[0]) < order.index(run.id) for run in found.runs if run.parents)
    assert len(order) == 2 * 2 * 3
    assert "heldout_text, cloze" in set(found.table()["tasks"])


def test_a_measurement_costs_forward_passes(tmp_path):
    found = made(grid(tmp_path))
    (cell, _) = found.cells
    cost = found.costs[cell.zero_shot[0].id]
    assert cost.steps == 0
    assert 0 < cost.flops < found.costs[cell.runs[0].id].flops * 1000
    few = made(grid(tmp_path / "few", knobs="  measuring.examples: 10\n"))
    assert few.costs[few.cells[0].zero_shot[0].id].flops < cost.flops / 10


def test_a_setting_belongs_to_the_runs_of_the_tasks_that_read_it(tmp_path):
    """Held-out text is read in windows, a cloze in one: only the first is another run at another stride."""
    plain, strided = made(grid(tmp_path)), made(grid(tmp_path / "strided", knobs="  measuring.stride: 4\n"))
    before, after = ([run.measuring for run in found.cells[0].zero_shot] for found in (plain, strided))
    assert [settings.stride for settings in after[:2]] == [4, None]
    assert before[1] == after[1] == Measurement()


def test_an_axis_over_a_setting_shares_the_pretrainings(tmp_path):
    found = made(grid(tmp_path, axes="  measuring.stride: [4, 8]"))
    one, other = found.cells
    assert [run.id for run in one.runs] == [run.id for run in other.runs]
    assert one.zero_shot[0].id != other.zero_shot[0].id
    assert one.zero_shot[1].id == other.zero_shot[1].id


def test_a_measurement_is_another_one_only_under_pieces_that_are_asked_otherwise(tmp_path):
    """Pieces that may be a space alone or a part of a letter were once barred from the last words of LAMBADA."""
    kinds = ["wordpiece", "letter_bpe", "byte_bpe", "unigram"]
    found = made(grid(tmp_path, "measure: [lambada, cloze]\n", axes=f"  data.tokenizer.kind: [{', '.join(kinds)}]"))
    asked = {(cell.system.data.tokenizer.kind, run.task): run for cell in found.cells for run in cell.zero_shot}
    for (kind, task), run in asked.items():
        print_ = run.fingerprints[task]
        assert KINDS["measure"].fingerprint(task, kind) == print_, "which a worker compares it with"
        assert (print_ == ZERO_SHOT[task].fingerprint()) == (task == "cloze" or kind in kinds[:2])


def test_a_measurement_is_read_back_with_its_identity(tmp_path):
    run = made(grid(tmp_path, knobs="  measuring.stride: 4\n")).cells[0].zero_shot[0]
    again = Run.read(run.to_dict())
    assert again.id == run.id
    assert again.start.id == run.parents[0]


def test_masked_models_are_refused_by_name(tmp_path):
    file = tiny.grid(tmp_path, extra="measure: [heldout_text]\n")
    with pytest.raises(ConfigError, match=naming("heldout_text", "cannot be measured", "mlm", "left_to_right")):
        grids.read(file)


def test_a_setting_that_cannot_act_on_its_task_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=naming("measuring.cloze.stride", "does not act on cloze")):
        grids.read(grid(tmp_path, knobs="  measuring.cloze.stride: 4\n"))


def test_an_axis_that_acts_on_no_task_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=naming("measuring.shots", "acts on none", "sst2_asked")):
        grids.read(grid(tmp_path, axes="  measuring.shots: [0, 1]"))


def test_no_search_chooses_by_a_zero_shot_score(tmp_path):
    search = "search: {axes: {optimizer.peak_lr: [0.001, 0.003]}, metric: cloze.accuracy}\n"
    with pytest.raises(ConfigError, match=naming("cloze.accuracy", "without training")):
        grids.read(grid(tmp_path, more=search))


def test_a_stream_is_asked_of_streams_alone(tmp_path):
    with pytest.raises(ConfigError, match=naming("heldout_stream", "full_sentences", "stream")):
        grids.read(grid(tmp_path, "measure: [heldout_stream]\n"))


def test_lengths_of_reading_share_a_training_and_what_cannot_be_read_is_refused(tmp_path):
    of_stream = "  format.kind: stream\n  format.frame: none\n  model.positions: relative\n  model.memory_length: 8\n"
    asked = {"measure": "measure: [heldout_stream]\n", "axes": "  measuring.memory_length: [4, 8]"}

    def streams(folder, knobs=""):
        file = grid(folder, knobs=of_stream + knobs, **asked)
        file.write_text(file.read_text().replace("  format.kind: full_sentences\n", ""))
        return file

    one, other = made(streams(tmp_path)).cells
    assert [run.id for run in one.runs] == [run.id for run in other.runs]
    assert not {run.id for run in one.zero_shot} & {run.id for run in other.zero_shot}
    assert one_text([one, other], "heldout_stream.loss")
    with pytest.raises(ConfigError, match=naming("measuring.lead 5", "16 positions")):
        grids.read(streams(tmp_path / "cut", "  measuring.lead: 5\n"))
