"""A memory in training on streams: one training however it is divided, and evaluation with other lengths."""

import pytest
import torch

from lightning_modules.measures.final_metrics import measures
from lightning_modules.training.carries import Carries
from tests.unit.training.test_carries import weights_of

XL = {
    "model.positions": "relative", "model.num_layers": 2, "model.memory_length": 24, "model.dropout": 0.0,
    "model.embedding_dropout": 0.0, "model.attention_dropout": 0.0, "model.direction": "left_to_right",
    "model.init_std": 0.3, "objectives.mlm": None, "objectives.lm.direction": "left_to_right",
    "format.kind": "stream", "format.frame": "document_ends", "training.batch_size": 4, "training.steps": 6,
    "evaluation.sequences": 12, "evaluation.rows": 4, "optimizer.eps": 1e-3,
}  # fmt: skip


@pytest.fixture
def xl(tiny):
    return tiny.but(**XL)


def test_training_with_a_memory_is_one_however_it_is_divided(xl, tmp_path):
    _, weights = weights_of(xl, tmp_path / "whole")
    _, parts = weights_of(xl.but(**{"training.micro_batch_size": 2}), tmp_path / "parts")
    assert all((parts[name] - value).abs().max() < 1e-5 for name, value in weights.items())
    _, none = weights_of(xl.but(**{"model.memory_length": 0}), tmp_path / "none")
    assert max((none[name] - value).abs().max() for name, value in weights.items()) > 1e-3


def test_in_both_directions_too_and_where_a_part_of_a_row_goes_on(xl, tmp_path):
    """Micro-batches of one direction, and of rows of which the second half is read again."""
    both = {"model.direction": "both", "objectives.lm": None, "objectives.mlm.weight": 1.0, "format.both_ways": True}
    both |= {"format.reuse_length": 8}
    _, weights = weights_of(xl.but(**both), tmp_path / "whole")
    _, parts = weights_of(xl.but(**both, **{"training.micro_batch_size": 2}), tmp_path / "parts")
    assert all((parts[name] - value).abs().max() < 1e-5 for name, value in weights.items())
    for name, other in {"one way": {"format.both_ways": False}, "no memory": {"model.memory_length": 0}}.items():
        _, changed = weights_of(xl.but(**both).but(**other), tmp_path / name)
        assert max((changed[name] - value).abs().max() for name, value in weights.items()) > 1e-3


@torch.no_grad()
def test_an_evaluation_has_lengths_of_its_own(xl):
    """A memory of all there is makes segments those of the row; shorter ones, and windows read again, are other."""
    found = {}
    for length, memory, context in ((48, 0, 0), (8, 48, 0), (5, 47, 0), (8, 0, 0), (8, 8, 0), (8, None, 40)):
        changes = {"sequence_length": length, "memory_length": memory, "context": context}
        changed = xl.but(**{f"evaluation.{name}": value for name, value in changes.items()})
        module = changed.build(0)
        found[length, memory] = measures(module, changed.data_module(0).heldout, bf16=False)["next_loss"]
        assert module.backbone.memory_length == 24
    whole = found[48, 0]
    for same in ((8, 48), (5, 47), (8, None)):
        assert found[same] == pytest.approx(whole, abs=1e-5)
    for other in ((8, 0), (8, 8)):
        assert abs(found[other] - whole) > 1e-4


@torch.no_grad()
def test_a_pass_begins_with_an_empty_memory(xl):
    system = xl.but(**{"training.batch_size": 100})
    batches, module, carries = system.data_module(0).train_dataloader(), system.build(0).eval(), Carries()
    steps = len(system.data_module(0).sequences) // 100
    seen = [carries.read(module.backbone, batches.step(step)[0]).last for step in range(2 * steps)]
    assert all(torch.equal(one, other) for one, other in zip(seen[:steps], seen[steps:], strict=True))
    alone = module.backbone(batches.step(1)[0]).last
    assert not torch.allclose(seen[1], alone, atol=1e-3)
