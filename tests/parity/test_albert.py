"""Logits and gradients equal to transformers' ALBERT, both heads, built offline from tiny random configurations."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AlbertConfig, AlbertForPreTraining

from lightning_modules.batch import Example
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Objectives, SentencePair
from tests.conftest import make_draws, make_tokens, make_vocabulary

VOCAB, LAYERS = 50, 4
EMBEDDINGS = {
    "word.weight": "albert.embeddings.word_embeddings.weight",
    "position.weight": "albert.embeddings.position_embeddings.weight",
    "tables.segment.weight": "albert.embeddings.token_type_embeddings.weight",
    "norm.weight": "albert.embeddings.LayerNorm.weight",
    "norm.bias": "albert.embeddings.LayerNorm.bias",
    "projection.weight": "albert.encoder.embedding_hidden_mapping_in.weight",
    "projection.bias": "albert.encoder.embedding_hidden_mapping_in.bias",
}
LAYER = {
    "attention.function.qkv": ["attention.query", "attention.key", "attention.value"],
    "attention.function.output": ["attention.dense"],
    "attention.norm": ["attention.LayerNorm"],
    "ffn.function.expand": ["ffn"],
    "ffn.function.contract": ["ffn_output"],
    "ffn.norm": ["full_layer_layer_norm"],
}
HEADS = {
    "mlm.vocabulary.dense": "predictions.dense",
    "mlm.vocabulary.norm": "predictions.LayerNorm",
    "sentence.pair.pooler": "albert.pooler",
    "sentence.pair.classifier": "sop_classifier.classifier",
}


def _pairs(backbone, heads):
    """(our parameter, names of theirs); three of theirs are stacked in our one projection."""
    for name, parameter in backbone.embeddings.named_parameters():
        yield parameter, [EMBEDDINGS[name]]
    owned = [block for block in backbone.blocks if len(block)]
    for group, block in enumerate(owned):
        prefix = f"albert.encoder.albert_layer_groups.{group}.albert_layers.0"
        for ours, theirs in LAYER.items():
            for kind in ("weight", "bias"):
                yield block.get_parameter(f"{ours}.{kind}"), [f"{prefix}.{part}.{kind}" for part in theirs]
    for ours, theirs in HEADS.items():
        for kind in ("weight", "bias"):
            yield heads.get_parameter(f"{ours}.{kind}"), [f"{theirs}.{kind}"]
    yield heads.get_parameter("mlm.vocabulary.bias"), ["predictions.bias"]


@pytest.fixture(params=[1, 2, LAYERS], ids="{} groups".format)
def models(request):
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=VOCAB, embedding_size=12, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_hidden_groups=request.param, intermediate_size=64, max_position_embeddings=24, initializer_range=0.3,
        hidden_act="gelu_new", attn_implementation="sdpa",
    )  # fmt: skip
    theirs = AlbertForPreTraining(config).eval()
    theirs.predictions.activation = torch.nn.GELU()  # that of our head, whatever the encoder's
    with torch.no_grad():  # biases and norms away from 0 and 1, where a mistake would not show
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    settings = Transformer(
        num_layers=LAYERS, hidden_size=32, embedding_size=12, sharing="all", sharing_groups=request.param, num_heads=4,
        ffn_size=64, max_positions=24, activation="gelu_tanh",
    )  # fmt: skip
    objectives = Objectives(mlm=MaskedLM(), sentence=SentencePair())
    backbone, heads = settings.build(VOCAB).eval(), objectives.heads(settings.size(VOCAB)).eval()
    state = dict(theirs.named_parameters())
    copied = []
    with torch.no_grad():
        for parameter, names in _pairs(backbone, heads):
            parameter.copy_(torch.cat([state[name] for name in names]))
            copied += names
    assert sorted(copied) == sorted(state)
    return theirs, backbone, heads, objectives


@pytest.mark.parametrize("padding", [0, 5])
def test_logits_and_gradients(models, padding):
    theirs, backbone, heads, objectives = models
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=padding)
    tokens.tables["segment"][:, 11:] = 1
    example = objectives.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary(VOCAB))
    mlm, sentence = example.targets["mlm"], example.targets["sentence"]

    expected = theirs(
        input_ids=example.inputs.ids, attention_mask=tokens.real.long(), token_type_ids=tokens.tables["segment"]
    )
    pieces = expected.prediction_logits.reshape(-1, VOCAB)[mlm.where]
    encoded = backbone(example)
    assert (objectives.mlm.logits(heads["mlm"], encoded, example) - pieces).abs().max() <= 1e-5
    order = objectives.sentence.logits(heads["sentence"], encoded, example)
    assert (order - expected.sop_logits).abs().max() <= 1e-5

    (F.cross_entropy(pieces, mlm.ids) + F.cross_entropy(expected.sop_logits, sentence.ids)).backward()
    terms = objectives.loss(heads, encoded, example)
    sum(total / count for total, count, _ in terms.values()).backward()
    reference = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for parameter, names in _pairs(backbone, heads):
        wanted = torch.cat([reference[name] for name in names])
        assert (parameter.grad - wanted).norm() <= 1e-4 * wanted.norm() + 1e-7, names
