"""Every training and fine-tuning step runs where its batch is: shown on torch's meta device, without a GPU.

Tensors of the meta device have a shape and no numbers. So a step that reads one back (``item``, ``nonzero``, ``cpu``)
fails there too; on a GPU it would wait for all work before it. Batches are made on the CPU, as loaders do.
"""

import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_modules.batch import Example
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.objectives import Objectives
from lightning_modules.systems import ROBERTA_BASE, SYSTEMS
from lightning_modules.tasks import TASKS, FineTuning, Task, pins
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.reading.text_vectors import READERS
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.training.optimizers import clip
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every
from tests.toy import toy_task
from tests.toy_shapes import TOYS, letters

TINY = {
    "model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "model.max_positions": 32,
    "data.tokenizer.vocab_size": 128, "format.sequence_length": 16,
}  # fmt: skip
# objective -> what a system must have for it
NEEDS = {
    "mlm": {"model.query_stream": False},
    "lm": {"model.direction": "left_to_right", "model.query_stream": False},
    "plm": {"model.direction": "both", "model.query_stream": True, "objectives.plm.transform": "bert"},
    "sentence": {"format.kind": "segment_pairs"},
    "sbo": {"objectives.mlm.masking.units.kind": "spans"},
}
LM = {"objectives.mlm": None, "objectives.lm.direction": "right_to_left", "model.direction": "right_to_left"}
TWO_WAY = {**LM, "objectives.lm.direction": "two_way", "model.direction": "two_way", "model.num_layers": 2}
BRANCHES = {
    "sinusoids": {"model.positions": "sinusoidal"},
    "linear bias": {"model.positions": "linear_bias"},
    "sided bias": {"model.positions": "sided_linear_bias"},
    "distances": {"model.positions": "relative", "model.attention_biases": False},
    "learned distances": {"model.positions": "relative_learned", "model.query_biases": "layer"},
    "no positions": {"model.positions": "none"},
    "narrow embeddings": {"model.embedding_size": 8},
    "shared layers": {"model.sharing": "all", "model.num_layers": 2},
    "norm first": {"model.norm": "pre"},
    "right to left": LM,
    "two ways": TWO_WAY,
    "two ways, sided bias": {**TWO_WAY, "model.positions": "sided_linear_bias"},
}


