"""What a model says of two hidden neighbours, by a reference that reads row by row."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.measures.joint import joint_losses
from lightning_modules.objectives.objective import own_heads
from lightning_modules.pretraining import fit
from lightning_modules.tasks.scores.kept import unpack
from tests.conftest import make_vocabulary

PERMUTED = {"objectives.mlm": None, "objectives.plm.one_in": 4.0, "model.query_stream": True,
            "model.positions": "relative"}  # fmt: skip


@pytest.fixture
def asked(tiny):
    """A module, and the held-out rows of which both or one of two neighbours are hidden."""

    def made(**knobs):
        system = tiny.but(**knobs, **{"evaluation.neighbours": 8})
        module, data = system.build(seed=0).eval(), system.data_module(0)
        data.setup("fit")
        return module, lambda hidden: data.some_heldout(8, system.collate_neighbours(hidden))

    return made


def test_a_masked_model_fills_one_of_two_and_then_the_other(asked):
    """The reference writes the masks into each row itself, and reads it alone."""
    module, held_out = asked()
    heads, objective, alone, filled = own_heads(module.heads, "mlm"), module.objectives.mlm, [], []

    @torch.no_grad()
    def nats(ids, example, row, masks, at):
        shown = ids.clone()
        shown[masks] = example_mask
        tokens = example.inputs
        single = Example.of(Tokens(shown[None], tokens.special[[row]], tokens.real[[row]], tokens.sample[[row]]))
        single.targets["mlm"] = Target(torch.tensor([at]), ids[at][None])
        logits = objective.logits(heads, module.backbone(single), single)
        return float(F.cross_entropy(logits, ids[at][None]))

    (example,) = held_out("both")
    example_mask = make_vocabulary().mask
    length = example.inputs.ids.shape[1]
    for left, right in example.targets["mlm"].where.view(-1, 2).tolist():
        row, (a, b) = left // length, (left % length, right % length)
        ids = example.inputs.ids[row].clone()
        ids[[a, b]] = example.targets["mlm"].ids[example.targets["mlm"].where // length == row]
        said = {(masks, at): nats(ids, example, row, list(masks), at) for masks, at in
                (((a, b), a), ((a, b), b), ((a,), a), ((b,), b))}  # fmt: skip
        alone.append(said[(a, b), a] + said[(a, b), b])
        orders = said[(a, b), a] + said[(b,), b], said[(a, b), b] + said[(a,), a]
        filled.append(sum(orders) / 2)
    means = joint_losses(module, held_out, bf16=False).means()
    assert means["joint_alone_loss"] == pytest.approx(np.mean(alone), abs=1e-4)
    assert means["joint_filled_loss"] == pytest.approx(np.mean(filled), abs=1e-4)
    assert means["joint_loss"] == means["joint_alone_loss"]


def test_permuted_prediction_tells_the_second_after_the_first(asked):
    module, held_out = asked(**PERMUTED)
    found = joint_losses(module, held_out, bf16=False)
    heads, objective = own_heads(module.heads, "plm"), module.objectives.plm
    (example,) = held_out("both")
    with torch.no_grad():
        encoded = module.backbone(example)
        said = {
            name: F.cross_entropy(
                objective.logits(heads, encoded, example, name), example.targets[name].ids, reduction="none"
            ).view(-1, 2)
            for name in ("mlm", "permuted")
        }
    assert found.means()["joint_loss"] == pytest.approx(float(said["permuted"].sum(1).mean()), abs=1e-4)
    assert found.means()["joint_alone_loss"] == pytest.approx(float(said["mlm"].sum(1).mean()), abs=1e-4)
    target, length = example.targets["permuted"], example.inputs.ids.shape[1]
    sees = example.queries.visible.flatten(0, 1)[target.queries].view(-1, 2, length)
    left, right = (target.where % length).view(-1, 2).T
    rows = torch.arange(len(left))
    left_sees, right_sees = sees[rows, 0, right], sees[rows, 1, left]
    assert (left_sees ^ right_sees).all(), "one of the two is told after the other"
    assert 0 < int(left_sees.sum()) < len(rows), "now the left one, now the right one"


@pytest.mark.parametrize("count", [6, 24], ids=["fewer than of other losses", "more"])
def test_the_losses_of_pairs_are_kept_by_sequence(tiny, tmp_path, count):
    fitted = fit(tiny.but(**{"evaluation.neighbours": count, "evaluation.sequences": 16}), 0, tmp_path)
    for name in ("joint_loss", "joint_alone_loss", "joint_filled_loss"):
        part = fitted.sums["losses"][name]
        nats, counts = unpack(part["nats"]).astype(float), unpack(part["counts"])
        assert len(nats) == len(unpack(part["documents"])) == count
        assert counts.tolist() == [1] * count
        assert nats.sum() / counts.sum() == pytest.approx(fitted.metrics[f"heldout.{name}"], abs=1e-2)
