"""Logits and gradients equal to transformers' BERT, built offline from tiny random configurations."""

import pytest
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel

from lightning_modules.batch import Example
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel, MaskedLM, Objectives
from tests.conftest import make_draws, make_tokens, make_vocabulary

VOCAB, LAYERS = 50, 3


def _pairs(backbone, head):
    """(our parameter, name of theirs); three of theirs are stacked in our one projection."""
    for name, parameter in backbone.embeddings.named_parameters():
        theirs = {
            "word.weight": "word_embeddings.weight",
            "position.weight": "position_embeddings.weight",
            "tables.segment.weight": "token_type_embeddings.weight",
            "norm.weight": "LayerNorm.weight",
            "norm.bias": "LayerNorm.bias",
        }[name]
        yield parameter, [f"bert.embeddings.{theirs}"]
    parts = {
        "attention.function.qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
        "attention.function.output": ["attention.output.dense"],
        "attention.norm": ["attention.output.LayerNorm"],
        "ffn.function.expand": ["intermediate.dense"],
        "ffn.function.contract": ["output.dense"],
        "ffn.norm": ["output.LayerNorm"],
    }
    for index, block in enumerate(backbone.blocks):
        for ours, theirs in parts.items():
            for kind in ("weight", "bias"):
                names = [f"bert.encoder.layer.{index}.{part}.{kind}" for part in theirs]
                yield block.get_parameter(f"{ours}.{kind}"), names
    for ours, theirs in {"dense": "transform.dense", "norm": "transform.LayerNorm"}.items():
        for kind in ("weight", "bias"):
            yield head.get_parameter(f"{ours}.{kind}"), [f"cls.predictions.{theirs}.{kind}"]
    yield head.bias, ["cls.predictions.bias"]


@pytest.fixture(params=["eager", "sdpa"])
def models(request):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=24, attn_implementation=request.param, initializer_range=0.3,
    )  # fmt: skip
    theirs = BertForMaskedLM(config).eval()
    with torch.no_grad():  # biases and norms away from 0 and 1, where a mistake would not show
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    settings = Transformer(num_layers=LAYERS, hidden_size=32, num_heads=4, ffn_size=64, max_positions=24)
    objectives = Objectives(mlm=MaskedLM())
    backbone, heads = settings.build(VOCAB).eval(), objectives.heads(settings.size(VOCAB)).eval()
    state = dict(theirs.named_parameters())
    with torch.no_grad():
        for parameter, names in _pairs(backbone, heads["mlm"]["vocabulary"]):
            parameter.copy_(torch.cat([state[name] for name in names]))
    return theirs, backbone, heads, objectives


@pytest.mark.parametrize("padding", [0, 5])
def test_logits_and_gradients(models, padding):
    theirs, backbone, heads, objectives = models
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=padding)
    tokens.tables["segment"][:, 11:] = 1
    example = objectives.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary(VOCAB))
    target = example.targets["mlm"]

    expected = theirs(
        input_ids=example.inputs.ids, attention_mask=tokens.real.long(), token_type_ids=tokens.tables["segment"]
    ).logits.reshape(-1, VOCAB)[target.where]
    encoded = backbone(example)
    logits = objectives.mlm.logits(heads["mlm"], encoded, example)
    assert (logits - expected).abs().max() <= 1e-5

    F.cross_entropy(expected, target.ids).backward()
    total, count, _ = objectives.loss(heads, encoded, example)["mlm"]
    (total / count).backward()
    reference = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for parameter, names in _pairs(backbone, heads["mlm"]["vocabulary"]):
        wanted = torch.cat([reference[name] for name in names])
        assert (parameter.grad - wanted).norm() <= 1e-4 * wanted.norm() + 1e-7, names


def test_every_layer_is_returned(models):
    theirs, backbone, *_ = models
    tokens = make_tokens(rows=2, length=20, vocab_size=VOCAB)
    with torch.no_grad():
        hidden = theirs.bert(tokens.ids, output_hidden_states=True).hidden_states
        layers = backbone(Example.of(tokens)).layers
    assert len(layers) == LAYERS + 1
    for ours, wanted in zip(layers, hidden, strict=True):
        assert (ours - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("padding", [0, 5])
def test_a_left_to_right_model_is_their_decoder(models, padding):
    """Logits of every next token equal to those of BERT with a causal mask, and the same loss."""
    masked, backbone, heads, _ = models
    config = BertConfig(**masked.config.to_dict() | {"is_decoder": True})
    theirs = BertLMHeadModel(config).eval()
    theirs.load_state_dict(masked.state_dict())
    settings = Transformer(
        num_layers=LAYERS, hidden_size=32, num_heads=4, ffn_size=64, max_positions=24, direction="left_to_right"
    )
    ours, objective = settings.build(VOCAB).eval(), LanguageModel()
    ours.load_state_dict(backbone.state_dict())
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=padding)
    example = objective.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary(VOCAB))
    target = example.targets["next"]
    with torch.no_grad():
        every = theirs(input_ids=tokens.ids, attention_mask=tokens.real.long()).logits
        expected = every.reshape(-1, VOCAB)[target.where]
        encoded = ours(example)
        assert (objective.logits(heads["mlm"], encoded, example) - expected).abs().max() <= 1e-5
        wanted = torch.where(tokens.special, -100, tokens.ids)
        loss = F.cross_entropy(every[:, :-1].reshape(-1, VOCAB), wanted[:, 1:].reshape(-1), reduction="sum")
        total, count = objective.loss(heads["mlm"], encoded, example)["next"], example.targets["next"].count()
        assert torch.isclose(total, loss, rtol=1e-5)
        assert count == (wanted[:, 1:] != -100).sum()
