"""The span boundary objective: what it asks, what it reads, and where it is harmless."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example, Unsupported
from lightning_modules.config import ConfigError
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Masking, Objectives, SpanBoundary, own_heads
from lightning_modules.objectives.masking import Spans
from lightning_modules.system import System
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every
from tests.messages import naming

MODEL = Transformer(num_layers=2, hidden_size=16, num_heads=2, max_positions=40, dropout=0.0, attention_dropout=0.0,
                    embedding_dropout=0.0)  # fmt: skip


def objectives(longest=15, rate=0.3, **sbo):
    masking = Masking(rate=rate, units=Spans())
    return Objectives(mlm=MaskedLM(masking=masking), sbo=SpanBoundary(longest=longest, **sbo))


def corrupted(chosen, rows=8, length=40, padding=6, seed=0):
    tokens = make_tokens(rows, length, 50, padding, seed)
    tokens.tables = {}
    tokens.ids[::3, 20], tokens.special[::3, 20] = 3, True
    return tokens, chosen.mask_inputs(Example.of(tokens), make_draws(rows, seed), make_vocabulary())


def network(chosen, seed=0, **model):
    torch.manual_seed(seed)
    settings = MODEL.but(**model)
    return settings.build(50), chosen.heads(settings.size(50))


@every(("longest", "rate"), [(longest, rate) for longest in (1, 3, 15) for rate in (0.15, 0.4)])
def test_it_asks_what_lies_between_two_visible_pieces(longest, rate):
    chosen = objectives(longest, rate)
    tokens, example = corrupted(chosen)
    hidden = torch.zeros(8 * 40, dtype=torch.bool)
    hidden[example.targets["mlm"].where] = True
    hidden, special = hidden.reshape(8, 40), (tokens.special | ~tokens.real)
    asked = []
    for row in range(8):
        at = 0
        while at < 40:
            if not hidden[row, at]:
                at += 1
                continue
            end = at
            while hidden[row, end]:
                end += 1
            if not special[row, at - 1] and not special[row, end]:
                places = range(at, min(end, at + longest))
                asked += [(row * 40 + p, row * 40 + at - 1, row * 40 + end, int(tokens.ids[row, p])) for p in places]
            at = end
    target = example.targets["sbo"]
    assert [*zip(target.where.tolist(), *target.output_positions.T.tolist(), target.ids.tolist(), strict=True)] == asked
    assert asked
    assert example.counts == {"mlm": float(hidden.sum()), "sbo": float(len(asked))}
    assert example.groups is None


@every("embedding_size", [None, 8])
def test_the_head_reads_both_neighbours_and_the_place(embedding_size):
    chosen = objectives(position_size=5)
    backbone, heads = network(chosen, embedding_size=embedding_size)
    _, example = corrupted(chosen)
    encoded, target, head = backbone(example), example.targets["sbo"], heads["sbo"]["span"]
    head.bias.data.normal_()
    total = 0.0
    for where, (left, right), word in zip(target.where, target.output_positions, target.ids, strict=True):
        x = torch.cat([encoded.last.flatten(0, 1)[left], encoded.last.flatten(0, 1)[right],
                       head.position.weight[where - left - 1]])  # fmt: skip
        for dense, norm in ((head.first, head.first_norm), (head.second, head.second_norm)):
            x = F.layer_norm(F.gelu(dense.weight @ x + dense.bias), x.new_zeros(len(dense.bias)).shape, norm.weight,
                             norm.bias, 1e-12)  # fmt: skip
        total -= torch.log_softmax(encoded.table @ x + head.bias, 0)[word]
    loss, count, weight = chosen.loss(heads, encoded, example)["sbo"]
    assert loss.item() == pytest.approx(total.item(), rel=1e-5)
    assert (count, weight) == (float(len(target.ids)), 1.0)
    measured = chosen.sbo.measure(own_heads(heads, "sbo"), encoded, example)
    assert measured["sbo_loss"][0].item() == pytest.approx(loss.item(), rel=1e-5)


def test_a_step_computes_the_last_layer_beside_spans_too():
    chosen = objectives()
    assert chosen.read_targets_only
    _, example = corrupted(chosen)
    gradients = []
    for shown in (example, example.read_at_targets()):
        backbone, heads = network(chosen)
        terms = chosen.loss(heads, backbone(shown), shown)
        sum(total / count for total, count, _ in terms.values()).backward()
        gradients.append([p.grad for p in (*backbone.parameters(), *heads.parameters())])
    assert example.read_at_targets().output_positions is not None
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_step_without_a_span_is_harmless(tiny):
    """Everything is hidden, so that no piece is left beside a span."""
    spans = {"objectives.mlm.masking.units.kind": "spans", "objectives.mlm.masking.rate": 1.0, "objectives.sbo": {}}
    gradients = []
    for system in (tiny.but(**spans), tiny.but(**{**spans, "objectives.sbo": None})):
        module = system.but(**{"model.dropout": 0.0}).build(0).eval()
        module.trainer = SimpleNamespace(accumulate_grad_batches=1, world_size=1)
        tokens = make_tokens(4, 16, 64)
        example = system.objectives.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary(64))
        module.training_step(example, 0).backward()
        assert all(np.isfinite(value) for value in module.training_loss().values())
        gradients.append({name: p.grad for name, p in module.named_parameters()})
    assert example.counts["mlm"] == 4 * 14
    assert all((gradients[0][name] == gradient).all() for name, gradient in gradients[1].items())
    assert all((gradient == 0).all() for name, gradient in gradients[0].items() if name.startswith("heads.sbo"))


def test_it_is_refused_where_nothing_gives_spans():
    for kind in ("pieces", "whole_words", "ngrams", "bionic"):
        with pytest.raises(ConfigError, match=naming("objectives.sbo", kind, "spans", "tagged")):
            System().but(**{"objectives.mlm.masking.units.kind": kind, "objectives.sbo": {}})
        System().but(**{"objectives.mlm.masking.units.kind": kind, "objectives.sbo.weight": 0.0})
    one_way = {"objectives.mlm": None, "objectives.lm": {}, "model.direction": "left_to_right", "objectives.sbo": {}}
    with pytest.raises(ConfigError, match=naming("objectives.sbo", "objectives.mlm.masking.units.kind")):
        System().but(**one_way)
    with pytest.raises(Unsupported, match="hides spans"):
        SpanBoundary().mask_inputs(Example.of(make_tokens()), make_draws(), make_vocabulary())


def test_its_work_is_that_of_every_hidden_position_less_what_lies_at_edges():
    chosen = objectives(rate=0.15, longest=40)
    tokens = make_tokens(64, 512, 50)
    tokens.tables = {}
    example = chosen.mask_inputs(Example.of(tokens), make_draws(64), make_vocabulary())
    size = MODEL.size(50)
    backbone, heads = network(chosen, max_positions=512)
    encoded = backbone(example)
    encoded.last, encoded.table = encoded.last.to("meta"), encoded.table.to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        chosen.loss(heads.to("meta"), encoded, example.to("meta"))
    asked, words = example.counts["sbo"], example.counts["mlm"]
    masked = 2.0 * size.embedding_size * (size.hidden_size + size.vocab_size)
    assert counter.get_total_flops() == asked * chosen.sbo.flops_per_hidden(size) + words * masked
    assert asked == pytest.approx(64 * chosen.mlm.expected_hidden(512), rel=0.05)
    formula = chosen.flops_per_sequence(512, size) - chosen.mlm.flops_per_sequence(512, size)
    assert formula == chosen.mlm.expected_hidden(512) * chosen.sbo.flops_per_hidden(size)
