"""What every system and every objective on disk promises."""

import json
import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules import languages
from lightning_modules.batch import QUERY_STREAM, Example, Size
from lightning_modules.config import ConfigError
from lightning_modules.objectives import MaskedLM, Masking, Objectives, SentencePair, SpanBoundary
from lightning_modules.objectives.distillation import Teacher
from lightning_modules.objectives.masking import Spans
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every
from tests.translations import pairs

SIZE = Size(hidden_size=16, embedding_size=16, vocab_size=50)
OBJECTIVES = Objectives.kinds()
SHRUNK = {
    "model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "data.tokenizer.vocab_size": 64,
    "format.sequence_length": 16,
}  # fmt: skip


def shrunk(name):
    """A system of one layer of 16 units."""
    if SYSTEMS[name].model.kind == "lstm_encoder_decoder":
        own = {"model.embedding_size": None}
        return SYSTEMS[name].but(**{path: SHRUNK[path] for path in SHRUNK if path != "model.num_heads"}, **own)
    if SYSTEMS[name].model.kind == "lstm":
        own = {"model.embedding_size": None, "model.output_size": None}
        if SYSTEMS[name].model.characters is not None:
            own |= {"model.num_layers": 2, "model.cell_size": 24, "objectives.lm.negatives": 8}
            return SYSTEMS[name].but(**{path: SHRUNK[path] for path in SHRUNK if path != "model.num_heads"} | own)
        return SYSTEMS[name].but(**{path: SHRUNK[path] for path in SHRUNK if path != "model.num_heads"}, **own)
    chosen = SYSTEMS[name].training.start_layers  # of a deeper model
    return SYSTEMS[name].but(**SHRUNK | ({"training.start_layers": chosen[:1]} if chosen else {}))


