"""Attention by distance against its formula, one pair of positions at a time; what it owes by symmetry."""

import dataclasses
import math

import pytest
import torch

from lightning_modules.batch import Example, Tokens, Unsupported, Visibility
from lightning_modules.config import ConfigError
from lightning_modules.model import Transformer
from lightning_modules.model.cache import Memory
from lightning_modules.systems import SYSTEMS

TINY = Transformer(num_layers=2, hidden_size=12, num_heads=2, ffn_size=16, max_positions=16, init_std=0.4).but(
    segment_types=0, embedding_dropout=0.0, dropout=0.0, attention_dropout=0.0, norm_eps=1e-5
)
KINDS = {
    "projected": {"positions": "relative"},
    "projected, biases of a layer": {"positions": "relative", "query_biases": "layer"},
    "projected, clamped": {"positions": "relative", "clamp_length": 3},
    "learned": {"positions": "relative_learned"},
    "learned, short table": {"positions": "relative_learned", "max_positions": 4, "query_biases": "layer"},
}
DIRECTIONS = ("both", "left_to_right", "right_to_left")
ROWS, LENGTH, MEMORY = 2, 5, 4


def encoder(**changes):
    torch.manual_seed(0)
    model = TINY.but(**changes).build(30).double().eval()
    for name, weight in model.named_parameters():
        if weight.ndim == 1 or "number" in name:
            torch.nn.init.normal_(weight, float("norm.weight" in name), 0.3)
    return model


def example(ids, real=None, positions=None, pairs=None):
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    tokens = Tokens(ids, ~real, real, torch.arange(len(ids)), positions=positions)
    return Example(tokens, Visibility(real=None if bool(real.all()) else real, pairs=pairs))


def ids(length=LENGTH, rows=ROWS, seed=1):
    return torch.randint(5, 30, (rows, length), generator=torch.Generator().manual_seed(seed))


def remembered(seed=3, length=MEMORY):
    drawn = torch.Generator().manual_seed(seed)
    layers = tuple(torch.randn(ROWS, length, 12, generator=drawn, dtype=torch.float64) for _ in range(2))
    real = torch.ones(ROWS, length, dtype=torch.bool)
    real[1, :2] = False
    return Memory(layers, real)


