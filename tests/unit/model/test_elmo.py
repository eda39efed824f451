"""ELMo's encoder: characters against a slow reference, layers against equations, and what each direction sees."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example, Tokens, Unsupported
from lightning_modules.config import ConfigError
from lightning_modules.data import Vocabulary
from lightning_modules.data.text.characters import spelt
from lightning_modules.model import Recurrent
from lightning_modules.model.embeddings import CharacterEncoder, WordsByCharacters
from lightning_modules.model.recurrent import ProjectedLSTM
from lightning_modules.objectives import LanguageModel
from lightning_modules.systems import ELMO
from tests.conftest import make_draws
from tests.every import every

SMALL = Recurrent(
    num_layers=4, hidden_size=6, embedding_size=6, cell_size=10, cell_clip=3.0, projection_clip=3.0, residual=True,
    direction="two_way", characters=CharacterEncoder(size=4, filters=(3, 2, 5), highways=2), embedding_norm=False,
    embedding_dropout=0.0, dropout=0.0,
)  # fmt: skip
PIECES = Vocabulary.of(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "##s", "sat", "mat", "##ting", "x" * 60],
    "wordpiece",
)
ROWS = [[2, 5, 7, 8, 9, 6, 10, 3], [2, 12, 11, 6, 3, 0, 0, 0]]  # the cats sat a mat; a long word and a letter


def example(rows=ROWS) -> Example:
    ids = torch.tensor(rows)
    tokens = Tokens(ids, (ids < 5) & (ids != 1), ids > 0, sample=torch.arange(len(rows)))
    return Example.of(spelt(tokens, PIECES))


def encoder(**changes):
    torch.manual_seed(0)
    return SMALL.but(**changes).build(PIECES.size)


def slow_word(module: WordsByCharacters, row: list[int]) -> torch.Tensor:
    """Kim et al. 2016, equations 4 to 7, with the released code's order: maximum over places, then the rectifier."""
    table = module.embeddings.weight
    found = []
    for span, layer in enumerate(module.filters, 1):
        places = [torch.cat([table[c] for c in row[at : at + span]]) for at in range(50 - span + 1)]
        found += [
            max(float(place @ weight + bias) for place in places) for weight, bias in zip(layer.weight, layer.bias)
        ]
    y = torch.tensor([max(0.0, value) for value in found])
    for highway in module.highways:
        gate = 1 / (1 + torch.exp(-(highway.gate.weight @ y + highway.gate.bias)))
        y = gate * (highway.transform.weight @ y + highway.transform.bias).clamp(min=0) + (1 - gate) * y
    return module.projection.weight @ y + module.projection.bias


@torch.no_grad()
def test_words_of_characters_are_those_of_a_slow_reference():
    model, batch = encoder(), example()
    words = model.embeddings.word
    for parameter in words.parameters():
        parameter.normal_()
    rows = batch.inputs.characters.spelt
    expected = torch.stack([slow_word(words, row) for row in rows.tolist()])
    assert torch.allclose(words(rows), expected, atol=1e-4)
    short = rows[(rows == 260).sum(1) > 40]  # places of padding alone are left out, and change nothing
    assert torch.allclose(words(short), words(rows)[(rows == 260).sum(1) > 40], atol=1e-5)


@torch.no_grad()
def test_highways_begin_near_the_identity():
    torch.manual_seed(0)
    highway = encoder().embeddings.word.highways[0]
    x = torch.rand(50, 10)
    gate = torch.sigmoid(highway.gate(x))
    assert 0.05 < float(gate.mean()) < 0.25


def by_equations(layer: ProjectedLSTM, x, clips):
    """Sak et al. 2014, equations 1 to 7, by autograd."""
    output, cell = x.new_zeros(len(x), len(layer.projection)), x.new_zeros(len(x), layer.projection.shape[1])
    outputs = []
    for t in range(x.shape[1]):
        i, f, o, z = (x[:, t] @ layer.input.T + output @ layer.recurrent.T + layer.bias).chunk(4, 1)
        cell = (torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(z)).clamp(-clips[0], clips[0])
        output = ((torch.sigmoid(o) * torch.tanh(cell)) @ layer.projection.T).clamp(-clips[1], clips[1])
        outputs.append(output)
    return torch.stack(outputs, 1)


