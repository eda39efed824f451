"""How a model is measured on held-out text is said by the objective that masks its inputs."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from ablations.claims import judging
from ablations.claims.outcomes import AS_CLAIMED, OPEN, Reason
from ablations.measurements.measurements import Measurements
from lightning_modules import words
from lightning_modules.batch import QUERY_STREAM, Example
from lightning_modules.config import ConfigError, identity, knob
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.model import Transformer
from lightning_modules.objectives import MaskedLM, Objective, Objectives
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming
from tests.unit.synthetic import losses, make_cell, make_claim, make_grid


class Silent(Objective):
    """An objective as a user adds it: it masks inputs and has a head, a loss and measures of a target of its own."""

    masks_inputs: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = ("plm",)

    def heads(self, size):
        return MaskedLM().heads(size)

    def mask_inputs(self, example, draws, vocabulary):
        example = MaskedLM().mask_inputs(example, draws, vocabulary)
        return replace(example, targets={"plm" if name == "mlm" else name: t for name, t in example.targets.items()})

    def loss(self, heads, encoded, example):
        return {"plm": MaskedLM().loss(heads, encoded, _asked(example))["mlm"]}

    def measure(self, heads, encoded, example):
        return MaskedLM().measure(heads, encoded, _asked(example))

    def flops_per_sequence(self, length, size, special=2):
        return MaskedLM().flops_per_sequence(length, size, special)


def _asked(example):
    return replace(example, targets={"mlm": next(iter(example.targets.values()))})


class Measured(Silent):
    """The same, measured with half of the words hidden."""

    targets: ClassVar[tuple[str, ...]] = ("plm", "mlm")

    def held_out(self, usual):
        return usual.but(**{"masking.rate": 0.5})


class Elsewhere(Silent):
    """The same, measured at a target that it knows nothing of."""

    def held_out(self, usual):
        return usual


class Replacing(Silent):
    """The same, measured as it is trained: with a share of the words replaced."""

    targets: ClassVar[tuple[str, ...]] = ("plm", "mlm")
    replaced: float = knob(0.15, "Share of words that are replaced.")

    def held_out(self, usual):
        return usual.but(**{"masking.rate": self.replaced})


class Itself(MaskedLM):
    """A masked LM that is its own measure, whatever the masking of all others is."""

    replaced: float = knob(0.15, "Share of words that are replaced.")

    def held_out(self, usual):
        return self


class Shaky(Itself):
    """The same, with a setting of the head's name that acts on what is hidden."""

    norm_eps: float = knob(1e-12, "Added to the share that is hidden, in hundred thousandths.")

    def mask_inputs(self, example, draws, vocabulary):
        return (
            MaskedLM()
            .but(masking=self.masking.but(rate=self.masking.rate + 1e4 * self.norm_eps))
            .mask_inputs(example, draws, vocabulary)
        )


class More(Objectives):
    silent: Silent | None = knob(None, "Says nothing of held-out text.", neutral=None)
    measured: Measured | None = knob(None, "Says how it is measured.", neutral=None)
    elsewhere: Elsewhere | None = knob(None, "Is measured at another target.", neutral=None)
    replacing: Replacing | None = knob(None, "Is measured as it is trained.", neutral=None)
    itself: Itself | None = knob(None, "Is its own measure.", neutral=None)
    shaky: Shaky | None = knob(None, "Is its own measure, too.", neutral=None)


class Wider(System):
    objectives: More = More(mlm=MaskedLM())


def test_an_objective_that_corrupts_and_is_not_measured_is_refused_by_name():
    with pytest.raises(ConfigError, match=naming("objectives.silent", "Silent", "held_out")):
        Wider().but(**{"objectives.mlm": None, "objectives.silent": {}})


def test_an_objective_is_measured_at_targets_of_its_own():
    with pytest.raises(ConfigError, match=naming("objectives.elsewhere", "mlm", "plm")):
        Wider().but(**{"objectives.mlm": None, "objectives.elsewhere": {}})


def test_an_objective_of_ones_own_trains_and_is_measured(tiny, tmp_path):
    changes = {"objectives.mlm": None, "objectives.measured": {}, "training.steps": 2}
    system = Wider.read(tiny.to_dict()).but(**changes)
    assert system.heldout_objective.masking.rate == 0.5
    fitted = fit(system, 0, tmp_path)
    assert {"heldout.loss", "heldout.plateau", "heldout.bigram_loss"} <= fitted.metrics.keys()


@pytest.mark.parametrize(
    ("tokenizer", "units", "moves"),
    [
        ("byte_bpe", "whole_words", True),
        ("byte_bpe", "spans", True),
        ("byte_bpe", "pieces", False),
        ("wordpiece", "whole_words", False),
    ],
)
@pytest.mark.parametrize("objective", ["mlm", "itself"])
def test_a_rule_by_which_words_begin_moves_runs_that_read_words(monkeypatch, objective, tokenizer, units, moves):
    masking = {f"objectives.{objective}.masking.units.kind": units, "data.tokenizer.kind": tokenizer}
    system = Wider().but(**{"objectives.mlm": None} if objective != "mlm" else {}, **masking)
    before = identity(system.essence())
    monkeypatch.setattr(words, "OF_BYTES", words.OF_BYTES + 1)
    assert (identity(system.essence()) != before) == moves


