"""States and gradients equal to transformers' RoFormer, the model that brought rotary positions, with tiny weights."""

import pytest
import torch
from transformers import RoFormerConfig, RoFormerModel

from lightning_modules.batch import Example
from lightning_modules.model import Transformer
from tests.conftest import make_tokens

VOCAB, LAYERS, HEADS, WIDTH = 50, 3, 4, 32
SUB_LAYERS = {
    "attention.function.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.function.output": ("attention.output.dense",),
    "attention.norm": ("attention.output.LayerNorm",),
    "ffn.function.expand": ("intermediate.dense",),
    "ffn.function.contract": ("output.dense",),
    "ffn.norm": ("output.LayerNorm",),
}


def halves_first(rows):
    """Rows of queries or keys with neighbours as pairs -> with dimension i and i + r as pairs, head by head."""
    head = WIDTH // HEADS
    order = torch.cat([torch.arange(0, head, 2), torch.arange(1, head, 2)])
    return rows.reshape(HEADS, head, -1)[:, order].reshape(rows.shape)


def pairs(encoder, theirs):
    """(our parameter, its values in their model)."""
    embeddings = {"word.weight": "word_embeddings.weight", "tables.segment.weight": "token_type_embeddings.weight",
                  "norm.weight": "LayerNorm.weight", "norm.bias": "LayerNorm.bias"}  # fmt: skip
    for ours, name in embeddings.items():
        yield encoder.embeddings.get_parameter(ours), theirs[f"embeddings.{name}"]
    for index, block in enumerate(encoder.blocks):
        for ours, names in SUB_LAYERS.items():
            for kind in ("weight", "bias"):
                parts = [theirs[f"encoder.layer.{index}.{name}.{kind}"] for name in names]
                if len(parts) == 3:
                    parts = [halves_first(parts[0]), halves_first(parts[1]), parts[2]]
                yield block.get_parameter(f"{ours}.{kind}"), torch.cat(parts)


@pytest.fixture
def models():
    torch.manual_seed(0)
    config = RoFormerConfig(
        vocab_size=VOCAB, embedding_size=WIDTH, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=64, max_position_embeddings=24, initializer_range=0.3,
    )  # fmt: skip
    theirs = RoFormerModel(config).eval()
    with torch.no_grad():  # biases and norms away from 0 and 1, where a mistake would not show
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    settings = Transformer(num_layers=LAYERS, hidden_size=WIDTH, num_heads=HEADS, ffn_size=64, positions="rotary")
    ours = settings.build(VOCAB).eval()
    with torch.no_grad():
        for parameter, values in pairs(ours, dict(theirs.named_parameters())):
            parameter.copy_(values)
    return theirs, ours


@pytest.mark.parametrize("padding", [0, 5])
def test_states_and_gradients(models, padding):
    theirs, ours = models
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=padding)
    tokens.tables["segment"][:, 11:] = 1
    expected = theirs(
        input_ids=tokens.ids, attention_mask=tokens.real.long(), token_type_ids=tokens.tables["segment"]
    ).last_hidden_state[tokens.real]
    states = ours(Example.of(tokens)).last[tokens.real]
    assert (states - expected).abs().max() <= 1e-5

    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    (expected * noise).sum().backward()
    (states * noise).sum().backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    for parameter, gradient in pairs(ours, gradients):
        assert torch.allclose(parameter.grad, gradient, atol=1e-4, rtol=1e-4)
