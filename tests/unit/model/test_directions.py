"""Models that read one way: what they see, what they are asked, and how both ways are joined above the last layer."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Visibility
from lightning_modules.config import ConfigError
from lightning_modules.data import open_store
from lightning_modules.data.baselines import bigram
from lightning_modules.data.baselines.bigram import Bigrams
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel, MaskedLM
from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every

TINY = Transformer(num_layers=2, hidden_size=32, num_heads=2, max_positions=32, init_std=0.2)
WAYS = ("left_to_right", "right_to_left", "two_way")
POSITIONS = ("learned", "linear_bias", "sided_linear_bias", "rotary")
HERE = 7


def encoder(**changes):
    torch.manual_seed(0)
    return TINY.but(**changes).build(50).eval()


def changed_from(first, last):
    """Two batches that differ in the positions from ``first`` to ``last``."""
    tokens, other = make_tokens(padding=3), make_tokens(padding=3)
    other.ids[:, first:last] = (other.ids[:, first:last] + 11 - 5) % 45 + 5
    return tokens, other


@every("positions", POSITIONS)
@every("norm", ["post", "pre"])
@every("direction", WAYS)
def test_what_is_hidden_changes_nothing(direction, norm, positions):
    """A change on the hidden side leaves a state as it was, to the bit; one on the open side does not."""
    model = encoder(direction=direction, positions=positions, norm=norm, num_layers=4)
    for hidden, (first, last) in (("right", (HERE + 1, 12)), ("left", (1, HERE))):
        with torch.no_grad():
            one, two = (model(Example.of(tokens)).last[:, HERE] for tokens in changed_from(first, last))
        halves = {"left_to_right": ("right",), "right_to_left": ("left",)}.get(direction, ("right", "left"))
        for side, (a, b) in zip(halves, zip(one.chunk(len(halves), -1), two.chunk(len(halves), -1)), strict=True):
            assert torch.equal(a, b) == (side == hidden)


@every("direction", WAYS)
def test_a_prediction_knows_nothing_of_its_answer(direction):
    """The answer and all beyond it changed, the logits are what they were; so with the whole objective."""
    objective, model = LanguageModel(direction=direction), encoder(direction=direction)
    heads = objective.heads(TINY.but(direction=direction).size(50))
    for name in objective.targets:
        step = 1 if name == "next" else -1
        first, last = (HERE + 1, 12) if step == 1 else (1, HERE)
        found = []
        for tokens in changed_from(first, last):
            example = objective.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary())
            where = example.targets[name].where % 16 == HERE
            assert torch.equal(example.targets[name].ids[where], tokens.ids[:, HERE + step])
            with torch.no_grad():
                found.append(objective.logits(heads, model(example), example, name)[where])
        assert torch.equal(*found)


def test_neighbours_are_asked_for_and_special_tokens_are_not():
    tokens = make_tokens(rows=2, length=6, padding=2)  # row 1: [CLS] a b [SEP] and padding
    example = LanguageModel(direction="two_way").mask_inputs(Example.of(tokens), make_draws(2), make_vocabulary())
    following, before = example.targets["next"], example.targets["previous"]
    assert following.where.tolist() == [0, 1, 2, 3, 6, 7]
    assert before.where.tolist() == [2, 3, 4, 5, 8, 9]
    words = [*tokens.ids[0, 1:5].tolist(), *tokens.ids[1, 1:3].tolist()]
    assert following.ids.tolist() == before.ids.tolist() == words
    assert torch.equal(example.inputs.ids, tokens.ids)
    assert not example.visible.causal, "each stack restricts itself"
    one_way = LanguageModel().mask_inputs(Example.of(tokens), make_draws(2), make_vocabulary())
    assert one_way.visible.causal
    assert not one_way.visible.anticausal


def test_two_ways_are_two_models_side_by_side():
    """With the same weights, the halves of a state are those of a model each way."""
    both = encoder(direction="two_way", num_layers=4)
    tokens = make_tokens(padding=3)
    with torch.no_grad():
        states = both(Example.of(tokens))
        assert len(states.layers) == 3
        for half, way in enumerate(("rightward", "leftward")):
            alone = encoder(direction=WAYS[half], num_layers=2)
            alone.embeddings.load_state_dict(both.embeddings.state_dict())
            alone.load_state_dict(getattr(both, way).state_dict(), strict=False)
            assert torch.equal(alone(Example.of(tokens)).last, states.last.chunk(2, -1)[half])


@every("direction", WAYS)
def test_depth_costs_the_same_whichever_way(direction):
    """Two stacks have half of the layers each: blocks, and their work, are those of one."""
    one, other = TINY.but(num_layers=4), TINY.but(num_layers=4, direction=direction)
    blocks = [sum(p.numel() for n, p in s.build(50).named_parameters() if "blocks" in n) for s in (one, other)]
    assert blocks[0] == blocks[1]
    assert one.flops_per_sequence(16) == other.flops_per_sequence(16)
    assert other.width == 32 * (2 if direction == "two_way" else 1)


def test_a_sentence_head_may_read_from_the_right():
    lm = {"objectives.mlm": None, "objectives.lm.direction": "right_to_left", "model.direction": "right_to_left"}
    system = SYSTEMS["bert_base"].but(**lm, **{"objectives.sentence": {}, "format.kind": "segment_pairs"})
    assert [name for name, _ in system.objectives.present()] == ["lm", "sentence"]


@every("direction", WAYS)
def test_the_neighbours_of_a_one_way_model_are_on_one_side(direction):
    """The next token is asked of what stands left of it alone, the previous one of what stands right of it."""
    tokens = make_tokens(rows=1, length=6)
    a, b, c, d = tokens.ids[0, 1:5].tolist()
    example = LanguageModel(direction=direction).mask_inputs(Example.of(tokens), make_draws(1), make_vocabulary())
    wanted = {"next": ([a, b, c, d], [-1, a, b, c], [-1] * 4), "previous": ([a, b, c, d], [-1] * 4, [b, c, d, -1])}
    for name in LanguageModel(direction=direction).targets:
        assert tuple(part.tolist() for part in bigram.seen(example, name, mask=4)) == wanted[name]


@pytest.mark.parametrize("direction", WAYS[:2])
def test_a_masked_baseline_loses_the_side_that_the_model_loses(direction):
    tokens = make_tokens(rows=1, length=6)
    example = MaskedLM().mask_inputs(Example.of(tokens), make_draws(1), make_vocabulary())
    word, left, right = bigram.seen(example, "mlm", mask=4)
    example.visible = Visibility().toward(direction)
    same, *sides = bigram.seen(example, "mlm", mask=4)
    assert same.tolist() == word.tolist()
    kept, lost = (0, 1) if direction == "left_to_right" else (1, 0)
    assert sides[kept].tolist() == (left, right)[kept].tolist()
    assert set(sides[lost].tolist()) == {-1}


@pytest.mark.parametrize("sides", [(True, False), (False, True)])
def test_weights_are_fitted_for_the_side_that_is_used(tiny, monkeypatch, sides):
    """No other weights of one side and of frequencies make the text that was left out more probable."""
    monkeypatch.setattr(bigram, "STRETCH", 64)
    store = open_store(tiny.data, "train")
    model, used = bigram.count(store, sides), sides.index(True)
    assert model.weights[1 - used] == 0
    assert sum(model.weights) == pytest.approx(1)
    ids = store.ids.astype(int)
    places = [p for p in range(1, len(ids) - 1) if p // 64 % 20 == 10]
    inner = [p for p in places if not {p, p + 1} & set(store.document_starts.tolist())]
    around = [ids[inner] if shift == 0 else ids[[p + shift for p in inner]] for shift in (-1, 0, 1)]
    shown = [side if is_used else 0 * side - 1 for side, is_used in zip((around[0], around[2]), sides, strict=True)]

    def loss(weights):
        chances = Bigrams(model.pairs, model.tokens, weights).probability(around[1], *shown)
        return -np.log(np.maximum(chances, 1e-9)).mean()

    shares = np.arange(0.1, 1, 0.1)
    others = [(share, 0, 1 - share) if used == 0 else (0, share, 1 - share) for share in shares]
    assert all(loss(model.weights) <= loss(other) + 1e-3 for other in others)


@pytest.mark.parametrize("direction", WAYS)
def test_a_training_measures_by_names_of_its_own(tiny, tmp_path, direction):
    system = tiny.but(
        **{"objectives.mlm": None, "objectives.lm.direction": direction, "model.direction": direction,
           "model.num_layers": 2}
    )  # fmt: skip
    fitted = fit(system, 0, tmp_path)
    names = {"next_", "previous_"} if direction == "two_way" else {"next_" if direction == WAYS[0] else "previous_"}
    kinds = ("loss", "accuracy", "bigram_loss", "unigram_loss")
    heldout = {name for name in fitted.metrics if name.startswith("heldout.")}
    assert heldout == {f"heldout.{name}{kind}" for name in names for kind in kinds} | {"heldout.plateau"}
    for name in names:
        assert fitted.metrics[f"heldout.{name}bigram_loss"] < fitted.metrics[f"heldout.{name}unigram_loss"]


def test_a_side_taken_away_at_test_time_only(tiny, tmp_path):
    """The same training, weights and all; only what held-out text shows is less."""
    found = {}
    for direction in ("both", "left_to_right", "right_to_left"):
        system = tiny.but(**{"evaluation.direction": direction, "model.positions": "sided_linear_bias"})
        found[direction] = fit(system, 0, tmp_path / direction)
        example = next(iter(system.data_module(0).heldout))
        assert (example.visible.causal, example.visible.anticausal) == (
            direction == "left_to_right", direction == "right_to_left"
        )  # fmt: skip
    assert len({tuple(one.curve["train.mlm"]) for one in found.values()}) == 1
    assert len({one.metrics["heldout.loss"] for one in found.values()}) == 3
    assert len({one.metrics["heldout.bigram_loss"] for one in found.values()}) == 3


def test_stacks_share_layers_within_themselves():
    """Layers that share parameters are those of one stack, and groups divide one stack."""
    own, shared = (TINY.but(num_layers=4, direction="two_way", sharing=kind).build(50) for kind in ("none", "all"))
    counts = [sum(p.numel() for n, p in one.named_parameters() if "blocks" in n) for one in (own, shared)]
    assert counts[0] == 2 * counts[1]
    assert TINY.but(num_layers=4, direction="two_way", sharing="all", sharing_groups=2).resolved().sharing == "none"
    with pytest.raises(ConfigError, match="3 sharing_groups cannot be made of 2 layers"):
        TINY.but(num_layers=4, direction="two_way", sharing="all", sharing_groups=3)
