"""Attention recomputed from outside, and what heads do on average."""

import numpy as np
import pytest
import torch

from lightning_modules.analysis.attention_maps import (
    Attention,
    HeadStatistics,
    attention_maps,
    head_statistics,
    most_beyond,
    source_attention,
)
from lightning_modules.batch import Example, Unsupported
from lightning_modules.model import Transformer
from lightning_modules.model.attention import MultiHeadAttention
from tests.conftest import make_tokens, make_vocabulary
from tests.every import every
from tests.translations import WORDS, pairs, recurrent, settings

SMALL = Transformer(num_layers=3, hidden_size=16, num_heads=4, max_positions=16, init_std=0.5, norm_eps=1e-5)
KNOBS = [
    {},
    {"norm": "pre", "positions": "sided_linear_bias"},
    {"positions": "linear_bias", "sharing": "all"},
    {"positions": "rotary", "rotary_size": 2},
    {"positions": "relative", "query_biases": "layer"},
    {"positions": "relative_learned", "attention_biases": False, "sharing": "all"},
    {"positions": "none", "sharing": "attention", "sharing_groups": 2},
]


def encoder(knobs, seed=0):
    torch.manual_seed(seed)
    return SMALL.but(**knobs).build(50)


def example(padding=4, causal=False):
    found = Example.of(make_tokens(padding=padding))
    found.visible.causal = causal
    return found


@every("knobs", KNOBS)
@every("padding, causal", [(0, False), (4, False), (4, True)])
def test_weights_times_values_are_the_output_of_the_layer(knobs, padding, causal):
    """What the maps say, put through values and output projection, is what the fast kernel gave."""
    backbone, calls = encoder(knobs).eval(), []
    for module in backbone.modules():
        if isinstance(module, MultiHeadAttention):
            module.register_forward_hook(lambda module, given, output: calls.append((module, given[0], output)))
    maps = attention_maps(backbone, example(padding, causal))
    assert len(maps) == len(calls) == 3, "one a layer, shared or not"
    for (module, x, output), (weights, prior) in zip(calls, maps, strict=True):
        values = module.queries_keys_values(x)[2]
        again = module.output((weights @ values).transpose(1, 2).reshape(x.shape))
        assert torch.allclose(again, output, atol=1e-5)
        for rows in (weights, prior):
            assert rows.shape == (4, 4, 16, 16)
            assert torch.allclose(rows.sum(-1), torch.ones(4, 4, 16), atol=1e-5)
            assert (rows >= 0).all()
        assert not weights[prior == 0].any(), "nobody looks where positions and padding do not let him"


def test_the_model_stays_as_it_is():
    backbone, given = encoder({}).train(), example()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    with_dropout = attention_maps(backbone, given)
    assert backbone.training
    assert all(torch.equal(one.weights, two.weights) for one, two in zip(with_dropout, attention_maps(backbone, given)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert not [module for module in backbone.modules() if module._forward_hooks]
    with pytest.raises(ValueError, match="max_positions is 16"):
        attention_maps(backbone, Example.of(make_tokens(length=20)))
    assert backbone.training


def by_hand(maps, tokens):
    """The statistics from their definitions, one token at a time."""
    found = {name: np.zeros((len(maps), maps[0].weights.shape[1])) for name in HeadStatistics.__dataclass_fields__}
    count = 0
    for row, here in zip(*np.nonzero((tokens.real & ~tokens.special).numpy()), strict=True):
        count += 1
        ids = tokens.ids[row].tolist()
        for layer, head in np.ndindex(*found["entropy"].shape):
            weights, prior = (side[row, head, here].double().numpy() for side in maps[layer])
            shares = {
                "previous": weights[here - 1],
                "itself": weights[here],
                "following": weights[here + 1],
                "first": sum(w for w, piece in zip(weights, ids, strict=True) if piece == 2),
                "separator": sum(w for w, piece in zip(weights, ids, strict=True) if piece == 3),
                "distance": sum(w * abs(place - here) for place, w in enumerate(weights)),
                "entropy": -sum(w * np.log(w) for w in weights if w > 0),
                "beyond": sum(w * np.log(w / p) for w, p in zip(weights, prior, strict=True) if w > 0),
            }
            for name, value in shares.items():
                found[name][layer, head] += value
    return {name: total / count for name, total in found.items()}


@pytest.mark.parametrize("knobs", KNOBS[:2], ids=str)
def test_statistics_are_those_of_their_definitions(knobs):
    backbone, given = encoder(knobs), example()
    learnt, prior = head_statistics(backbone, [given], make_vocabulary())
    maps = attention_maps(backbone, given)
    alone = [Attention(layer.prior, layer.prior) for layer in maps]
    for found, expected in ((learnt, by_hand(maps, given.inputs)), (prior, by_hand(alone, given.inputs))):
        for name, values in expected.items():
            assert np.allclose(getattr(found, name), values, atol=1e-5), name
    assert np.allclose(prior.beyond, 0)
    assert (learnt.beyond > 0).all()
    layer, head = most_beyond(learnt)
    assert learnt.beyond[layer, head] == learnt.beyond.max()


def test_every_token_counts_alike():
    """Two texts of different length together are the mean over their tokens, not over the texts."""
    backbone, vocabulary = encoder({}), make_vocabulary()
    texts = [Example.of(make_tokens(length=length, seed=length)) for length in (8, 16)]
    apart = [head_statistics(backbone, [text], vocabulary)[0].entropy for text in texts]
    both = head_statistics(backbone, texts, vocabulary)[0].entropy
    assert np.allclose(both, (6 * apart[0] + 14 * apart[1]) / 20)
    with pytest.raises(ValueError, match="at least one ordinary token"):
        head_statistics(backbone, [], vocabulary)


@every("form", [settings(), settings(norm="pre", sharing="all"), recurrent(), recurrent(attention="additive")])
def test_attention_to_a_source_sums_to_one_and_sees_no_padding(form):
    torch.manual_seed(0)
    backbone, tokens = form.build(WORDS), Example.of(pairs([5, 9, 2, 7], [8, 3, 6, 10]))
    maps = source_attention(backbone, tokens)
    assert len(maps) == (2 if form.kind == "encoder_decoder" else 1)
    for weights in maps:
        assert weights.shape == (4, 2 if form.kind == "encoder_decoder" else 1, 10, 9)
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:3]), atol=1e-5)
        assert not weights.masked_select(~tokens.source.real[:, None, None]).any()
    assert backbone.training


def test_what_a_decoder_attends_to_gives_what_it_mixes():
    torch.manual_seed(0)
    backbone, tokens, calls = settings().build(WORDS).eval(), Example.of(pairs([5, 9], [8, 3])), []
    for block in backbone.blocks:
        block["cross"].function.register_forward_hook(lambda module, given, out: calls.append((module, given, out)))
    maps = source_attention(backbone, tokens)
    for (module, (x, source), output), weights in zip(calls, maps, strict=True):
        values = module.queries_keys_values(x, attended=source.states)[2]
        assert torch.allclose(module.output((weights @ values).transpose(1, 2).flatten(2)), output, atol=1e-5)
    own = attention_maps(backbone, tokens)
    assert [len(layer.weights[0, 0]) for layer in own] == [9, 9, 8, 8], "the encoder's, then the decoder's"


def test_a_model_without_attention_to_a_source_is_refused():
    with pytest.raises(Unsupported, match="attends to no source"):
        source_attention(recurrent(attention="none").build(WORDS), Example.of(pairs([5], [8])))