def sinusoid(distance, width):
    angles = [distance / 10_000 ** (2 * i / width) for i in range(width // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def score(model, attention, queries, keys, head, distance):
    """The score of one pair: the formula, with nothing shared between pairs."""
    size = len(queries)
    part = slice(head * size, (head + 1) * size)
    relation = attention.relation
    biases = relation.biases or model.query_biases
    if model.clamp_length:
        distance = max(-model.clamp_length, min(model.clamp_length, distance))
    found = queries @ keys + biases.u[head, 0] @ keys
    if hasattr(relation, "project"):
        vector = relation.project.weight[part] @ sinusoid(distance, relation.project.in_features)
        found = found + queries @ vector + biases.v[head, 0] @ vector
    else:
        row = max(relation.low, min(relation.high, distance)) - relation.low
        found = found + queries @ relation.table[row, head] + relation.number[row, head]
    return found / math.sqrt(size)


def layer_by_hand(model, layer, x, context, seen, distance):
    """A post-norm layer over one row: loops over heads, positions and what they attend to."""
    block = model.blocks[layer]
    attention, heads = block["attention"].function, 2
    width = x.shape[1]
    size = width // heads
    weight, bias = attention.qkv.weight, attention.qkv.bias
    mixed = torch.zeros_like(x)
    for i in range(len(x)):
        for head in range(heads):
            q_rows = slice(head * size, (head + 1) * size)
            q = weight[:width][q_rows] @ x[i] + bias[:width][q_rows]
            scores, values = [], []
            for j in range(len(context)):
                if seen(i, j):
                    k = weight[width : 2 * width][q_rows] @ context[j] + bias[width : 2 * width][q_rows]
                    values.append(weight[2 * width :][q_rows] @ context[j] + bias[2 * width :][q_rows])
                    scores.append(score(model, attention, q, k, head, distance(i, j)))
            weights = torch.softmax(torch.stack(scores), 0)
            mixed[i, q_rows] = sum(w * value for w, value in zip(weights, values, strict=True))
    x = block["attention"].norm(x + attention.output(mixed))
    return block["ffn"].norm(x + block["ffn"].function(x[None])[0])


def by_hand(model, given, memory=None):
    """All layers of a batch."""
    x, before = model.embeddings(given.inputs), 0 if memory is None else memory.length
    layers = [x]
    side = {"left_to_right": lambda i, j: j <= i, "right_to_left": lambda i, j: j >= i}.get(model.direction)
    positions = given.inputs.positions
    for layer in range(2):
        rows = []
        for row in range(len(x)):
            own = range(x.shape[1]) if positions is None else positions[row].tolist()
            places = [*range(-before, 0), *own]

            def seen(i, j, row=row):
                if j < before:
                    return bool(memory.real[row, j])
                alone = given.visible.pairs is None or bool(given.visible.pairs[row, 0, i, j - before])
                return alone and (side is None or side(i, j - before))

            context = x[row] if memory is None else torch.cat([memory.layers[layer][row], x[row]])
            distance = lambda i, j, places=places: places[before + i] - places[j]  # noqa: E731
            rows.append(layer_by_hand(model, layer, x[row], context, seen, distance))
        x = torch.stack(rows)
        layers.append(x)
    return layers


@torch.no_grad()
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_those_of_the_formula(kind, direction):
    model, given = encoder(**KINDS[kind], direction=direction), example(ids())
    for found, wanted in zip(model(given).layers, by_hand(model, given), strict=True):
        assert torch.allclose(found, wanted, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("direction", ["both", "left_to_right"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_with_a_memory_are_those_of_the_formula(kind, direction):
    model, given, memory = encoder(**KINDS[kind], direction=direction), example(ids()), remembered()
    found = model(given, memory)
    for layer, wanted in zip(found.layers, by_hand(model, given, memory), strict=True):
        assert torch.allclose(layer, wanted, atol=1e-12)
    for kept, layer, before in zip(found.carry.layers, found.layers, memory.layers, strict=False):
        assert torch.equal(kept, torch.cat([before, layer], 1)[:, -MEMORY:])


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_an_own_order_and_sight_pair_by_pair(kind):
    """Each row has its own positions, with gaps, and its own mask."""
    positions = torch.tensor([[3, 1, 7, 0, 2], [-1, 5, 4, 2, 9]])
    pairs = torch.rand(ROWS, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) > 0.4
    pairs |= torch.eye(LENGTH, dtype=torch.bool)
    model, given = encoder(**KINDS[kind]), example(ids(), positions=positions, pairs=pairs)
    for found, wanted in zip(model(given).layers, by_hand(model, given), strict=True):
        assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("direction", ["both", "left_to_right"])
@pytest.mark.parametrize("kind", ["projected", "learned"])
def test_gradients_are_those_of_the_formula(kind, direction, memory):
    model, given = encoder(**KINDS[kind], direction=direction).train(), example(ids(4))
    before = remembered() if memory else None
    probe = torch.randn(ROWS, 4, 12, generator=torch.Generator().manual_seed(4), dtype=torch.float64)

    def slopes(last):
        model.zero_grad()
        (last * probe).sum().backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters()}

    found, wanted = slopes(model(given, before).last), slopes(by_hand(model, given, before)[-1])
    for name, slope in wanted.items():
        assert torch.allclose(found[name], slope, atol=1e-10), name


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_padding_on_either_side_is_the_same(kind):
    """With relative positions alone; the content of padding changes nothing, to the bit."""
    model, text = encoder(**KINDS[kind]), ids()
    alone = model(example(text)).last
    for before, after in ((3, 0), (0, 3), (1, 2)):
        found = []
        for filler in (0, 9):
            rows = torch.nn.functional.pad(text, (before, after), value=filler)
            real = torch.nn.functional.pad(torch.ones_like(text, dtype=torch.bool), (before, after))
            found.append(model(example(rows, real)).last[:, before : before + LENGTH])
        assert torch.equal(*found)
        assert torch.allclose(found[0], alone, atol=1e-12)


# --- what cannot be


def test_a_memory_needs_a_direction_that_has_it():
    for direction in ("right_to_left", "two_way"):
        with pytest.raises(ConfigError, match=f"memory_length 4.*direction {direction}"):
            TINY.but(direction=direction, memory_length=4)
    with pytest.raises(ConfigError, match="same_length needs direction left_to_right"):
        TINY.but(memory_length=4, same_length=True)
    with pytest.raises(ConfigError, match=r"same_length needs .* memory_length above 0"):
        TINY.but(direction="left_to_right", same_length=True)


def test_an_lstm_has_no_memory_of_positions():
    with pytest.raises(ConfigError, match=r"memory_length.*model.kind transformer"):
        SYSTEMS["gpt"].but(**{"model.kind": "lstm", "model.memory_length": 4})


def test_a_table_of_distances_is_long_enough():
    system = SYSTEMS["transformer_xl_base"].but(**{"model.positions": "relative_learned"})
    assert system.but(**{"model.max_positions": 300}).model.memory_length == 150
    with pytest.raises(ConfigError, match=r"sequence_length 150 and model.memory_length 150 .*max_positions is 299"):
        system.but(**{"model.max_positions": 299})
    assert system.but(**{"model.max_positions": 100, "model.clamp_length": 99}).model.clamp_length == 99


def test_a_memory_of_other_rows_or_layers_is_refused():
    model, memory = encoder(positions="relative", memory_length=4), remembered()
    with pytest.raises(Unsupported, match="2 rows and 2 layers, the batch of 3 rows"):
        model(example(ids(rows=3)), memory)
    shallow = dataclasses.replace(memory, layers=memory.layers[:1])
    with pytest.raises(Unsupported, match="2 rows and 1 layers"):
        model(example(ids()), shallow)