@pytest.mark.parametrize("name", SYSTEMS)
class TestSystem:
    def test_it_is_named_sourced_and_survives_a_round_trip(self, name):
        system = SYSTEMS[name]
        assert system.name == name
        assert system.paper
        assert System.read(json.loads(json.dumps(system.to_dict()))) == system

    def test_every_parameter_gets_a_gradient(self, name):
        system = shrunk(name)
        module = system.build(seed=0)
        tokens = pairs([16] * 64, [16] * 64) if system.format.sides > 1 else make_tokens(64, 16, 64)
        if tokens.source is None:
            tokens.tables["segment"][:, 8:] = int(getattr(system.model, "segment_relation", False))
            tokens.tables["language"] = torch.arange(64)[:, None].expand(64, 16) % len(
                languages.of(system.model) or "-"
            )
        example = system.collate(tokens, make_draws(64), make_vocabulary(64))
        encoded = module.backbone(example)
        if system.objectives.distilled:
            other = system.parents()["teacher"].system.build(seed=1)
            encoded.teacher = Teacher(other.backbone, other.heads)(example)
        terms = system.objectives.loss(module.heads, encoded, example)
        total = sum(weight * loss / count for loss, count, weight in terms.values())
        assert total.isfinite()
        total.backward()
        missing = [n for n, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert not missing

    def test_counts_agree_with_what_is_built(self, name):
        system = shrunk(name)
        built = sum(parameter.numel() for parameter in system.build(seed=0).parameters())
        assert system.parameters() == built

    def test_a_seed_determines_the_weights(self, name):
        system = shrunk(name)
        one, same, other = (system.build(seed).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(one[key], same[key]) for key in one)
        assert any(not torch.equal(one[key], other[key]) for key in one)


# millions: Table 9 of RoBERTa and the released models of Wettig et al.; section 3 of BERT; Table 1 of Turc et al.;
# Table 1 of ALBERT, with 59 as in its first version (60 in the last), and whose 235 for the largest is at odds with
# its own Table 12 (225) and the released model (223)
PUBLISHED = {
    "roberta_base": 125, "roberta_large": 355, "mask15_large": 354, "bert_base": 110, "bert_large": 340,
    "bert_tiny": 4.4, "bert_mini": 11.3, "bert_small": 29.1, "bert_medium": 41.7,
    "spanbert_base": 110, "spanbert_large": 340,  # released in BERT's cased sizes
    "albert_base": 12, "albert_large": 18, "albert_xlarge": 59, "albert_xxlarge": 235,
    "transformer_xl_base": 151,  # with an adaptive softmax, which has 1,233 parameters more than the plain one
    "elmo": 144.90,  # 93.6 as printed, and an output layer over 100,000 words
    "awd_lstm": 33.6,  # on WikiText-2; the paper prints 33, cut off from 33,556,078
    "ulmfit": 44.27,  # of the released sizes by hand, since no count is published; see test_hidden_layer.py
    "xlm": 249.1,  # of the released shape by hand, since no count is at hand
    "transformer_base": 63.1, "transformer_big": 214.2,  # with 37,000 pieces; the paper prints 65 and 213
    "attention_lstm": 89.06,  # of the sizes by hand, since no count is published: 37 words, 32.03, 18.03 and 2
    "xlnet_base": 117,  # of the released model; the paper calls it as large as BERT-base
    "xlnet_large": 360,  # of the released model, 360,268,800 and a bias of words; the paper says as BERT-large (340)
    "distilbert": 67.0,  # of the released model, 66,985,530; the paper prints 66, without the head
    "gpt": 117, "gpt2": 124.4, "gpt2_medium": 354.8,  # GPT-2's paper prints 117 and 345, an erratum
}  # fmt: skip


@every("name", SYSTEMS)
def test_published_parameter_counts(name):
    """Within 1.5 %, or half of the last digit that is published."""
    published = PUBLISHED[name]
    tolerance = 0.06 if name == "albert_xxlarge" else 0.015
    counted = SYSTEMS[name].parameters() / 1e6
    assert abs(counted - published) <= max(tolerance * published, 0.5 if isinstance(published, int) else 0.05)


@every(
    "layers, width, released",
    [(12, 768, 124_439_808), (24, 1024, 354_823_168), (36, 1280, 774_030_080), (48, 1600, 1_557_611_200)],
)
def test_gpt2_has_as_many_parameters_as_the_released_models(layers, width, released):
    assert SYSTEMS["gpt2"].but(**{"model.num_layers": layers, "model.hidden_size": width}).parameters() == released


@every("direction", ["left_to_right", "right_to_left", "two_way"])
def test_the_flop_formula_holds_for_language_models(direction):
    """Whatever is hidden, the whole square of scores is computed."""
    system = SYSTEMS["roberta_base"].but(
        **SHRUNK | {"model.hidden_size": 64, "model.num_layers": 2, "format.sequence_length": 40,
                    "training.batch_size": 32, "objectives.mlm": None, "objectives.lm.direction": direction,
                    "model.direction": direction}
    )  # fmt: skip
    example = system.objectives.mask_inputs(Example.of(make_tokens(32, 40, 64)), make_draws(32), make_vocabulary(64))
    module = system.build(seed=0)
    with FlopCounterMode(display=False) as counter:
        terms = system.objectives.loss(module.heads, module.backbone(example), example)
        sum(total / count for total, count, _ in terms.values()).backward()
    assert math.isclose(system.flops_per_step(), counter.get_total_flops(), rel_tol=0.01)


@every(
    "changes",
    [
        {"objectives.mlm.masking.rate": 0.15},
        {"objectives.mlm.masking.rate": 0.4, "objectives.mlm.masking.predicted": 0.1},
        {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"},
        {"objectives.mlm": None, "objectives.lm.direction": "two_way", "model.direction": "two_way"},
    ],
)
def test_the_stated_number_of_predictions_is_that_of_a_step(changes):
    system = SYSTEMS["roberta_base"].but(
        **SHRUNK | {"model.num_layers": 2, "format.sequence_length": 40, "training.batch_size": 32} | changes
    )
    example = system.objectives.mask_inputs(Example.of(make_tokens(32, 40, 64)), make_draws(32), make_vocabulary(64))
    asked = sum(target.count() for target in example.targets.values())
    assert system.predictions_per_step() == pytest.approx(asked, rel=0.02)
    assert system.predictions_per_token() == pytest.approx(asked / (32 * 40), rel=0.02)


def corrupted(objective, tokens):
    """An example with the objective's targets, if need be after words were hidden in spans."""
    example = Example.of(tokens)
    if not objective.masks_inputs:
        example = MaskedLM(masking=Masking(units=Spans())).mask_inputs(example, make_draws(), make_vocabulary())
    return objective.mask_inputs(example, make_draws(), make_vocabulary())


@pytest.mark.parametrize("name", OBJECTIVES)
class TestObjective:
    @pytest.fixture
    def objective(self, name):
        return OBJECTIVES[name]()

    def test_corruption_repeats_and_targets_are_real_positions(self, name, objective):
        tokens = make_tokens(padding=4)
        made = [corrupted(objective, tokens) for _ in range(2)]
        for target, again in zip(made[0].targets.values(), made[1].targets.values(), strict=True):
            assert torch.equal(target.where, again.where)
            assert torch.equal(target.ids, again.ids)
            assert tokens.real.reshape(-1)[target.where].all()
        assert torch.equal(made[0].inputs.ids, made[1].inputs.ids)

    def test_losses_are_finite_sums_with_counts(self, name, objective):
        from lightning_modules.model import Transformer

        example = corrupted(objective, make_tokens())
        settings = Transformer(num_layers=1, hidden_size=16, num_heads=2, max_positions=16)
        settings = settings.but(query_stream=QUERY_STREAM in objective.needs)
        backbone, heads = settings.build(50), objective.heads(SIZE)
        encoded = backbone(example)
        if objective.borrows:
            words = MaskedLM().heads(SIZE)
            heads = nn.ModuleDict({**words, **heads})
            encoded.teacher = Teacher(backbone, nn.ModuleDict({"mlm": words}))(example)
        losses, counts = objective.loss(heads, encoded, example), objective.counts(example)
        assert losses.keys() == counts.keys()
        assert all(total.isfinite() for total in losses.values())
        assert all(count > 0 for count in counts.values())
        for total, count in objective.measure(heads, encoded, example).values():
            assert total.isfinite()
            assert float(count) > 0


@every("objective", [MaskedLM(), SentencePair(), SpanBoundary()])
def test_matrices_of_heads_start_as_those_of_bert(objective):
    """From a normal distribution of 0.02 cut at two standard deviations, which leaves 0.88 of its spread."""
    torch.manual_seed(0)
    heads = objective.heads(Size(hidden_size=128, embedding_size=128, vocab_size=50))
    drawn = [parameter.detach() for parameter in heads.parameters() if parameter.ndim == 2]
    assert drawn
    for matrix in drawn:
        assert matrix.abs().max() <= 0.04
        assert matrix.mean() == pytest.approx(0.0, abs=0.004)
        assert matrix.std() == pytest.approx(0.88 * 0.02, rel=0.1)


def test_exactly_one_objective_masks_inputs():
    with pytest.raises(ConfigError, match="exactly one objective must mask inputs"):
        SYSTEMS["roberta_base"].but(**{"objectives.mlm": None})
