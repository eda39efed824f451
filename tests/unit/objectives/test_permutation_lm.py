"""Permutation language modelling: what is predicted, in which order, and how it is measured and refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data.baselines import bigram
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, PermutationLM
from lightning_modules.objectives.masking import Pieces, SpreadSpans
from lightning_modules.objectives.plm import random_order
from lightning_modules.pretraining import fit
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming

PLM = {"objectives.mlm": None, "objectives.plm.one_in": 4.0, "model.query_stream": True, "model.positions": "relative"}
USUAL = Evaluation(rate=0.25).objective


def corrupted(rows=8, length=24, padding=4, objective=None, first=0):
    tokens = make_tokens(rows, length, padding=padding)
    return (objective or PermutationLM()).mask_inputs(
        Example.of(tokens), make_draws(rows, first=first), make_vocabulary()
    )


def encoder(**changes):
    torch.manual_seed(0)
    settings = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "positions": "relative", "query_stream": True}
    return Transformer(**settings).but(**changes).build(50).eval()


@pytest.mark.parametrize("one_in", [1.0, 2.5, 6.0, 24.0])
def test_one_in_so_many_tokens_is_predicted_and_nothing_is_replaced(one_in):
    tokens = make_tokens(8, 24, padding=4)
    for units in (SpreadSpans(), Pieces()):
        example = corrupted(objective=PermutationLM(one_in=one_in, units=units))
        target = example.targets["permuted"]
        asked = torch.bincount(target.where // 24, minlength=8)
        text = (tokens.real & ~tokens.special).sum(1)
        wanted = (tokens.real.sum(1) // one_in).clamp(min=1).minimum(text)
        assert asked.tolist() == wanted.tolist()
        assert torch.equal(example.inputs.ids, tokens.ids)
        assert torch.equal(target.ids, tokens.ids.flatten()[target.where])
        assert (tokens.real & ~tokens.special).flatten()[target.where].all()
        assert torch.equal(example.queries.where.flatten()[target.queries], target.where)


def test_the_order_is_one_of_targets_and_special_pieces():
    """Context never sees a special piece (zihangdai/xlnet, `_local_perm`), and each pair of targets is ordered."""
    example = corrupted()
    seen, tokens = example.visible.pairs[:, 0], example.inputs
    chosen = torch.zeros_like(tokens.real).flatten()
    chosen[example.targets["permuted"].where] = True
    chosen = chosen.view_as(tokens.real)
    special = tokens.special & tokens.real
    context = tokens.real & ~special & ~chosen
    for row in range(8):
        assert not seen[row][context[row]][:, special[row] | chosen[row]].any()
        assert seen[row][context[row]][:, context[row]].all()
        among = seen[row][chosen[row]][:, chosen[row]]
        assert among.diagonal().all()
        assert (among ^ among.T | torch.eye(len(among), dtype=torch.bool)).all(), "exactly one of two sees the other"
        assert seen[row][chosen[row]][:, context[row]].all()
    ordered = chosen | special
    assert seen[special].any()
    share = torch.stack([seen[row][chosen[row]][:, special[row]].float().mean() for row in range(8)]).mean()
    assert 0.1 < share < 0.9, "some targets see them, some do not"
    assert (seen.diagonal(dim1=1, dim2=2) == True).all()  # noqa: E712
    assert ordered.any()


def test_orders_are_uniform_and_new_at_every_presentation():
    rows, chosen = make_tokens(6000, 8), np.zeros((6000, 8), dtype=bool)
    rows.special[:] = False
    chosen[:, [1, 4, 6]] = True
    order = random_order(Example.of(rows), chosen, make_draws(6000)).numpy()
    assert (order[:, [0, 2, 3, 5, 7]] == -1).all()
    _, counts = np.unique(order[:, [1, 4, 6]], axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts / 6000 == pytest.approx(np.full(6, 1 / 6), abs=0.02)
    few = Example.of(rows).rows(torch.arange(10))
    assert np.array_equal(order[10:20], random_order(few, chosen[:10], make_draws(10, first=10)).numpy())


def test_the_same_presentation_has_the_same_order_whatever_k_is():
    few, many = (corrupted(objective=PermutationLM(one_in=k, units=Pieces())) for k in (6.0, 3.0))
    shared = np.intersect1d(few.targets["permuted"].where, many.targets["permuted"].where)
    assert len(shared) == len(few.targets["permuted"].where), "fewer targets are some of more"
    rows = [example.visible.pairs[:, 0].flatten(0, 1)[shared] for example in (few, many)]
    for number, where in enumerate(shared):
        mates = shared[(shared // 24 == where // 24)] % 24
        assert torch.equal(rows[0][number][mates], rows[1][number][mates])


def test_held_out_text_asks_what_masked_models_are_asked_alone_and_in_an_order():
    objective = PermutationLM(one_in=3.0)
    masked = corrupted(objective=MaskedLM(masking=USUAL.masking)).targets["mlm"]
    example = corrupted(objective=objective.held_out(USUAL))
    for name in ("mlm", "permuted"):
        assert torch.equal(example.targets[name].where, masked.where)
        assert torch.equal(example.targets[name].ids, masked.ids)
    sees = example.queries.visible.flatten(0, 1)
    hidden = torch.zeros(8 * 24, dtype=torch.bool)
    hidden[masked.where] = True
    hidden, special = hidden.view(8, 24), example.inputs.special
    row = masked.where // 24
    alone, ordered = (sees[example.targets[name].queries] for name in ("mlm", "permuted"))
    assert torch.equal(alone & example.inputs.real[row], (~hidden & ~special)[row])
    assert (ordered & hidden[row]).any()
    assert not ordered[torch.arange(len(row)), masked.where % 24].any()
    model, heads = encoder(), objective.heads(Transformer(hidden_size=16).size(50))
    with torch.no_grad():
        measures = objective.measure(heads, model(example), example)
        assert set(measures) == {"loss", "accuracy", "permuted_loss", "permuted_accuracy"}
        by_name = objective.predicted(heads, model(example), example)
    assert set(by_name) == {"loss", "permuted_loss"}
    assert float(measures["loss"][1]) == float(measures["permuted_loss"][1]) == len(masked.where)


def test_baselines_see_no_more_than_queries_do():
    example = corrupted(objective=PermutationLM().held_out(USUAL))
    where = example.targets["mlm"].where
    hidden = set(where.tolist())
    ids = example.inputs.ids.flatten()
    for name in ("mlm", "permuted"):
        _, left, right = bigram.seen(example, name, mask=4)
        sees = example.queries.visible.flatten(0, 1)[example.targets[name].queries]
        for number, at in enumerate(where.tolist()):
            for side, neighbour in ((left, at - 1), (right, at + 1)):
                known = bool(sees[number, neighbour % 24]) and not example.inputs.special.flatten()[neighbour]
                assert side[number] == (ids[neighbour] if known else -1)
                assert not (name == "mlm" and neighbour in hidden and known)
    masked = corrupted(objective=MaskedLM(masking=USUAL.masking))
    for mine, theirs in zip(bigram.seen(example, "mlm", 4), bigram.seen(masked, "mlm", 4), strict=True):
        assert np.array_equal(mine, theirs), "the bar of a masked model"


@pytest.mark.parametrize("plain", [True, False])
def test_flops_count_a_row_for_each_target(tiny, plain):
    head = {} if plain else {"objectives.plm.transform": "bert", "model.segment_relation": True}
    system = tiny.but(**PLM, **{"model.hidden_size": 64, "model.num_heads": 4, "model.num_layers": 2,
                                "format.sequence_length": 40, "training.batch_size": 32}, **head)  # fmt: skip
    example = system.objectives.mask_inputs(Example.of(make_tokens(32, 40, 64)), make_draws(32), make_vocabulary(64))
    module = system.build(seed=0)
    with FlopCounterMode(display=False) as counter:
        terms = system.objectives.loss(module.heads, module.backbone(example), example)
        sum(total / count for total, count, _ in terms.values()).backward()
    # the sinusoids of 79 distances are projected once a layer, and need no gradient
    distances = 2 * (2 * 2 * 79 * 64 * 64)
    assert math.isclose(system.flops_per_step() + distances, counter.get_total_flops(), rel_tol=0.02)
    assert system.flops() > system.but(**{"objectives.plm.one_in": 20.0}).flops()


def test_it_trains_is_measured_and_reads_streams_with_memory(tiny, tmp_path):
    found = fit(tiny.but(**PLM, **{"evaluation.neighbours": 8}), 0, tmp_path / "text")
    together, alone = found.metrics["heldout.joint_loss"], found.metrics["heldout.joint_alone_loss"]
    assert 0 < together != alone > 0, "two neighbours in an order, and each alone"
    assert found.metrics["heldout.loss"] < 4.2 < math.log(64) + 0.1
    assert found.metrics["heldout.permuted_loss"] > 0
    assert {"heldout.bigram_loss", "heldout.permuted_bigram_loss", "train.permuted"} <= set(found.metrics)
    stream = {"format.kind": "stream", "format.frame": "none", "model.memory_length": 8, "evaluation.rows": 4}
    carried = fit(tiny.but(**PLM, **stream), 0, tmp_path / "stream")
    without = fit(tiny.but(**PLM, **stream | {"model.memory_length": 0}), 0, tmp_path / "alone")
    assert carried.metrics["heldout.loss"] != without.metrics["heldout.loss"]
    masked = tiny.but(**stream, **{"model.positions": "relative"})
    assert fit(masked, 0, tmp_path / "masked").metrics["heldout.loss"] > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objectives.plm.one_in": 17.0}, ("objectives.plm.one_in 17", "no target", "16")),
        ({"format.first_share": 0.5, "format.first_length": 8, "objectives.plm.one_in": 9.0}, ("one_in 9", "8")),
        ({"model.query_stream": False}, ("objectives.plm", "query stream", "model.query_stream")),
        ({"model.direction": "left_to_right"}, ("query_stream", "direction", "left_to_right")),
        ({"model.embedding_size": 8}, ("objectives.plm", "model.embedding_size")),
        ({"objectives.plm": None, "objectives.mlm.weight": 1.0}, ("model.query_stream", "objectives.plm")),
        ({"evaluation.words": 8}, ("evaluation.words", "0")),
        ({"evaluation.neighbours": 8, "format.kind": "stream", "format.frame": "none"}, ("neighbours", "stream")),
        ({"evaluation.direction": "left_to_right"}, ("evaluation.direction",)),
        ({"objectives.mlm.weight": 1.0}, ("exactly one objective", "mlm", "plm")),
        ({"format.kind": "stream", "format.frame": "none", "evaluation.context": 4}, ("evaluation.context",)),
    ],
)
def test_what_it_cannot_be_is_refused_by_name(tiny, changes, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        tiny.but(**PLM).but(**changes)


def test_a_row_without_text_is_asked_nothing():
    tokens = make_tokens(2, 8)
    tokens = replace(tokens, special=tokens.special | torch.tensor([[True], [False]]))
    example = PermutationLM().mask_inputs(Example.of(tokens), make_draws(2), make_vocabulary())
    assert (example.targets["permuted"].where >= 8).all()
    assert encoder()(example).queries.isfinite().all()
