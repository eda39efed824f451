"""Attention under every visibility, dropout and whole models, in fp32 and bf16, against fp32 on the CPU."""

import itertools

import pytest
import torch
from torch import Tensor

from lightning_modules.batch import Visibility
from lightning_modules.model.attention import attend, attention_bias, explicit_attention
from lightning_modules.model.cache import attention_mask
from lightning_modules.model.layers import drop

ROWS, HEADS, LENGTH, WIDTH = 3, 4, 40, 16
PARTS = ("causal", "anticausal", "padded", "pairs")
SIGHTS = [parts for count in range(5) for parts in itertools.combinations(PARTS, count)]
# relative error in the L2 norm; bf16 has eight bits of precision
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}


def visibility(parts: tuple[str, ...]) -> Visibility:
    """A visibility of some parts: one direction, rows of 40, 29 and 1 real positions, 60 % of all pairs."""
    real = torch.arange(LENGTH) < torch.tensor([LENGTH, 29, 1])[:, None]
    pairs = torch.rand(ROWS, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.6
    return Visibility(
        causal="causal" in parts,
        anticausal="anticausal" in parts,
        real=real if "padded" in parts else None,
        pairs=pairs | torch.eye(LENGTH, dtype=torch.bool) if "pairs" in parts else None,
    )


def distance(found: Tensor, expected: Tensor) -> float:
    """The error of a tensor from any device in the L2 norm, relative to the expected one or, where that is 0, to 1."""
    found, expected = found.detach().cpu().double(), expected.detach().double()
    return float((found - expected).norm() / (expected.norm() or 1.0))


def outcome(kernel, inputs: list[Tensor], seen: Visibility, position_bias: Tensor | None) -> list[Tensor]:
    """The result of attention, and its gradients by queries, keys and values."""
    q, k, v = (x.clone().requires_grad_() for x in inputs)
    mask = attention_mask(seen, LENGTH, q.device)
    out = kernel(q, k, v, attention_bias(mask, position_bias, q.dtype), 0.0)
    (out.float() ** 2).sum().backward()
    return [out, q.grad, k.grad, v.grad]


@pytest.mark.parametrize("parts", SIGHTS, ids=lambda parts: "+".join(parts) or "everything")
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_attention_equals_the_fp32_products_under_every_visibility(device, parts, dtype):
    draws = torch.Generator().manual_seed(0)
    inputs = [torch.randn(ROWS, HEADS, LENGTH, WIDTH, generator=draws).to(dtype) for _ in range(3)]
    seen = visibility(parts)
    for bias in (None, torch.randn(1, HEADS, LENGTH, LENGTH, generator=draws)):
        expected = outcome(explicit_attention, [x.float() for x in inputs], seen, bias)
        there = None if bias is None else bias.to(device)
        found = outcome(attend, [x.to(device) for x in inputs], seen.to(device), there)
        for one, two in zip(found, expected, strict=True):
            assert one.device.type == device
            assert distance(one, two) < CLOSE[dtype]


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_dropout_keeps_its_rate_and_the_mean(device, dtype):
    torch.manual_seed(0)
    dropped = drop(torch.ones(512, 512, dtype=dtype, device=device), 0.1)
    assert dropped.device.type == device
    assert float((dropped == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert float(dropped.float().mean()) == pytest.approx(1, abs=0.01)


MODELS = {
    "RoBERTa": {},
    "pre-norm, sinusoidal": {"model.norm": "pre", "model.positions": "sinusoidal", "model.activation": "relu"},
    "sided linear bias": {"model.positions": "sided_linear_bias"},
    "by distance": {"model.positions": "relative", "model.query_biases": "layer"},
    "by distance, one way, clusters of words": {
        "objectives.mlm": None, "objectives.lm.cutoffs": [20, 40], "model.direction": "left_to_right",
        "model.positions": "relative_learned",
    },
    "ALBERT": {"model.num_layers": 3, "model.sharing": "all", "model.embedding_size": 8},
    "one way": {"objectives.mlm": None, "objectives.lm.weight": 1.0, "model.direction": "left_to_right"},
    "two ways": {
        "objectives.mlm": None, "objectives.lm.direction": "two_way", "model.direction": "two_way",
        "model.num_layers": 2,
    },
    "sentence pairs": {
        "format.kind": "segment_pairs", "format.sequence_length": 48, "format.short_fraction": 0.3,
        "format.negatives": "swapped", "model.segment_types": 2, "model.max_positions": 48,
        "objectives.sentence.weight": 1.0,
    },
}  # fmt: skip


def loss_and_gradients(module, example) -> tuple[float, dict[str, Tensor]]:
    """The loss of a batch without dropout, and the gradient of every parameter, on the CPU."""
    terms = module.objectives.loss(module.heads, module.backbone(example), example)
    loss = sum(weight * total / count for total, count, weight in terms.values())
    loss.backward()
    gradients = {name: p.grad.cpu() for name, p in module.named_parameters() if p.grad is not None}
    return float(loss.detach()), gradients


@pytest.mark.parametrize("changes", MODELS)
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
def test_models_have_the_loss_and_the_gradient_of_fp32_on_the_cpu(tiny, device, changes, bf16):
    system = tiny.but(**MODELS[changes])
    data = system.data_module(0)
    data.prepare_data()
    example = next(iter(data.train_dataloader()))
    expected, slopes = loss_and_gradients(system.build(0).eval(), example)
    module = system.build(0).eval().to(device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
        loss, found = loss_and_gradients(module, example.to(device))
    assert loss == pytest.approx(expected, rel=2e-2 if bf16 else 1e-4)
    assert found.keys() == slopes.keys()
    whole, other = (torch.cat([each[name].flatten() for name in slopes]) for each in (found, slopes))
    assert distance(whole, other) < (3e-2 if bf16 else 1e-3)
