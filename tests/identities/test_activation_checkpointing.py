"""Layers that are computed again in the backward pass give the same losses and gradients, to the bit."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from lightning_modules.training.execution import recompute_layers
from lightning_modules.training.module import step_loss

LM = {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"}
TWO_WAY = {"objectives.mlm": None, "objectives.lm.direction": "two_way", "model.direction": "two_way"}
CASES = {
    "as it is": {},
    "bf16": {"training.precision": "bf16"},
    "pre-norm, shared": {"model.norm": "pre", "model.sharing": "all"},
    "distances": {"model.positions": "relative"},
    "a position bias": {"model.positions": "sided_linear_bias"},
    "left to right": LM,
    "two ways": TWO_WAY,
    "a memory": LM | {"model.positions": "relative", "model.memory_length": 12, "format.kind": "stream",
                      "format.frame": "none"},
    "a query stream": {"objectives.mlm": None, "objectives.plm.one_in": 4.0, "model.query_stream": True},
}  # fmt: skip


def trained(system, recompute: bool):
    """Losses of some steps, the gradients of the last, and the bytes kept for the backward pass of the first."""
    module, losses, kept = system.build(0), [], {}
    if recompute:
        recompute_layers(module)
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)

    def note(tensor):
        if not losses and (place := tensor.untyped_storage().data_ptr()) not in weights:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(3)
    for example, _ in zip(system.data_module(0).train_dataloader(), range(3), strict=False):
        optimizer.zero_grad()
        bf16 = system.training.precision == "bf16"
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), saved_tensors_hooks(note, lambda tensor: tensor):
            encoded = module.state.encode(module.backbone, example)
            terms = module.objectives.loss(module.heads, encoded, example)
            loss = step_loss(terms, {})
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    return losses, {name: p.grad for name, p in module.named_parameters()}, sum(kept.values())


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_same_and_less_is_kept(tiny, case):
    base = {"model.num_layers": 4, "model.dropout": 0.1, "model.attention_dropout": 0.1, "model.embedding_dropout": 0.1}
    system = tiny.but(**base).but(**CASES[case])
    usual, again = trained(system, False), trained(system, True)
    assert all(torch.equal(a, b) for a, b in zip(usual[0], again[0], strict=True))
    assert usual[1].keys() == again[1].keys()
    for name, gradient in usual[1].items():
        other = again[1][name]
        assert gradient is other is None or torch.equal(gradient, other), name
    assert again[2] < 0.7 * usual[2]
