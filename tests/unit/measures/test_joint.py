"""Two hidden neighbours: which they are, and what a model says of both, by a reference that reads row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.measures.joint import joint_losses
from lightning_modules.objectives import neighbours
from lightning_modules.objectives.objective import own_heads
from lightning_modules.pretraining import fit
from lightning_modules.tasks.scores.kept import unpack
from tests.conftest import make_draws, make_tokens, make_vocabulary

PERMUTED = {"objectives.mlm": None, "objectives.plm.one_in": 4.0, "model.query_stream": True,
            "model.positions": "relative"}  # fmt: skip


def chosen(hidden, vocabulary):
    tokens = make_tokens(64, 24, padding=4)
    return neighbours.asked(hidden).masking.choose(tokens, make_draws(64), vocabulary) >= 0, tokens


def test_one_of_two_is_one_of_the_same_two():
    both, left, right = (chosen(hidden, make_vocabulary())[0] for hidden in ("both", "left", "right"))
    assert (both.sum(1) == 2).all()
    assert (left.sum(1) == 1).all()
    assert np.array_equal(left | right, both)
    assert not (left & right).any()
    assert np.array_equal(np.argmax(left, 1) + 1, np.argmax(right, 1))


def test_two_neighbours_are_of_different_words():
    begins = np.arange(50) % 3 == 0  # the other pieces go on
    pieces = replace(make_vocabulary(), begins_word=begins)
    hidden, tokens = chosen("right", pieces)
    assert hidden.any(1).sum() > 50
    assert begins[tokens.ids.numpy()[hidden]].all()
    assert not begins[tokens.ids.numpy()[chosen("left", pieces)[0]]].all(), "the first may be any piece"


@pytest.mark.parametrize("knobs", [{}, PERMUTED], ids=["masked", "permuted"])
def test_the_losses_are_those_of_rows_that_are_filled_one_by_one(tiny, knobs):
    system = tiny.but(**knobs, **{"evaluation.neighbours": 8})
    module, data = system.build(seed=0).eval(), system.data_module(0)
    data.setup("fit")
    found = joint_losses(module, lambda hidden: data.some_heldout(8, system.prepare_neighbours(hidden)), bf16=False)
    name = "plm" if knobs else "mlm"
    objective, target = getattr(module.objectives, name), "mlm"
    heads, said = own_heads(module.heads, name), {}
    for hidden in ("both", "left", "right"):
        nats = []
        for example in data.some_heldout(8, system.prepare_neighbours(hidden)):
            with torch.no_grad():
                encoded = module.backbone(example)
                logits = objective.logits(heads, encoded, example, target) if knobs else objective.logits(
                    heads, encoded, example)  # fmt: skip
            nats.append(F.cross_entropy(logits, example.targets[target].ids, reduction="none"))
        said[hidden] = float(torch.cat(nats).sum()) / 8
    means = found.means()
    assert means["joint_alone_loss"] == pytest.approx(said["both"], abs=1e-4)
    assert means["joint_filled_loss"] == pytest.approx((said["both"] + said["left"] + said["right"]) / 2, abs=1e-4)
    assert (means["joint_loss"] == means["joint_alone_loss"]) == (not knobs)


def test_the_losses_of_pairs_are_kept_by_sequence(tiny, tmp_path):
    fitted = fit(tiny.but(**{"evaluation.neighbours": 6}), 0, tmp_path)
    for name in ("joint_loss", "joint_alone_loss", "joint_filled_loss"):
        part = fitted.sums["losses"][name]
        nats, counts = unpack(part["nats"]).astype(float), unpack(part["counts"])
        assert len(nats) == 6
        assert counts.tolist() == [1] * 6
        assert nats.sum() / counts.sum() == pytest.approx(fitted.metrics[f"heldout.{name}"], abs=1e-2)
