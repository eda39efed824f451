"""What a model cannot do is refused by name, never ignored; what modules share is counted, trained and kept once."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.batch import Example, Unsupported
from lightning_modules.config import ConfigError
from lightning_modules.data import TextFormat
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Objectives
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.systems import ALBERT_BASE, BERT_BASE, ROBERTA_BASE
from lightning_modules.training.weights import WEIGHTS, keep_weights, load_weights
from tests.conftest import make_draws, make_tokens, make_vocabulary


def system(base=ROBERTA_BASE, **parts):
    """A system with parts that are no knobs."""
    return System(**{name: getattr(base, name) for name in System.model_fields} | parts)


def asking(need):
    return type("Asking", (MaskedLM,), {"needs": {need: "choose another model"}})()


class Giving(TextFormat):
    gives: ClassVar = TextFormat.gives | {"language table", "an encoder's source"}


@pytest.mark.parametrize("need", ["a second stream", "carried state", "an encoder's source", "a language table"])
@pytest.mark.parametrize("direction", ["both", "two_way"])
def test_an_objective_that_asks_too_much_is_refused_by_name(need, direction):
    model = ROBERTA_BASE.model.but(direction=direction)
    system(model=model)  # the same without the need
    with pytest.raises(ValueError, match=rf"objectives\.mlm needs {need}.*choose another model"):
        system(model=model, objectives=Objectives(mlm=asking(need)))


def test_a_format_that_gives_too_much_is_refused_by_name():
    with pytest.raises(ValueError) as refused:
        system(format=Giving())
    assert all(name in str(refused.value) for name in ("language table", "an encoder's source"))


@pytest.mark.parametrize(
    ("base", "changes", "remedy"),
    [
        (BERT_BASE, {"format.kind": "full_sentences"}, "set format.kind to segment_pairs"),
        (ALBERT_BASE, {"model.direction": "left_to_right"}, "cannot be left_to_right"),
        (ROBERTA_BASE, {"objectives.mlm": None, "objectives.lm.direction": "right_to_left"},
         "set model.direction to right_to_left"),
    ],
)  # fmt: skip
def test_what_objectives_ask_of_format_and_model(base, changes, remedy):
    with pytest.raises(ConfigError, match=remedy):
        base.but(**changes)


SMALL = Transformer(num_layers=2, hidden_size=16, num_heads=2, max_positions=16)


@pytest.mark.parametrize("direction", ["both", "left_to_right", "two_way"])
def test_a_batch_with_an_input_that_the_encoder_ignores_is_refused(direction):
    encoder = SMALL.but(direction=direction).build(50)
    tokens = make_tokens()
    encoder(Example.of(tokens))
    language = replace(tokens, tables=tokens.tables | {"language": torch.zeros_like(tokens.ids)})
    with pytest.raises(Unsupported, match="language table"):
        encoder(Example.of(language))
    with pytest.raises(Unsupported, match="features"):
        encoder(replace(Example.of(tokens), features=torch.zeros(4, 16, 1, 16)))


class Auxiliary(MaskedLM):
    """Masked language modelling with a second term, the mean squared state at the predicted positions."""

    def loss(self, heads, encoded, example):
        states = encoded.last.flatten(0, 1)[example.targets["mlm"].where]
        return super().loss(heads, encoded, example) | {"size": states.float().square().sum()}


class Declared(Auxiliary):
    def counts(self, example):
        return super().counts(example) | {"size": 16 * example.targets["mlm"].count()}


def test_a_loss_term_without_a_declared_count_is_refused():
    objectives = Objectives(mlm=Auxiliary())
    example = objectives.mask_inputs(Example.of(make_tokens()), make_draws(), make_vocabulary())
    heads = objectives.heads(SMALL.size(50))
    with pytest.raises(Unsupported, match=r"objectives\.mlm: loss term 'size' has no declared count"):
        objectives.loss(heads, SMALL.build(50)(example), example)


def test_a_declared_term_trains_alike_in_micro_batches(tiny, tmp_path):
    """Before counts were declared, such a term weighed four times as much with four micro-batches."""
    whole = tiny.but(**{"training.steps": 4, "model.dropout": 0.0, "model.attention_dropout": 0.0,
                        "model.embedding_dropout": 0.0, "training.clip_norm": 0.0})  # fmt: skip
    losses = []
    for micro in (None, 2):
        training = whole.training.but(micro_batch_size=micro)
        losses.append(
            fit(system(whole, objectives=Objectives(mlm=Declared()), training=training), 0, tmp_path / str(micro))
        )
    one, four = losses
    assert four.curve["train.size"] == pytest.approx(one.curve["train.size"], rel=1e-4)
    assert four.curve["train.mlm"] == pytest.approx(one.curve["train.mlm"], rel=1e-4)


class Twice(MaskedLM):
    """A head that is registered under two names."""

    def heads(self, size):
        heads = super().heads(size)
        heads["again"] = heads["vocabulary"]
        return heads


class WithVector(Transformer):
    """An encoder that holds a parameter of its own, outside its layers."""

    def build(self, vocab_size):
        encoder = super().build(vocab_size)
        encoder.vector = nn.Parameter(torch.ones(16))
        return encoder


def test_a_shared_module_trains_is_counted_once_and_leaves_weights_that_load(tiny, tmp_path):
    plain = system(tiny, objectives=Objectives(mlm=MaskedLM(weight=0.5)))
    tied = system(tiny, objectives=Objectives(mlm=Twice(weight=0.25)))
    assert tied.parameters() == plain.parameters() == sum(p.numel() for p in tied.build(0).parameters())
    fit(tied, 0, tmp_path)
    weights, module = load_weights(tmp_path / WEIGHTS), tied.build(1)
    module.load_state_dict(weights)
    assert torch.equal(module.heads["mlm"]["again"].bias, weights["heads.mlm.vocabulary.bias"])
    assert module.heads["mlm"]["again"] is module.heads["mlm"]["vocabulary"]


def test_parameters_that_a_backbone_holds_itself_are_counted(tiny):
    held = system(
        tiny, model=WithVector(**tiny.model.to_dict() | {"dropout": 0.11, "embedding_cutoffs": (), "languages": ()})
    )
    assert held.parameters() == tiny.parameters() + 16
    assert held.parameters_by_part()["backbone"] == 16


class Views(nn.Module):
    """Tensors in one memory: the same one twice, its transpose, and a part of it."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.arange(12.0).reshape(3, 4)
        for name, tensor in {"table": table, "same": table, "turned": table.T, "part": table[1:]}.items():
            self.register_buffer(name, tensor)
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("nothing", torch.zeros(0))


@pytest.mark.parametrize("kept_as", ["fp32", "bf16"])
def test_weights_in_one_memory_come_back_as_they_were(tmp_path, kept_as):
    views = Views()
    keep_weights(views, tmp_path, kept_as)
    back: dict[str, Tensor] = load_weights(tmp_path / WEIGHTS)
    assert back.keys() == views.state_dict().keys()
    for name, tensor in views.state_dict().items():
        assert torch.equal(back[name], tensor), name
        assert back[name].dtype is tensor.dtype
