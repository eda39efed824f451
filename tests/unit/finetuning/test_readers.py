"""Readers in fine-tuning: which run is which, what heads start from, that each learns, and where none acts."""

import numpy as np
import pytest
import torch

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun, finetune, finetuned
from lightning_modules.tasks import TASKS, FineTuning, Task, pins
from lightning_modules.tasks.reading.text_vectors import READERS
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.training.weights import WEIGHTS
from tests.toy import toy_task
from tests.toy_shapes import TOYS, last_states
from tests.unit.finetuning.test_finetune import weights

SETTINGS = FineTuning().but(
    **{"epochs": 6, "batch_size": 8, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 1e-2}
)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """Tasks of one text, of two, of options and of tags that a tiny model learns, and one of spans."""
    spans = Task("toy_spans", "Who?", "made here", Spans(), ("f1",), lambda split: iter(()))
    for task in (toy_task("toy"), toy_task("toy_pairs", shape="pair"), toy_task("toy_numbers", labels=()), spans):
        monkeypatch.setitem(TASKS, task.name, task)
    for name, task in TOYS.items():
        monkeypatch.setitem(TASKS, name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def run_of(system, task, **changes):
    pretrained = Run.pretraining(system, 0, dict.fromkeys(system.data.corpora, "aa"))
    return Run.finetuning_of(pretrained, task, "bb", SETTINGS.but(**changes))


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


@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_options"])
def test_an_answer_follows_from_its_own_item_alone(tiny, task, reader):
    tuning = FinetuningRun(tiny, task, SETTINGS.but(reader=reader), 0, None)
    module, inputs = tuning.build().eval(), tuning.data.train
    order = np.argsort(inputs.sizes.max(1))
    numbers = order[[0, len(order) // 2, -1]]
    together = module(inputs.batch(numbers))
    alone = torch.cat([module(inputs.batch(np.array([number]))) for number in numbers])
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("reader", ["mean", "max", "concat", "mean_per_text"])
@pytest.mark.parametrize("direction", ["both", "left_to_right", "right_to_left", "two_way"])
def test_every_token_is_heard_without_a_segment_table(tiny, direction, reader):
    """Which text a token belongs to is known from the batch; the tiny model has no table of segments."""
    system = tiny.but(**{"model.direction": direction, "model.num_layers": 2})
    assert not system.model.segment_types
    tuning = FinetuningRun(system, "toy_pairs", SETTINGS.but(reader=reader), 0, None)
    module, inputs = tuning.build().eval(), tuning.data.train
    number = np.argsort(inputs.sizes[:, 0])[[len(inputs) // 2]]
    answer = module(inputs.batch(number))
    for place in range(1, int(inputs.sizes[number[0], 0])):
        changed = inputs.batch(number)
        changed.inputs.ids[0, place] = (changed.inputs.ids[0, place] - 5 + 7) % 59 + 5
        assert not torch.equal(module(changed), answer), place


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize("reader", sorted(READERS))
def test_every_reader_learns_and_is_read_again(tiny, tmp_path, reader, pooler):
    tuning = FinetuningRun(tiny, "toy_pairs", SETTINGS.but(reader=reader, pooler=pooler), 0, None)
    before, fitted = tuning.build().head.state_dict(), finetune(tuning, tmp_path)
    assert fitted.metrics["toy_pairs.accuracy"] > 0.6
    backbone, head = finetuned(tuning, tmp_path / WEIGHTS)
    for name, tensor in head.state_dict().items():
        assert not torch.equal(tensor, before[name]), name
    right = 0
    for example in tuning.data.val_dataloader():
        with torch.no_grad():
            right += int((head(backbone(example), example).argmax(1) == example.targets["label"].ids).sum())
    assert right / len(tuning.data.dev) == pytest.approx(fitted.metrics["toy_pairs.accuracy"])


class TestThePooler:
    def test_that_of_pretraining_read_one_position(self, tiny, tmp_path):
        system = tiny.but(**{"objectives.sentence.weight": 1.0, "format.kind": "segment_pairs"})
        path, pretrained = weights(system, tmp_path)
        adopted = pretrained.heads["sentence"]["pair"].pooler.weight
        for reader in READERS:
            _, head = FinetuningRun(system, "toy_pairs", SETTINGS.but(reader=reader), 0, path).networks()
            same = head.pooler.weight.shape == adopted.shape and torch.equal(head.pooler.weight, adopted)
            assert same == (reader in ("first", "last", "ends")), reader
        _, bare = FinetuningRun(system, "toy_pairs", SETTINGS.but(pooler=False), 0, path).networks()
        assert bare.pooler is None

    @pytest.mark.parametrize(("task", "adopted"), [("toy_pairs", True), ("toy_options", True), ("toy", False)])
    def test_that_of_a_task_before_stays_where_its_width_is_right(self, tiny, tmp_path, task, adopted):
        settings = SETTINGS.but(epochs=1, reader="mean_per_text")
        finetune(FinetuningRun(tiny, "toy_pairs", settings, 0, None), tmp_path)
        trained = finetuned(FinetuningRun(tiny, "toy_pairs", settings, 0, None), tmp_path / WEIGHTS)[1].pooler.weight
        _, head = FinetuningRun(tiny, task, settings, 0, tmp_path / WEIGHTS).networks()
        assert (head.pooler.weight.shape == trained.shape and torch.equal(head.pooler.weight, trained)) == adopted


class TestWhereNoTextIsRead:
    def test_a_setting_for_all_tasks_leaves_it_alone(self, tiny):
        settings = cells.finetuning({"finetuning.reader": "mean_per_text"}, "squad1")
        assert run_of(tiny, "toy_spans", reader=settings.reader).id == id_of(tiny, "toy_spans")

    @pytest.mark.parametrize("knob", [{"reader": "mean"}, {"pooler": False}])
    @pytest.mark.parametrize("task", ["squad1", "wnut17", "gap"])
    def test_a_setting_for_that_task_is_refused_by_name(self, task, knob):
        ((name, value),) = knob.items()
        path = f"finetuning.{task}.{name}"
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
        tuning = FinetuningRun(tiny, "toy_numbers", SETTINGS.but(**changes), 0, None)
        inputs, module = tuning.data.train, tuning.build().eval()
        assert len(inputs) == (examples or 64)
        assert module.head.output.bias.item() == pytest.approx(inputs.labels.mean(), abs=1e-6)
        assert 0.2 < inputs.labels.mean() < 0.8
        assert torch.allclose(module(inputs.batch(np.arange(5))), module.head.output.bias.expand(5, 1), atol=0.1)

    @pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_options", "toy_names", "toy_spans"])
    def test_elsewhere_it_changes_nothing(self, tiny, task):
        assert id_of(tiny, task, mean_label=True) == id_of(tiny, task)
        if task != "toy_spans":
            FinetuningRun(tiny, task, SETTINGS.but(mean_label=True), 0, None).build()


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
    tuning = FinetuningRun(tiny, "toy_pairs", SETTINGS, 0, None)
    example = tuning.data.train.batch(np.arange(8))
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