def judged(first, second, metric="heldout.loss"):
    """The verdict on two arms of five runs, the first a clear 0.4 nats better."""
    values = [{"objective": name} for name in ("first", "second")]
    cells = [make_cell(side) for side in values]
    cells = [cell.model_copy(update={"system": it}) for cell, it in zip(cells, (first, second), strict=True)]
    records = {}
    for cell, loss in zip(cells, (4.1, 4.5), strict=True):
        found = losses(cell, [loss, loss + 0.01, loss + 0.02, loss, loss + 0.01])
        records |= {id: r.but(metrics=r.metrics | {metric: r.metrics["heldout.loss"]}) for id, r in found.items()}
    sides = dict(zip("ab", values, strict=True))
    grid = make_grid(
        axes={"objective": ["first", "second"]},
        variants={"objective": {"first": {}, "second": {}}},
        baseline={"objective": "second"},
        published=[],
        metrics=[{"name": metric}],
        claims=[make_claim(metric=metric, published={}, **sides)],
        figure={"x": "objective", "y": metric},
    )
    return judging.verdicts(Measurements(grid, cells, records))[0]


@pytest.mark.parametrize("name", ["replacing", "itself"])
def test_losses_of_objectives_that_are_measured_on_other_corruption_are_not_subtracted(name):
    few = Wider().but(**{"objectives.mlm": None, f"objectives.{name}.replaced": 0.15})
    many = few.but(**{f"objectives.{name}.replaced": 0.3})
    assert (judged(few, many).outcome, judged(few, many).reason) == (OPEN, Reason.TEXT)
    assert judged(few, few.but(**{"optimizer.peak_lr": 1e-5})).outcome == AS_CLAIMED


@pytest.mark.parametrize("change", [{"weight": 2.0}, {"activation": "relu"}, {"norm_eps": 1e-5}])
def test_head_and_weight_of_a_loss_change_nothing_of_the_held_out_text(change):
    one = Wider().but(**{"objectives.mlm": None, "objectives.itself": {}})
    other = one.but(**{f"objectives.itself.{name}": value for name, value in change.items()})
    assert judged(one, other).outcome == AS_CLAIMED


@pytest.mark.parametrize("change", [{"masking.copies": 10}, {"masking.rate": 0.3}, {"norm_eps": 1e-5}])
def test_settings_that_act_on_the_corruption_do(change):
    """Static masks are other draws, and a class may use a setting that it declares itself as it likes."""
    one = Wider().but(**{"objectives.mlm": None, "objectives.shaky": {}})
    other = one.but(**{f"objectives.shaky.{name}": value for name, value in change.items()})
    example, own = Example.of(make_tokens()), [it.heldout_objective for it in (one, other)]
    shown = [objective.mask_inputs(example, make_draws(), make_vocabulary()) for objective in own]
    assert not torch.equal(shown[0].inputs.ids, shown[1].inputs.ids)
    assert judged(one, other).reason == Reason.TEXT


def test_an_objective_of_ones_own_is_compared_where_it_is_measured_as_others_are():
    usual = Wider().but(**{"objectives.mlm": None, "objectives.replacing.replaced": 0.15})
    assert judged(Wider(), usual).outcome == AS_CLAIMED
    assert judged(Wider(), usual.but(**{"objectives.replacing.replaced": 0.3})).reason == Reason.TEXT


def test_objectives_of_this_project_are_measured_as_evaluation_says_whatever_they_are_trained_on():
    masked = Wider()
    permuted = masked.but(**{"objectives.mlm": None, "objectives.plm": {}, "model.query_stream": True})
    forward = masked.but(**{"objectives.mlm": None, "objectives.lm": {}, "model.direction": "left_to_right"})
    for few, many, metric in (
        (masked, masked.but(**{"objectives.mlm.masking.rate": 0.4}), "heldout.loss"),
        (masked, permuted, "heldout.loss"),
        (permuted, permuted.but(**{"objectives.plm.one_in": 2.0}), "heldout.loss"),
        (forward, forward.but(**{"objectives.lm.scored": "second_half"}), "heldout.next_loss"),
        (forward, forward.but(**{"objectives.lm.bias": False}), "heldout.next_loss"),
    ):
        assert judged(few, many, metric).outcome == AS_CLAIMED


@pytest.mark.parametrize("name", ["replacing", "itself"])
def test_losses_by_sequence_are_of_one_text_only_with_one_corruption(tiny, tmp_path, name):
    few = {"objectives.mlm": None, "training.steps": 1, f"objectives.{name}.replaced": 0.15}
    start = Wider.read(tiny.to_dict()).but(**few)
    systems = [start, start.but(**{f"objectives.{name}.replaced": 0.3}), start.but(**{"optimizer.peak_lr": 1e-4})]
    one, other, same = (fit(it, 0, tmp_path / str(n)).sums["text"] for n, it in enumerate(systems))
    assert one != other
    assert one == same


@pytest.mark.parametrize("kind", [kind for kind in Objectives.kinds().values() if kind.masks_inputs])
def test_whatever_corrupts_measures_a_loss_at_each_of_its_held_out_targets(kind):
    """A training compares these losses with those of the bigram and unigram baselines, by name."""
    objective, model = kind(), Transformer(num_layers=1, hidden_size=16, num_heads=2, max_positions=16)
    model = model.but(query_stream=QUERY_STREAM in objective.needs)
    form = objective.held_out(MaskedLM())
    example = form.mask_inputs(Example.of(make_tokens()), make_draws(), make_vocabulary())
    measured = objective.measure(objective.heads(model.size(50)), model.build(50)(example), example)
    assert {f"{prefix(target)}loss" for target in form.targets} <= measured.keys()
