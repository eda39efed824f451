"""A last layer at the positions that are read equals one at all positions: losses and every parameter's gradient."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_modules.batch import Example, Target, Visibility
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel, MaskedLM, Masking, Objectives, SentencePair
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every

TINY = Transformer(num_layers=3, hidden_size=32, num_heads=4, ffn_size=48, max_positions=32, init_std=0.2).but(
    embedding_dropout=0.0, dropout=0.0, attention_dropout=0.0
)
POSITIONS = (
    "learned", "sinusoidal", "linear_bias", "sided_linear_bias", "rotary", "relative", "relative_learned", "none"
)  # fmt: skip
MASKED, PAIRS = Objectives(mlm=MaskedLM()), Objectives(mlm=MaskedLM(), sentence=SentencePair())


def networks(settings, objectives):
    torch.manual_seed(0)
    return nn.ModuleDict({"backbone": settings.build(50), "heads": objectives.heads(settings.size(50))})


def corrupted(objectives, padding=0, **changes):
    tokens = dataclasses.replace(make_tokens(padding=padding), **changes)
    example = objectives.mask_inputs(Example.of(tokens), make_draws(), make_vocabulary())
    assert example.output_positions is None
    return example


def straightforward(objectives, heads, encoded, example):
    """The losses from all logits at once, in plain operations."""
    terms = {}
    for name, objective in objectives.present():
        for target in objective.targets:
            given = (target,) if isinstance(objective, LanguageModel) else ()
            logits = objective.logits(heads[name], encoded, example, *given)
            terms[target] = F.cross_entropy(logits, example.targets[target].ids, reduction="sum")
    return terms


def stepped(model, objectives, example, loss):
    """Losses and gradients of a step."""
    model.zero_grad()
    terms = loss(model["heads"], model["backbone"](example), example)
    sum(terms.values()).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {name: total.item() for name, total in terms.items()}, gradients


def assert_same_step(settings, objectives, example, read=None, multiple=1):
    """All positions and plain losses against the positions that are read and the losses in use."""
    model = networks(settings, objectives)
    wanted, slopes = stepped(model, objectives, example, lambda *given: straightforward(objectives, *given))
    fewer = example.read_at_targets() if read is None else dataclasses.replace(example, output_positions=read)
    assert fewer.output_positions is not None, "nothing is spared, so nothing is tested"
    fewer = fewer.widened(multiple, 32)
    found, gradients = stepped(
        model, objectives, fewer, lambda *given: {k: v[0] for k, v in objectives.loss(*given).items()}
    )
    assert found == pytest.approx(wanted, rel=1e-5)
    assert gradients.keys() == slopes.keys()
    largest = max(float(slope.norm()) for slope in slopes.values())
    for name, slope in slopes.items():
        assert (gradients[name] - slope).norm() <= 1e-5 * slope.norm() + 1e-8 * largest, name


@every("padding", [0, 5])
@every("positions", POSITIONS)
def test_positions_norms_padding_and_rounded_sizes(positions, padding):
    example, settings = corrupted(MASKED, padding), TINY.but(positions=positions)
    for norm in ("post", "pre"):
        assert_same_step(settings.but(norm=norm), MASKED, example)
    rounded = example.read_at_targets().widened(9, 32)
    assert rounded.inputs.ids.shape[1] > example.inputs.ids.shape[1]
    assert rounded.inputs.ids.shape[1] % 9 == rounded.output_positions.shape[1] % 9 == 0
    assert_same_step(settings, MASKED, example, multiple=9)


@every("norm", ["post", "pre"])
@every("knobs", [{"sharing": "all"}, {"sharing": "ffn"}, {"sharing": "attention"}, {"num_layers": 1},
                                   {"sharing": "all", "embedding_size": 16}, {"rotary_size": 4}])  # fmt: skip
def test_shared_narrow_and_single_layers(knobs, norm):
    assert_same_step(TINY.but(positions="rotary", norm=norm, **knobs), MASKED, corrupted(MASKED, 3))


@every("positions", ["learned", "rotary", "sided_linear_bias"])
def test_pairs_read_the_first_position_too(positions):
    assert_same_step(TINY.but(positions=positions), PAIRS, corrupted(PAIRS, 5))


@every("direction", ["left_to_right", "right_to_left", "two_way"])
@every("positions", ["learned", "rotary", "sided_linear_bias", "relative"])
def test_directions(direction, positions):
    """A language model reads nearly all positions, so here it is told to read them all one by one."""
    objectives = Objectives(lm=LanguageModel(direction=direction))
    settings = TINY.but(direction=direction, positions=positions, num_layers=4)
    backwards = torch.arange(4 * 16).view(4, 16).flip(1)
    assert_same_step(settings, objectives, corrupted(objectives, 3), read=backwards)


def test_positions_of_an_own_order_and_sight_pair_by_pair():
    example = corrupted(MASKED, positions=torch.stack([torch.randperm(16) for _ in range(4)]))
    example.visible = Visibility(pairs=torch.rand(4, 1, 16, 16) > 0.3, real=example.inputs.real)
    for positions in ("rotary", "linear_bias", "relative_learned"):
        assert_same_step(TINY.but(positions=positions, query_biases="layer"), MASKED, example)


@every("rows", [[0, 1, 3], []])
def test_rows_without_predictions(rows):
    """The masks of a batch may be capped to nothing; its loss is 0 and so is every gradient."""
    example = corrupted(MASKED)
    target = example.targets["mlm"]
    kept = torch.isin(target.where // 16, torch.tensor(rows, dtype=torch.long))
    example.targets["mlm"] = Target(target.where[kept], target.ids[kept])
    assert_same_step(TINY, MASKED, example)


def test_full_rows_where_most_positions_are_read():
    every = Objectives(mlm=MaskedLM(masking=Masking(rate=1.0)))
    assert corrupted(every).read_at_targets().output_positions is None


def test_a_position_that_was_not_read_has_no_state():
    example = corrupted(PAIRS, 5).read_at_targets()
    last = networks(TINY, PAIRS)["backbone"](example).last.flatten(0, 1)
    where = torch.cat([target.where for target in example.targets.values()])
    read = torch.isin(torch.arange(64), where)
    assert torch.equal(last.isfinite().all(1), read)
    assert torch.equal(last.isnan().all(1), ~read)


class Everywhere(MaskedLM):
    """A loss that reads more than its targets and does not say so."""

    reads_targets_only = False

    def loss(self, heads, encoded, example):
        return {"mlm": encoded.last.square().sum()}


@pytest.mark.parametrize("says", [True, False])
def test_objectives_say_what_they_read(says):
    """One that reads more gets all states; had it said otherwise, its loss would be no number."""
    objectives = Objectives(mlm=Everywhere(), sentence=SentencePair())
    assert not objectives.read_targets_only
    assert PAIRS.read_targets_only
    example = corrupted(objectives)
    model = networks(TINY, objectives)
    encoded = model["backbone"](example if says else example.read_at_targets())
    assert objectives.loss(model["heads"], encoded, example)["mlm"][0].isfinite() == says


def test_training_batches_say_what_is_read_and_held_out_ones_do_not(text_file):
    system = SYSTEMS["bert_base"].but(
        **{
            "data.corpora": [f"text:{text_file}"], "data.tokenizer.vocab_size": 64, "format.sequence_length": 32,
            "training.batch_size": 8, "training.steps": 2, "model.num_layers": 1, "model.hidden_size": 16,
        }
    )  # fmt: skip
    data = system.data_module(0)
    data.prepare_data()
    trained, heldout = next(iter(data.train_dataloader())), next(iter(data.heldout))
    where = torch.cat([trained.targets[name].where for name in ("mlm", "sentence")])
    assert torch.isin(where, trained.output_positions).all()
    assert trained.output_positions.shape[1] < 16
    assert heldout.output_positions is None
