"""Two streams: what a query may know, and what only the content knows; against the formula written out."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import Example, Queries, Target, Tokens, Unsupported, Visibility
from lightning_modules.model import Transformer
from lightning_modules.objectives.plm import visible
from tests.messages import naming

LENGTH = 8
POSITIONS = ["relative", "relative_learned", "rotary", "learned", "sided_linear_bias"]


def encoder(**changes):
    torch.manual_seed(0)
    settings = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "max_positions": 32, "init_std": 0.3}
    knobs = {"positions": "relative", "query_stream": True, "norm_eps": 1e-5, "segment_types": 0} | changes
    return Transformer(**settings).but(**knobs).build(40).double().eval()


def words(rows=1, length=LENGTH):
    return torch.randint(5, 40, (rows, length), generator=torch.Generator().manual_seed(1))


def example(ids, order, segments=None, real=None):
    """Rows in one order: a query for each rank, in the order of positions."""
    order = torch.tensor(order).expand(len(ids), -1)
    seen, length = visible(order), ids.shape[1]
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    tables = {} if segments is None else {"segment": segments}
    tokens = Tokens(ids, ~real, real, torch.arange(len(ids)), tables)
    column = (order[0] >= 0).nonzero()[:, 0]
    where = torch.arange(len(ids))[:, None] * length + column
    seeing = Visibility(real=real, pairs=(seen | torch.eye(length, dtype=torch.bool))[:, None])
    return Example(tokens, seeing, queries=Queries(where, seen[:, column]))


def changed(ids, column):
    other = ids.clone()
    other[:, column] = (ids[:, column] - 4) % 35 + 5
    return other


@torch.no_grad()
def depends(model, order, **given):
    """Which tokens each state and each query depends on: ``[t t]``, ``[m t]``."""
    ids = words()
    here, by_state, by_query = model(example(ids, order, **given)), [], []
    for column in range(ids.shape[1]):
        there = model(example(changed(ids, column), order, **given))
        by_state.append((here.last != there.last).any(-1)[0])
        by_query.append((here.queries != there.queries).any(-1)[0])
    return torch.stack(by_state, 1), torch.stack(by_query, 1)


ORDER = [-1, 2, 0, -1, -1, 1, -1, 3]  # targets at 1, 2, 5 and 7; that at 2 comes first


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_query_knows_the_context_and_earlier_targets_and_never_its_own(positions):
    states, queries = depends(encoder(positions=positions), ORDER)
    context = torch.tensor([rank < 0 for rank in ORDER])
    for column, rank in enumerate(ORDER):
        earlier = torch.tensor([0 <= other < rank for other in ORDER])
        itself = torch.arange(LENGTH) == column
        if rank < 0:
            assert torch.equal(states[column], context), "context sees context alone"
        else:
            assert torch.equal(states[column], context | earlier | itself)
    for row, column in enumerate(torch.tensor(ORDER).ge(0).nonzero()[:, 0]):
        earlier = torch.tensor([0 <= other < ORDER[column] for other in ORDER])
        assert torch.equal(queries[row], context | earlier), "and not the token that it is asked for"


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_query_that_sees_nothing_is_the_same_whatever_the_text(positions):
    model, order = encoder(positions=positions), list(range(LENGTH))
    one, other = (model(example(ids, order)) for ids in (words(), changed(words(), slice(None))))
    assert one.queries.isfinite().all()
    assert torch.equal(one.queries[:, 0], other.queries[:, 0])
    assert not torch.allclose(one.queries[:, 1], other.queries[:, 1])


def test_and_its_gradients_are_numbers():
    model = encoder(segment_relation=True)
    model(example(words(2), list(range(LENGTH)))).queries.sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_content_does_not_know_of_queries(positions):
    model, asked = encoder(positions=positions, norm="pre"), example(words(3), ORDER)
    plain = dataclasses.replace(asked, queries=None)
    with_queries, without = model(asked), model(plain)
    assert without.queries is None
    assert torch.allclose(with_queries.last, without.last, atol=1e-12)
    assert all(torch.allclose(*pair, atol=1e-12) for pair in zip(with_queries.layers, without.layers, strict=True))


@pytest.mark.parametrize("positions", ["relative", "relative_learned", "rotary", "learned"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_fewer_last_states_change_no_query_and_no_gradient(positions, norm):
    model = encoder(positions=positions, norm=norm, segment_relation=True)
    segments = torch.arange(LENGTH).ge(5).long().expand(3, -1)
    asked = example(words(3), ORDER, segments)
    where = asked.queries.where.flatten()
    target = Target(where, asked.inputs.ids.flatten()[where], queries=torch.arange(12))
    asked.targets["permuted"] = target
    fewer = asked.read_at_targets()
    assert fewer.output_positions.lt(0).all(), "no last state of the content is read"
    slopes = []
    for given in (asked, fewer):
        model.zero_grad()
        encoded = model(given)
        encoded.answering(target).square().sum().backward()
        slopes.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
        slopes[-1]["answers"] = encoded.answering(target)
    assert slopes[0].keys() == slopes[1].keys()
    assert all(torch.allclose(slope, slopes[1][name], atol=1e-9) for name, slope in slopes[0].items())
    both = dataclasses.replace(fewer, output_positions=torch.tensor([[3, -1], [8, 15], [17, -1]]))
    encoded, whole = model(both), model(asked)
    for where in (3, 8, 15, 17):
        assert torch.allclose(encoded.last.flatten(0, 1)[where], whole.last.flatten(0, 1)[where], atol=1e-10)


def by_hand(model, asked):
    """Both streams with loops over heads and pairs (Yang et al. 2019, appendix A.2), post-norm, relative positions."""
    ids, seen = asked.inputs.ids[0], asked.visible.pairs[0, 0]
    segments = asked.inputs.tables["segment"][0]
    columns = asked.queries.where[0].tolist()
    h, g = model.embeddings.word.weight[ids], model.query.expand(len(columns), -1)
    h, g = (F.layer_norm(x, (16,), model.embeddings.norm.weight, model.embeddings.norm.bias, 1e-5) for x in (h, g))
    for block in model.blocks:
        attention, ffn = block["attention"], block["ffn"]
        own, u, v = attention.function, attention.function.relation.biases.u, attention.function.relation.biases.v
        weight, bias, w, s = own.qkv.weight, own.qkv.bias, own.segments.w, own.segments.s

        def mixed(x, rows, sees):
            out = []
            for i, state in zip(rows, x, strict=True):
                heads = []
                for n in range(2):
                    part = slice(8 * n, 8 * n + 8)
                    q, scores, values = weight[:16][part] @ state + bias[:16][part], [], []
                    for j in range(len(h)):
                        if not sees(i, j):
                            continue
                        k = weight[16:32][part] @ h[j] + bias[16:32][part]
                        angles = (i - j) * 10_000.0 ** (-torch.arange(0, 16, 2).double() / 16)
                        r = own.relation.project.weight[part] @ torch.cat([angles.sin(), angles.cos()])
                        other = int(segments[i] != segments[j])
                        scores.append((q + u[n, 0]) @ k + (q + v[n, 0]) @ r + (q + w[n, 0]) @ s[other, n])
                        values.append(weight[32:][part] @ h[j] + bias[32:][part])
                    shares = torch.stack(scores).div(8**0.5).softmax(0)
                    heads.append((shares[:, None] * torch.stack(values)).sum(0))
                out.append(torch.cat(heads))
            x = attention.norm(x + own.output(torch.stack(out)))
            return ffn.norm(x + ffn.function(x[None])[0])

        every = range(len(h))
        h, g = (
            mixed(h, every, lambda i, j: bool(seen[i, j])),
            mixed(g, columns, lambda i, j: bool(seen[i, j]) and i != j),
        )
    return h, g


@torch.no_grad()
def test_both_streams_are_those_of_the_formula():
    model = encoder(segment_relation=True, query_biases="layer")
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]])
    asked = example(words(), ORDER, segments)
    h, g = by_hand(model, asked)
    encoded = model(asked)
    assert torch.allclose(encoded.last[0], h, atol=1e-10)
    assert torch.allclose(encoded.queries[0], g, atol=1e-10)


def test_a_model_without_a_query_stream_refuses_queries():
    with pytest.raises(Unsupported, match=naming("query stream")):
        encoder(query_stream=False)(example(words(), ORDER))
