"""An encoder-decoder: who sees what, and that a pair's loss depends on nothing but the pair."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import BEGIN, Example, Unsupported
from lightning_modules.model.attention import Source
from lightning_modules.model.seq2seq import SourceAttention
from lightning_modules.model.weights import undrawn
from lightning_modules.objectives import LanguageModel
from lightning_modules.objectives.lm import NEXT
from lightning_modules.training.execution import recompute_layers
from tests.conftest import make_tokens
from tests.translations import WORDS, asked, pairs, recurrent, settings

SOURCES, TARGETS = [5, 9, 2, 7], [8, 3, 6, 10]
FORMS = {
    "after": {},
    "before": {"norm": "pre"},
    "sinusoids": {"positions": "sinusoidal", "embedding_scale": True, "embedding_norm": False},
    "rotary": {"positions": "rotary", "encoder_layers": 1},
    "biases": {"positions": "linear_bias"},
    "distances": {"positions": "relative", "sharing": "all"},
    "own table": {"source_embeddings": "own"},
    "narrow table": {"embedding_size": 8},
    "narrow keys": {"key_size": 3},
}
RECURRENT_FORMS = {
    "dot": {"attention": "dot"},
    "scaled dot, own table": {"attention": "scaled_dot", "source_embeddings": "own"},
    "general, one layer of the encoder": {"attention": "general", "encoder_layers": 1},
    "additive, narrow table": {"attention": "additive", "embedding_size": 8},
    "uniform": {"attention": "uniform"},
    "no attention": {"attention": "none", "encoder_layers": 3},
    "residual": {"attention": "dot", "residual": True, "embedding_norm": True},
}


@pytest.fixture(params=[*FORMS, *RECURRENT_FORMS])
def network(request):
    torch.manual_seed(0)
    name = request.param
    form = settings(**FORMS[name]) if name in FORMS else recurrent(**RECURRENT_FORMS[name])
    lm = LanguageModel(bias=False) if form.embedding_size else LanguageModel(transform="none", bias=False)
    return form.build(WORDS).double(), lm.heads(form.size(WORDS)).double(), lm


def nats(network, tokens):
    """The loss of each prediction, by row."""
    model, heads, lm = network
    example = asked(tokens)
    target = example.targets[NEXT]
    each = torch.nn.functional.cross_entropy(lm.logits(heads, model(example), example), target.ids, reduction="none")
    row = target.where // tokens.ids.shape[1]
    return [each[row == n] for n in range(len(tokens.ids))]


def equal(left, right):
    return len(left) == len(right) and all(
        torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(left, right, strict=True)
    )


def test_a_target_is_predicted_piece_by_piece_and_its_end_as_well(network):
    tokens = pairs(SOURCES, TARGETS)
    target = asked(tokens).targets[NEXT]
    assert target.count() == sum(TARGETS) - len(TARGETS), "all but [CLS]"
    assert (target.ids == 3).sum() == len(TARGETS)
    assert [len(row) for row in nats(network, tokens)] == [length - 1 for length in TARGETS]


def test_a_loss_has_no_gradient_from_later_targets_nor_from_padding(network):
    model, heads, lm = network
    example = asked(pairs(SOURCES, TARGETS))
    target, length = example.targets[NEXT], example.inputs.ids.shape[1]
    seen = []
    for module in {
        id(m): m for m in (model.embeddings, getattr(model.encoder, "embeddings", model.embeddings))
    }.values():
        module.register_forward_hook(lambda _, __, output: seen.append(output) or output.retain_grad())
    encoded = model(example)
    source, own = seen  # the encoder runs first
    logits = lm.logits(heads, encoded, example)
    for number in range(len(target.ids)):
        row, column = divmod(int(target.where[number]), length)
        for states in (source, own):
            states.grad = None
        loss = torch.nn.functional.cross_entropy(logits[number : number + 1], target.ids[number : number + 1])
        loss.backward(retain_graph=True)
        reached = own.grad.abs().sum(-1) > 0
        assert reached[row, : column + 1].all()
        assert not reached[row, column + 1 :].any()
        from_source = source.grad.abs().sum(-1) > 0
        assert torch.equal(from_source[row], example.source.real[row]), "all of the source, and no padding of it"
        others = torch.arange(len(SOURCES)) != row
        assert not reached[others].any()
        assert not from_source[others].any()


@torch.no_grad()
def test_a_pair_has_its_loss_whatever_is_beside_it(network):
    tokens = pairs(SOURCES, TARGETS)
    whole = nats(network, tokens)
    by_length = torch.tensor(SOURCES).argsort()
    for order in (torch.tensor([2, 0, 3, 1]), by_length):
        turned = Example.of(tokens).rows(order).inputs
        assert equal(nats(network, turned), [whole[n] for n in order])
    for row in range(len(SOURCES)):
        alone = Example.of(tokens).rows(torch.tensor([row])).inputs
        assert equal(nats(network, alone), whole[row : row + 1])
    twice = Example.of(tokens).rows(torch.tensor([1, 1]))
    assert torch.equal(twice.source.ids[0], twice.source.ids[1])


@torch.no_grad()
@pytest.mark.parametrize("wide", [(0, 4), (3, 0), (5, 2)])
def test_padding_on_either_side_changes_no_loss(network, wide):
    tokens = pairs(SOURCES, TARGETS)
    whole, (more, further) = nats(network, tokens), wide
    source = tokens.source.padded(tokens.source.ids.shape[1] + further)
    padded = replace(tokens.padded(tokens.ids.shape[1] + more), source=source)
    assert equal(nats(network, padded), whole)
    filled = replace(padded, source=replace(source, ids=source.ids.masked_fill(~source.real, 7)))
    assert equal(nats(network, filled), whole), "what padding holds is not seen"


@torch.no_grad()
def test_widened_rows_keep_their_losses_and_both_sides_get_few_sizes(network):
    model, heads, lm = network
    example = asked(pairs(SOURCES, TARGETS))
    wide = example.widened(8, 48)
    assert (wide.inputs.ids.shape[1], wide.source.ids.shape[1]) == (16, 16)
    before, after = (lm.loss(heads, model(one), one)[NEXT] for one in (example, wide))
    assert torch.allclose(before, after)
    assert example.widened(8, 22).inputs.ids.shape[1] == 11, "no side is longer than half of both"


def test_micro_batches_add_up_to_one_batch(network):
    """The mean is over the real target pieces of the whole step, whatever its parts."""
    model, heads, lm = network
    tokens = pairs(SOURCES, TARGETS)
    whole = asked(tokens)
    gradients = []
    for parts in ([[0, 1, 2, 3]], [[0], [1, 2, 3]], [[3, 1], [2, 0]]):
        model.zero_grad()
        for part in parts:
            example = asked(Example.of(tokens).rows(torch.tensor(part)).inputs)
            (lm.loss(heads, model(example), example)[NEXT] / whole.counts[NEXT]).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for other in gradients[1:]:
        assert equal(other, gradients[0])


@pytest.mark.parametrize("network", FORMS, indirect=True)
def test_layers_that_are_computed_again_give_the_same_gradients(network):
    model, heads, lm = network
    example, gradients = asked(pairs(SOURCES, TARGETS)), []
    for again in (False, True):
        if again:
            recompute_layers(model)
        model.zero_grad()
        lm.loss(heads, model(example), example)[NEXT].backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    assert equal(list(gradients[0].values()), list(gradients[1].values()))


@torch.no_grad()
@pytest.mark.parametrize("cuts", [[1] * 9, [4, 1, 4]])
def test_a_target_that_goes_on_reads_its_source_once(network, cuts):
    model, _, _ = network
    tokens = pairs([5, 9, 2, 7], [9, 9, 9, 9])
    whole = model(Example.of(tokens), BEGIN).last
    runs, encode = [], model.encode_source
    model.encode_source = lambda *given, **named: runs.append(1) or encode(*given, **named)
    carry, states, start = BEGIN, [], 0
    for size in cuts:
        part = slice(start, start + size)
        own = replace(tokens, **{name: getattr(tokens, name)[:, part] for name in ("ids", "special", "real", "ends")})
        encoded = model(Example.of(own if carry == BEGIN else replace(own, source=None)), carry)
        carry, start = encoded.carry, start + size
        states.append(encoded.last)
    assert torch.allclose(torch.cat(states, 1), whole, atol=1e-10)
    assert len(runs) == 1


@pytest.mark.parametrize("form", [settings(), recurrent()], ids=["transformer", "lstm"])
def test_what_is_no_pair_is_refused_by_name(form):
    torch.manual_seed(0)
    model = form.build(WORDS)
    tokens = pairs(SOURCES, TARGETS)
    with pytest.raises(Unsupported, match=r"reads a source, and the batch holds none"):
        model(Example.of(replace(tokens, source=None)))
    with pytest.raises(Unsupported, match="segment table"):
        model(Example.of(replace(tokens, tables={"segment": torch.zeros_like(tokens.ids)})))
    other = settings().encoder.build(WORDS)
    with pytest.raises(Unsupported, match="does not read source, which the batch holds"):
        other(Example.of(tokens))
    assert other(Example.of(make_tokens(4, 16, WORDS))).last.shape == (4, 16, 16)


@pytest.mark.parametrize(
    "changes", [{}, {"encoder_layers": 3}, {"ffn_size": 40, "num_layers": 1}, {"embedding_size": 8}, {"key_size": 3}]
)
def test_flops_are_those_of_torchs_counter(changes):
    form = settings(**changes)
    tokens = pairs([12] * 3, [12] * 3)
    with undrawn():
        model = form.build(WORDS)
    with FlopCounterMode(display=False) as counter:
        model(Example.of(tokens).to("meta"))
    assert counter.get_total_flops() == pytest.approx(3 * form.flops_per_sequence(24), rel=1e-9)


@pytest.mark.parametrize("changes", [*RECURRENT_FORMS.values(), {"num_layers": 1, "hidden_size": 24}])
def test_flops_of_lstms_are_those_of_torchs_counter_and_of_what_it_does_not_count(changes):
    form = recurrent(**changes)
    model = form.build(WORDS)
    with FlopCounterMode(display=False) as counter:
        model(Example.of(pairs([12] * 3, [12] * 3)))
    layers = [part for part in model.modules() if isinstance(part, torch.nn.LSTM)]
    of_layers = sum(2 * 3 * 12 * (part.weight_ih_l0.numel() + part.weight_hh_l0.numel()) for part in layers)
    assert counter.get_total_flops() + of_layers == pytest.approx(3 * form.flops_per_sequence(24), rel=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "general", "additive", "uniform"])
def test_attention_is_the_published_formula_and_sees_no_padding(score):
    torch.manual_seed(0)
    attention = SourceAttention(6, score).double()
    x, states = torch.randn(2, 3, 6).double(), torch.randn(2, 4, 6).double()
    bias = torch.zeros(2, 1, 1, 4).double()
    bias[1, ..., 2:] = float("-inf")
    weights = attention.weights(x, Source(states, bias))
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3).double())
    assert (weights[1, :, 2:] == 0).all()
    for row, size in ((0, 4), (1, 2)):
        for t in range(3):
            q, scores = x[row, t], []
            for k in states[row, :size]:
                if score == "additive":
                    hidden = torch.tanh(attention.query.weight @ q + attention.key.weight @ k)
                    scores.append(attention.sum.weight[0] @ hidden)
                elif score == "uniform":
                    scores.append(torch.zeros(()).double())
                else:
                    k = attention.key.weight @ k if score == "general" else k
                    scores.append(q @ k / (6**0.5 if score == "scaled_dot" else 1))
            wanted = torch.softmax(torch.stack(scores), 0)
            assert torch.allclose(weights[row, t, :size], wanted)
            mixed = wanted @ states[row, :size]
            made = torch.tanh(attention.combine.weight @ torch.cat([mixed, q]))
            assert torch.allclose(attention(x, Source(states, bias))[row, t], made)
