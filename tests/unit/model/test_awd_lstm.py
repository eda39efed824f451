"""The recurrent backbone of AWD-LSTM: widths, residual connections, and each of the five dropouts by hand."""

import itertools

import pytest
import torch
from torch import nn
from torch.optim import SGD

from lightning_modules.batch import Example
from lightning_modules.model import Recurrent
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_tokens

PLAIN = Recurrent(
    num_layers=3, hidden_size=12, embedding_size=8, output_size=8, embedding_norm=False, embedding_dropout=0.0,
    dropout=0.0, init_std=0.5,
)  # fmt: skip
DROPOUTS = ("word_type_dropout", "input_dropout", "weight_dropout", "hidden_dropout", "output_dropout")
HALF = 0.5


def encoder(**changes):
    torch.manual_seed(0)
    return PLAIN.but(**changes).build(50)


def read(model, seed=1):
    """The layers, and the states that heads read, of a batch in which all words differ from row to row."""
    torch.manual_seed(seed)
    encoded = model(Example.of(make_tokens()))
    return encoded.layers, encoded.last


def bare(model):
    """torch's own layers with the weights of ours."""
    sizes = [model.settings.table_width, *model.settings.sizes]
    layers = [nn.LSTM(a, b, batch_first=True) for a, b in itertools.pairwise(sizes)]
    for own, layer in zip(layers, model.stacks[0], strict=True):
        own.load_state_dict(layer.state_dict())
    return layers


def factors(dropped, full):
    """What entries were multiplied by, NaN where they are 0 anyway."""
    return torch.where(full.abs() > 1e-6, dropped / full, torch.nan)


@torch.no_grad()
def test_residual_connections_add_what_a_layer_reads():
    model = encoder(residual=True, output_size=None, hidden_size=8)
    layers, last = read(model)
    first, second, third = bare(model)
    one, _ = first(layers[0])  # the first layer has none
    two = second(one)[0] + one
    assert torch.equal(layers[1], one)
    assert torch.equal(layers[2], two)
    assert torch.equal(last, third(two)[0] + two)


@torch.no_grad()
def test_a_dropped_word_is_zero_wherever_it_stands():
    model, tokens = encoder(word_type_dropout=HALF), make_tokens()
    tokens.ids = torch.randint(5, 15, tokens.ids.shape)
    torch.manual_seed(1)
    kept = factors(model(Example.of(tokens)).layers[0], model.embeddings.word(tokens.ids)).nanmean(-1)
    by_word = {int(word): kept[tokens.ids == word].unique() for word in tokens.ids.unique()}
    assert all(len(seen) == 1 for seen in by_word.values())
    assert {round(float(seen), 3) for seen in by_word.values()} == {0.0, 2.0}
    assert not torch.equal(read(model, 1)[0][0], read(model, 2)[0][0])


@torch.no_grad()
def test_dropout_of_input_and_output_is_the_same_at_all_positions_of_a_row():
    plain, (layers, last) = read(encoder())[0], read(encoder(output_dropout=HALF))
    locked(factors(read(encoder(input_dropout=HALF))[0][0], plain[0]))
    assert all(torch.equal(one, two) for one, two in zip(layers, plain, strict=True)), "what heads read, and no layer"
    locked(factors(last, layers[-1]))


@torch.no_grad()
def test_hidden_dropout_lies_between_layers_alone():
    """Two masks of three layers: that of the last layer, which a released print-out lists, is never drawn."""
    model = encoder(hidden_dropout=HALF)
    seen = []
    for layer in model.stacks[0]:
        layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    layers, last = read(model)
    assert torch.equal(seen[0], layers[0])
    for number in (1, 2):
        locked(factors(seen[number], layers[number]))
    assert torch.equal(last, layers[3])
    masks = [factors(seen[number], layers[number])[:, 0] for number in (1, 2)]
    assert not torch.equal(masks[0], masks[1])


def locked(kept):
    """Every row has one mask for all its positions, not that of another row, of factors 0 and 1 / (1 - p)."""
    assert {round(float(value), 3) for value in kept[~kept.isnan()].unique()} == {0.0, 2.0}
    first = kept.nan_to_num(0).amax(1)
    assert bool(((kept == first[:, None]) | kept.isnan() | ((kept - first[:, None]).abs() < 1e-4)).all())
    assert not torch.equal(first[0], first[1])


def test_weight_dropout_drops_recurrent_weights_and_nothing_else():
    """By hand: the states of torch's layer whose recurrent weights are those that were kept, doubled."""
    model = encoder(weight_dropout=HALF, num_layers=1, output_size=None, hidden_size=8)
    layer, (own,) = model.stacks[0][0], bare(model)
    kept = {}
    layer.register_forward_pre_hook(lambda module, _: kept.update(w=module.weight_hh_l0.detach().clone()))
    layers, last = read(model)
    changed = factors(kept["w"], layer.weight_hh_l0.detach())
    assert {round(float(value), 3) for value in changed[~changed.isnan()].unique()} == {0.0, 2.0}
    with torch.no_grad():
        own.weight_hh_l0.copy_(kept["w"])
        assert torch.allclose(last, own(layers[0])[0], atol=1e-7)
    _, other = read(model, 2)
    assert torch.equal(last[:, 0], other[:, 0])  # nothing recurs before the first position
    assert (last[:, 1:] - other[:, 1:]).abs().max() > 1e-3


def test_the_gradient_reaches_the_weights_through_evaluations():
    """The trap of the released code: a step after an evaluation raises there, or leaves the weights as they are."""
    model = encoder(weight_dropout=HALF)
    weights = {name: p for name, p in model.named_parameters() if name.endswith("weight_hh_l0")}
    assert len(weights) == 3
    assert set(dict(model.named_parameters())) == set(dict(encoder().named_parameters()))
    optimizer = SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        optimizer.zero_grad()
        read(model)[1].square().sum().backward()
        for name, weight in weights.items():
            assert weight.grad is not None
            assert 0.3 < float((weight.grad == 0).float().mean()) < 0.7, name  # those that were dropped
        optimizer.step()
        assert all(not torch.equal(before[name], weight) for name, weight in weights.items())
        model.eval()
        with torch.no_grad():
            assert torch.equal(read(model, 1)[1], read(model, 2)[1])
        model.train()


@torch.no_grad()
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropouts_are_off_in_evaluation_and_keep_the_mean(name):
    model, plain = encoder(**{name: 0.2}), encoder()
    assert torch.equal(read(model.eval())[1], read(plain.eval())[1])
    if name in ("input_dropout", "output_dropout", "word_type_dropout"):  # those that nothing nonlinear follows
        model.train()
        part = 1 if name == "output_dropout" else 0
        tried = read(plain), *(read(model, seed) for seed in range(400))
        full, *found = (each[1] if part else each[0][0] for each in tried)
        assert (torch.stack(found).mean(0) - full).abs().max() < 0.3 * full.abs().max()


@pytest.mark.parametrize(("words", "published"), [(10_000, 24_221_600), (33_278, 33_556_078)])
def test_the_papers_models_have_as_many_parameters(words, published):
    """24 M on the Penn Treebank and 33 M on WikiText-2 in Tables 1 and 2 of Merity et al. 2018."""
    assert SYSTEMS["awd_lstm"].but(**{"data.tokenizer.vocab_size": words}).parameters() == published