@every("clips", [(3.0, 3.0), (0.3, 0.2), (math.inf, 0.2), (0.3, math.inf)])
def test_a_layer_and_its_gradient_are_those_of_the_equations(clips):
    torch.manual_seed(0)
    layer = ProjectedLSTM(4, 9, 5, *(0.0 if math.isinf(clip) else clip for clip in clips)).double()
    x, weights = torch.randn(3, 7, 4, dtype=torch.double, requires_grad=True), torch.randn(3, 7, 5, dtype=torch.double)
    found = []
    for states in (layer.states(x)[0], by_equations(layer, x, clips)):
        gradients = torch.autograd.grad((states * weights).sum(), [x, *layer.parameters()])
        found.append([states, *gradients])
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(*found, strict=True))
    assert float(found[0][0].detach().abs().max()) <= clips[1]


@torch.no_grad()
def test_a_row_goes_on_where_its_real_positions_end():
    torch.manual_seed(0)
    layer, x = ProjectedLSTM(4, 9, 5, 3.0, 3.0), torch.randn(3, 7, 4)
    whole, _ = layer.states(x)
    states, after = layer.states(x[:, :4], tuple(layer.states(x)[1][n] * 0 for n in (0, 1)), torch.tensor([4, 2, 0]))
    assert torch.allclose(states[0], whole[0, :4], atol=1e-6)
    assert torch.allclose(after[0][1], whole[1, 1], atol=1e-6)
    assert not after[0][2].any()
    rest, _ = layer.states(x[:, 4:], after)
    assert torch.allclose(rest[0], whole[0, 4:], atol=1e-6)


@torch.no_grad()
def test_an_unclipped_layer_is_torchs_and_the_same_numbers():
    clipped, plain = encoder(cell_clip=1e6), encoder(cell_clip=0.0, projection_clip=0.0)
    plain.embeddings.load_state_dict(clipped.embeddings.state_dict())
    for ours, theirs in zip(clipped.stacks, plain.stacks, strict=True):
        for layer, kernel in zip(ours, theirs, strict=True):
            assert isinstance(kernel, torch.nn.LSTM)
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
                ours = {"weight_ih_l0": layer.input, "weight_hh_l0": layer.recurrent}.get(name, layer.bias)
                i, f, o, z = ours.chunk(4)
                getattr(kernel, name).copy_(torch.cat([i, f, z, o]))
            kernel.bias_hh_l0.zero_()
            kernel.weight_hr_l0.copy_(layer.projection)
    batch = example()
    assert torch.allclose(clipped(batch).last, plain(batch).last, atol=1e-6)


@torch.no_grad()
def test_all_pieces_of_a_word_have_its_state_and_padding_has_none():
    batch = example()
    layers = encoder()(batch).layers
    assert [layer.shape for layer in layers] == [(2, 8, 12)] * 3
    for layer in layers:
        assert torch.equal(layer[0, 2], layer[0, 3]), "cat ##s"
        assert not torch.equal(layer[0, 1], layer[0, 2])
        assert not layer[1, 5:].any()
    assert torch.equal(layers[0][..., :6], layers[0][..., 6:]), "layer 0 is the word twice"
    alone = encoder()(example([ROWS[1][:5]])).layers
    assert all(torch.allclose(one[1, :5], other[0], atol=1e-6) for one, other in zip(layers, alone, strict=True))


