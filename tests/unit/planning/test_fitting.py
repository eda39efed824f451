"""Fine-tunings that do not fit their task or their model are complaints of the grid, before anything is planned."""

import pytest

from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests import tiny

ONE_WAY = """\
  objectives.mlm: null
  objectives.lm.direction: left_to_right
  model.direction: left_to_right
"""


def said(folder, lines="", tasks="[rte]", rates="[0.1, 0.2]"):
    """What reading a grid of one-way models says, and its lines as written."""
    path = tiny.grid(folder)
    text = path.read_text().replace(
        "axes:\n  objectives.mlm.masking.rate: [0.15, 0.4]\n", f"{ONE_WAY}{lines}axes:\n  finetuning.dropout: {rates}\n"
    )
    text = (
        text.replace("baseline: {objectives.mlm.masking.rate: 0.15}\n", "")
        .replace("seeds: 2\n", f"seeds: 2\ntasks: {tasks}\n")
        .replace("heldout.loss", "heldout.next_loss")
    )
    path.write_text(text)
    try:
        grids.read(path)
    except ConfigError as error:
        return [(text.splitlines()[problem_line(line) - 1].strip(), line) for line in str(error).splitlines()]
    return []


def problem_line(complaint):
    return int(complaint.split(":")[1])


def test_a_language_model_takes_them_all(tmp_path):
    lines = "  finetuning.layout: extract\n  finetuning.auxiliary_lm: 0.5\n  finetuning.layers_transferred: 1\n"
    assert said(tmp_path, lines, "[rte, sst2, swag]") == []


@pytest.mark.parametrize(
    ("lines", "tasks", "place", "words"),
    [
        ("  finetuning.layout: extract\n", "[rte, squad1]", "finetuning.layout: extract", "squad1 is answered from"),
        ("  finetuning.layers_transferred: 2\n", "[rte]", "finetuning.layers_transferred: 2", "more than the 1 layers"),
        ("  finetuning.layout: extrakt\n", "[rte]", "finetuning.layout: extrakt", "Did you mean 'extract'?"),
        ("  finetuning.auxiliary_lm: -1\n", "[rte]", "finetuning.auxiliary_lm: -1", "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_where_it_is_written(tmp_path, lines, tasks, place, words):
    found = said(tmp_path, lines, tasks)
    assert [(line, words in text) for line, text in found] == [(place, True)], found


def test_an_axis_of_both_orders_acts_on_some_task(tmp_path):
    path = tiny.grid(tmp_path, extra="tasks: [rte]\n")
    text = path.read_text().replace("axes:\n", "axes:\n  finetuning.both_orders: [false, true]\n")
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"both_orders acts on none of its tasks: rte has no two texts"):
        grids.read(path)
    path.write_text(text.replace("[rte]", "[rte, mrpc]"))
    grids.read(path)
