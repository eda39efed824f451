"""Readers in fine-tuning: which run is which, what heads start from, that each learns, and where none acts."""

import numpy as np
import pytest
import torch

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.reading.text_vectors import READERS
from lightning_modules.training.weights import WEIGHTS
from tests.toy_shapes import last_states
from tests.tuning import accuracy, planned, tunings
from tests.unit.finetuning.test_finetune import weights

SETTINGS, tuning = tunings(epochs=6)


def run_of(system, task, **changes):
    return planned(system, SETTINGS.but(**changes), task)


def id_of(system, task="toy", **changes):
    return run_of(system, task, **changes).id


class TestWhichRunItIs:
    def test_a_single_text_is_read_by_its_mean(self, tiny):
        assert id_of(tiny, reader="mean_per_text") == id_of(tiny, reader="mean") != id_of(tiny)
        assert id_of(tiny, "toy_pairs", reader="mean_per_text") != id_of(tiny, "toy_pairs", reader="mean")
        assert id_of(tiny, "toy_alone", reader="mean_per_text") == id_of(tiny, "toy_alone", reader="mean")

    @pytest.mark.parametrize("task", ["toy_spans", "toy_names", "toy_mentions"])
    def test_tasks_of_single_positions_stay_as_they_are(self, tiny, task):
        assert id_of(tiny, task) == id_of(tiny, task, reader="mean_per_text", pooler=False)

    def test_the_parent_in_a_record_is_the_planned_one(self, tiny):
        run = run_of(tiny, "toy_pairs", first="toy", reader="mean_per_text")
        assert Run.read(run.to_dict()).start.id == run.start.id == run.parents[0]
        assert run.start.essence()["finetuning"]["reader"] == "mean"

    def test_records_that_call_it_pooling_are_read(self, tiny):
        for reader in (None, "last"):
            run = run_of(tiny, "toy", reader=reader)
            data = run.to_dict()
            data["finetuning"]["pooling"] = data["finetuning"].pop("reader")
            data["finetuning"].pop("pooler")
            assert Run.read(data) == run


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize("reader", sorted(READERS))
def test_every_reader_learns_and_is_read_again(tiny, tmp_path, reader, pooler):
    run = tuning(tiny, task="toy_pairs", reader=reader, pooler=pooler)
    before, fitted = run.build().head.state_dict(), finetune(run, tmp_path)
    assert fitted.metrics["toy_pairs.accuracy"] > 0.6
    for name, tensor in finetuned(run, tmp_path / WEIGHTS)[1].state_dict().items():
        assert not torch.equal(tensor, before[name]), name
    assert accuracy(run, tmp_path) == pytest.approx(fitted.metrics["toy_pairs.accuracy"])


class TestThePooler:
    def test_that_of_pretraining_read_one_position(self, tiny, tmp_path):
        system = tiny.but(**{"objectives.sentence.weight": 1.0, "format.kind": "segment_pairs"})
        path, pretrained = weights(system, tmp_path)
        adopted = pretrained.heads["sentence"]["pair"].pooler.weight
        for reader in READERS:
            _, head = tuning(system, path, task="toy_pairs", reader=reader).networks()
            same = head.pooler.weight.shape == adopted.shape and torch.equal(head.pooler.weight, adopted)
            assert same == (reader in ("first", "last", "ends")), reader
        _, bare = tuning(system, path, task="toy_pairs", pooler=False).networks()
        assert bare.pooler is None

    @pytest.mark.parametrize(("task", "adopted"), [("toy_pairs", True), ("toy_options", True), ("toy", False)])
    def test_that_of_a_task_before_stays_where_its_width_is_right(self, tiny, tmp_path, task, adopted):
        settings = SETTINGS.but(epochs=1, reader="mean_per_text")
        finetune(tuning(tiny, task="toy_pairs", settings=settings), tmp_path)
        trained = finetuned(tuning(tiny, task="toy_pairs", settings=settings), tmp_path / WEIGHTS)[1].pooler.weight
        _, head = tuning(tiny, tmp_path / WEIGHTS, task=task, settings=settings).networks()
        assert (head.pooler.weight.shape == trained.shape and torch.equal(head.pooler.weight, trained)) == adopted


