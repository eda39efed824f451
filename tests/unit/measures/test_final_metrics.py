"""What is measured once, at the end of a training, against computations by hand."""

import math
from collections import Counter

import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.measures.final_metrics import layer_similarity, measures, pair_measures
from lightning_modules.systems import BERT_BASE
from tests.conftest import make_draws, make_tokens, make_vocabulary

SYSTEM = BERT_BASE.but(
    **{
        "model.num_layers": 2, "model.hidden_size": 8, "model.num_heads": 2, "model.max_positions": 16,
        "data.tokenizer.vocab_size": 64, "format.sequence_length": 16,
    }
)  # fmt: skip


def batches(*rows, padding=0):
    """Batches of so many rows, hidden and asked as a system with a sentence objective does."""
    prepared = []
    for n, count in enumerate(rows):
        example = Example.of(make_tokens(count, padding=padding, seed=n))
        prepared.append(SYSTEM.objectives.mask_inputs(example, make_draws(count, seed=n), make_vocabulary()))
    return prepared


def test_distances_and_angles_of_an_encoder_are_means_over_real_tokens():
    wide = SYSTEM.but(**{"model.init_std": 0.5})  # near 0 degrees the arc cosine magnifies rounding
    module, examples = wide.build(0), batches(4, 2, padding=6)
    module.train()
    found = layer_similarity(module, examples, bf16=False)
    assert not module.training  # no dropout
    distances, angles = ([], []), ([], [])
    with torch.no_grad():
        for example in examples:
            layers = module.backbone(example).layers
            for row in range(len(example.inputs.ids)):
                for place in torch.nonzero(example.inputs.real[row])[:, 0]:
                    for i in range(2):
                        before, after = (layers[j][row, place].double() for j in (i, i + 1))
                        distances[i].append(float(((before - after) ** 2).sum().sqrt()))
                        cosine = float(before @ after / (before.norm() * after.norm()))
                        angles[i].append(math.degrees(math.acos(cosine)))
    assert len(distances[0]) == sum(int(example.inputs.real.sum()) for example in examples) < 6 * 16
    assert found["distance"] == pytest.approx([sum(d) / len(d) for d in distances], rel=1e-4)
    assert found["angle"] == pytest.approx([sum(a) / len(a) for a in angles], rel=1e-3)


def test_measures_are_means_over_all_that_is_asked_not_over_batches():
    module = SYSTEM.build(0)
    uneven, whole = batches(7, 1, 3, padding=4), Counter()
    found = measures(module, uneven, bf16=False)
    assert set(found) == {"loss", "accuracy", "sentence_accuracy"}
    counts = Counter()
    with torch.no_grad():
        for example in uneven:
            encoded = module.backbone(example)
            logits = module.objectives.mlm.logits(module.heads["mlm"], encoded, example)
            target = example.targets["mlm"]
            whole["loss"] -= float(logits.log_softmax(-1).gather(1, target.ids[:, None]).sum())
            whole["accuracy"] += int((logits.argmax(-1) == target.ids).sum())
            counts["mlm"] += len(target.ids)
            first = module.heads["sentence"]["pair"](encoded.last[:, 0])
            whole["right"] += int((first.argmax(-1) == example.inputs.labels["sentence"]).sum())
            counts["sentence"] += len(first)
    assert counts["sentence"] == 11
    assert found["loss"] == pytest.approx(whole["loss"] / counts["mlm"], rel=1e-5)
    assert found["accuracy"] == pytest.approx(whole["accuracy"] / counts["mlm"])
    assert found["sentence_accuracy"] == pytest.approx(whole["right"] / 11)


def test_what_nobody_asked_is_not_measured():
    module = SYSTEM.build(0)
    unasked = [Example(e.inputs, e.visible, {"mlm": e.targets["mlm"]}) for e in batches(2, 2)]
    assert set(measures(module, unasked, bf16=False)) == {"loss", "accuracy"}
    assert measures(module, [], bf16=False) == {}


def test_pairs_have_an_auc_where_a_head_answers():
    module, uneven = SYSTEM.build(0), batches(7, 1, 3, padding=4)
    found = pair_measures(module, uneven, bf16=False)
    auc = found.pop("sentence_auc")
    assert found == measures(module, uneven, bf16=False)
    with torch.no_grad():
        logits = torch.cat([module.heads["sentence"]["pair"](module.backbone(e).last[:, 0]) for e in uneven])
    labels = torch.cat([e.inputs.labels["sentence"] for e in uneven])
    scores = logits[:, 1] - logits[:, 0]
    above = scores[labels == 1][:, None] > scores[labels == 0]
    assert 0 < len(above) < 11
    assert auc == pytest.approx(above.float().mean().item())
    silent = SYSTEM.but(**{"objectives.sentence": None}).build(0)
    assert set(pair_measures(silent, uneven, bf16=False)) == {"loss", "accuracy"}