class OneDevice(TorchDispatchMode):
    """Refuses what CUDA refuses and meta tensors let pass: one operation on tensors of two devices.

    A single number of the CPU goes with every device, and tensors may be copied from one to another.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        devices = {tensor.device.type for tensor in given if tensor.ndim or tensor.device.type != "cpu"}
        if len(devices) > 1 and func is not torch.ops.aten.copy_.default:
            raise RuntimeError(f"{func} reads tensors on {' and '.join(sorted(devices))}")
        return func(*args, **(kwargs or {}))


class Accumulating:
    """The part of a trainer that a training step reads."""

    accumulate_grad_batches, world_size = 2, 1


def step(module, example):
    """Forward, backward and clipping on the meta device."""
    module.to("meta").train()
    with OneDevice():
        loss = module.training_step(example.to("meta"), 0)
        loss.backward()
        clip(module, 1.0)
    assert loss.device.type == "meta"
    assert {parameter.grad.device.type for parameter in module.parameters()} == {"meta"}


def pretraining_step(system):
    module = system.build(seed=0)
    module.trainer = Accumulating()
    if system.objectives.distilled:
        other = system.parents()["teacher"].system.build(seed=1)
        module.distil_from(other)
    tokens = make_tokens(8, 16, 128, padding=4)
    example = system.objectives.mask_inputs(Example.of(tokens), make_draws(8), make_vocabulary(128))
    step(module, example)
    with OneDevice(), torch.no_grad():
        shown = example.to("meta")
        measures = system.objectives.measure(module.heads, module.backbone(shown), shown)
        assert {(total / count).device.type for total, count in measures.values()} == {"meta"}


def with_objective(name):
    """What to change for an objective: it takes the place of the others if it masks inputs, and else joins them."""
    kinds = Objectives.kinds()
    others = [other for other in kinds if other != name] if kinds[name].masks_inputs else []
    absent = {f"objectives.{other}": None for other in others}
    return {**absent, f"objectives.{name}.weight": 1.0, **NEEDS.get(name, {})}


OBJECTIVES = {"its own": {}, **{name: with_objective(name) for name in Objectives.kinds()}}


def systems():
    """Every transformer with every objective, by name; those that differ in size alone are one.

    An LSTM asks on the host whether a batch has padding, which meta tensors cannot say.
    """
    found = {}
    for name, objective in itertools.product(SYSTEMS, OBJECTIVES):
        if SYSTEMS[name].model.kind != "transformer" or objective == "activations":
            continue
        if SYSTEMS[name].objectives.mlm is None and objective in ("sentence", "sbo"):
            continue  # which need what a masked language model has
        if SYSTEMS[name].format.kind == "stream" and objective in ("mlm", "plm", "distillation"):
            continue  # rows that go on are read from the left, and taught one step at a time
        if SYSTEMS[name].objectives.mlm is None and objective == "distillation":
            continue  # which teaches the head for masked words
        chosen = SYSTEMS[name].training.start_layers  # of a deeper model
        fewer = {"training.start_layers": chosen[:1]} if chosen else {}
        if chosen and objective != "distillation" and objective != "its own":
            fewer = {"objectives.distillation": None, "training.start": {}, "training.start_layers": []}
        if SYSTEMS[name].format.languages != "one_text":
            fewer |= {"format.languages": "one_text", "model.languages": []}  # the batches here name none
        system = SYSTEMS[name].but(**TINY | fewer | OBJECTIVES[objective])
        found.setdefault((system.model, system.objectives), (f"{name}, {objective}", system))
    return dict(found.values())


@every("system", lambda: systems().values())
@pytest.mark.nightly
def test_a_training_step_runs_where_its_batch_is(system):
    pretraining_step(system)


@every("branch", BRANCHES)
def test_so_do_all_branches_of_the_backbone(branch):
    pretraining_step(ROBERTA_BASE.but(**TINY | BRANCHES[branch]))


def questions(split):
    for number in range(9):
        yield Question(f"{split}-{number}", "who came", "ann left . bob came home . " * 3, ((11, "bob"),))


METRICS = ("f1", "exact_match")
TASKS_MADE_HERE = {
    **TOYS,
    "toy": toy_task("toy"),
    "toy_pairs": toy_task("toy_pairs", shape="pair"),
    "toy_numbers": toy_task("toy_numbers", labels=()),
    "toy_spans": Task("toy_spans", "Who?", "made here", Spans(doc_stride=6, max_query=4), METRICS, questions),
}
FINE_TUNINGS = {
    **{name: {"reader": name} for name in READERS},
    "no pooler": {"pooler": False},
    "new symbols": {"layout": "extract"},
    "a frozen layer": {"features.layers": "last", "features.bilstm_layers": 0},
    "frozen layers": {"features.layers": "weighted_sum_all", "features.bilstm_layers": 0},
}


@pytest.fixture
def finetuning_step(tmp_path, monkeypatch):
    """Takes a step on the meta device with settings of a fine-tuning."""
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    for name, task in TASKS_MADE_HERE.items():
        monkeypatch.setitem(TASKS, name, task)

    def take(task, system=None, **changes):
        settings = FineTuning(max_length=24, batch_size=8).but(**changes)
        run = FinetuningRun(ROBERTA_BASE.but(**TINY | (system or {})), task, settings, 0, None, letters(tmp_path))
        step(run.build(), next(iter(run.data.train_dataloader())))

    return take


@pytest.mark.parametrize("task", TASKS_MADE_HERE)
def test_a_fine_tuning_step_runs_where_its_batch_is(finetuning_step, task):
    finetuning_step(task)


@pytest.mark.parametrize("settings", FINE_TUNINGS)
def test_so_do_other_ways_to_fine_tune(finetuning_step, settings):
    finetuning_step("toy", **FINE_TUNINGS[settings])


@pytest.mark.parametrize("task", ["toy_pairs", "toy_options", "toy_names"])
def test_so_does_a_language_model_beside_the_task(finetuning_step, task):
    one_way = {
        "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"
    }  # fmt: skip
    finetuning_step(task, one_way, auxiliary_lm=0.5)


def test_every_shape_of_tasks_takes_a_step_above():
    assert {type(task.shape) for task in TASKS.values()} <= {type(task.shape) for task in TASKS_MADE_HERE.values()}


PACKING = "torch packs rows for an LSTM by lengths that must be on the CPU"


@pytest.mark.xfail(raises=NotImplementedError, reason=PACKING, strict=True)
@pytest.mark.parametrize("changes", [{"bilstm_layers": 1}, {"features.layers": "last", "features.bilstm_layers": 1}])
def test_a_bilstm_never_waits_for_its_device(finetuning_step, changes):
    finetuning_step("toy", **changes)


class Shifted(nn.Module):
    """A layer with a mistake of one of several kinds."""

    def __init__(self, mistake):
        super().__init__()
        self.weight, self.mistake = nn.Parameter(torch.ones(4, 4)), mistake
        self.table = torch.eye(4)  # no buffer, so it does not move with the layer

    def forward(self, x):
        return self.mistake(self, x @ self.weight).sum()


MISTAKES = {
    "a sum with a tensor made here": lambda layer, x: x + torch.zeros(4),
    "a product with a tensor made here": lambda layer, x: x @ torch.eye(4),
    "a table that does not move": lambda layer, x: torch.bmm(x[None], layer.table[None]),
    "positions made here": lambda layer, x: x[torch.arange(len(x))],
    "a table that is read": lambda layer, x: x + layer.table[torch.zeros(4, dtype=torch.long, device=x.device)],
    "a number read back": lambda layer, x: x / float(x.detach().max()),
    "numbers chosen by their values": lambda layer, x: x[x > 0],
    "a mistake of the backward pass": lambda layer, x: x.register_hook(lambda gradient: gradient @ torch.eye(4)) and x,
}


@every("mistake", [None, *MISTAKES])
def test_a_mistake_is_found(mistake):
    layer = Shifted(MISTAKES.get(mistake, lambda layer, x: x + torch.zeros(4, device=x.device))).to("meta")
    x = torch.ones(3, 4, device="meta")
    with OneDevice():
        if mistake is None:
            layer(x).backward()
        else:
            with pytest.raises((RuntimeError, NotImplementedError)):
                layer(x).backward()