class TestWhereNoTextIsRead:
    @pytest.mark.parametrize(("name", "value"), [("reader", "mean"), ("pooler", False), ("hidden_layer", {})])
    @pytest.mark.parametrize("task", ["squad1", "wnut17", "gap"])
    def test_a_setting_for_all_tasks_does_nothing_and_one_for_that_task_is_refused(self, task, name, value):
        settled, path = TASKS[task].shape.settled, f"finetuning.{task}.{name}"
        plain, given = (cells.finetuning(changes, task) for changes in ({}, {f"finetuning.{name}": value}))
        assert settled(given) == settled(plain)
        with pytest.raises(ConfigError, match=f"{path}: {task} is answered from single positions"):
            cells.finetuning({path: value}, task)
        assert cells.finetuning({path: value}, "sst2") == cells.finetuning({}, "sst2")

    def test_its_neutral_value_is_not(self):
        assert cells.finetuning({"finetuning.squad1.reader": None, "finetuning.squad1.pooler": True}, "squad1")


class TestTheMeanLabel:
    """A regression may start from the mean of the labels that it is trained on."""

    @pytest.mark.parametrize("reader", [None, "mean_per_text"])
    @pytest.mark.parametrize("examples", [None, 12])
    def test_it_is_the_first_answer(self, tiny, reader, examples):
        changes = {"reader": reader, "train_examples": examples, "mean_label": True}
        run = tuning(tiny, task="toy_numbers", **changes)
        inputs, module = run.data.train, run.build().eval()
        assert len(inputs) == (examples or 64)
        assert module.head.output.bias.item() == pytest.approx(inputs.labels.mean(), abs=1e-6)
        assert 0.2 < inputs.labels.mean() < 0.8
        assert torch.allclose(module(inputs.batch(np.arange(5))), module.head.output.bias.expand(5, 1), atol=0.1)

    @pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_options", "toy_names", "toy_spans"])
    def test_elsewhere_it_changes_nothing(self, tiny, task):
        assert id_of(tiny, task, mean_label=True) == id_of(tiny, task)
        if task != "toy_spans":
            tuning(tiny, task=task, mean_label=True).build()


class _Berts(torch.nn.Module):
    """BERT's classifier written out: the first position, the pooler, dropout, a linear layer."""

    def __init__(self, width, outputs):
        super().__init__()
        self.pooler, self.output = torch.nn.Linear(width, width), torch.nn.Linear(width, outputs)
        for layer in (self.pooler, self.output):
            torch.nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, hidden):
        vectors = torch.tanh(self.pooler(hidden.flatten(0, 1)[torch.arange(len(hidden)) * hidden.shape[1]]))
        return self.output(torch.nn.functional.dropout(vectors, 0.1, self.training))


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_without_a_reader_it_is_berts_classifier_to_the_bit(tiny, precision):
    """Initial weights, outputs and gradients, with dropout: a run that sets no reader keeps its numbers."""
    run = tuning(tiny, task="toy_pairs")
    example = run.data.train.batch(np.arange(8))
    found = []
    for make in (lambda: TASKS["toy_pairs"].shape.head(16, SETTINGS), lambda: _Berts(16, 2)):
        torch.manual_seed(3)
        head, hidden = make(), torch.randn(*example.inputs.ids.shape, 16, requires_grad=True)
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            outputs = head(hidden) if isinstance(head, _Berts) else head(last_states(hidden), example)
        outputs.float().square().sum().backward()
        found.append([outputs, hidden.grad, *(part for p in head.parameters() for part in (p, p.grad))])
    for ours, berts in zip(*found, strict=True):
        assert torch.equal(ours, berts)