def test_no_gradient_of_a_direction_reaches_what_the_other_reads():
    """Each half of a state depends on its own word and one side, in every layer; and so on no weight of the other."""
    model, batch = encoder(), example()
    vectors = model.embeddings.word.of
    kept = []

    def noted(words, rows):
        kept.append(vectors(words, rows).detach().requires_grad_())
        return kept[-1]

    model.embeddings.word.of = noted
    layers = model(batch).layers
    words = {1: 1, 2: 2, 4: 3, 5: 4}  # position -> word of the row
    for layer in layers[1:]:
        for position, word in words.items():
            for half, hidden in ((slice(0, 6), slice(word + 1, None)), (slice(6, 12), slice(0, word))):
                (gradient,) = torch.autograd.grad(layer[0, position, half].sum(), kept[-1], retain_graph=True)
                assert not gradient[0, hidden].any()
                assert gradient[0, word].any()
                assert not gradient[1].any()
    forward = torch.autograd.grad(layers[-1][..., :6].sum(), [*model.stacks[1].parameters()], allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in forward)


def test_each_word_predicts_the_one_beside_it_and_rare_ones_are_one():
    lm, batch = LanguageModel(direction="two_way", units="words"), example()
    asked = lm.mask_inputs(batch, make_draws(2), PIECES).targets
    # the cats sat a mat: cats is no piece; of the second row the long word is one, with ##ting another
    assert asked["next_word"].where.tolist() == [0, 1, 2, 4, 5, 8, 9]
    assert asked["next_word"].ids.tolist() == [5, 1, 9, 6, 10, 1, 6]
    assert asked["previous_word"].where.tolist() == [2, 4, 5, 6, 7, 11, 12]
    assert asked["previous_word"].ids.tolist() == [5, 1, 9, 6, 10, 1, 6]


def test_what_it_cannot_read_is_refused():
    with pytest.raises(Unsupported, match="reads words by their characters, and the batch has none"):
        encoder()(replace(example(), inputs=replace(example().inputs, characters=None)))
    empty = example([[2, 3, 0]])
    assert encoder()(empty).last.isfinite().all()


@every(
    "changes, said",
    [
        ({"model.cell_size": None}, "cell_clip 3 is of projected layers: set cell_size above 512"),
        ({"model.cell_size": 512}, "cell_size 512 is projected to 512 units"),
        ({"model.segment_types": 2}, "segment_types 2 is of a table"),
        ({"model.word_type_dropout": 0.1}, "word_type_dropout 0.1 is of a table"),
        ({"objectives.lm.units": "pieces"}, "objectives.lm needs table of word embeddings"),
        ({"model.characters": None}, "objectives.lm needs characters of words"),
        ({"objectives.lm": None, "objectives.mlm": {}}, "objectives.mlm needs table of word embeddings"),
        ({"model.kind": "transformer"}, "objectives.lm needs characters of words"),
        ({"objectives.lm.cutoffs": [100]}, "cutoffs"),
        (
            {"format.kind": "stream", "format.frame": "document_ends", "format.break_mode": "none"},
            "format.kind stream cuts words where a row ends",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, said):
    with pytest.raises(ConfigError, match=said):
        ELMO.but(**changes)


@every("size, cells, highways, count", [
    (128, 1024, 1, 13_593_296), (256, 2048, 1, 28_027_728), (512, 4096, 2, 93_600_848),
])  # fmt: skip
def test_the_released_sizes_have_their_parameters(size, cells, highways, count):
    """261 characters; without the output layer, as printed."""
    sizes = {"model.embedding_size": size, "model.hidden_size": size, "model.cell_size": cells}
    parts = ELMO.but(**sizes, **{"model.characters.highways": highways}).parameters_by_part()
    assert parts["embeddings"] + parts["stacks"] == count


def test_flops_are_those_of_torch_on_words_of_one_piece():
    ids = torch.tensor([[2, *range(5, 8), 9, 10, 3]])
    vocabulary = Vocabulary.of([*PIECES.pieces[:8], "x" * 48, "sat", "mat"], "wordpiece")
    ids[0, 3] = 8  # the longest word, so that all places of filters are counted
    tokens = Tokens(ids, ids < 5, ids > 0, sample=torch.arange(1))
    with FlopCounterMode(display=False) as counter:
        encoder()(Example.of(spelt(tokens, vocabulary)))
    assert counter.get_total_flops() == SMALL.flops_per_sequence(7)
