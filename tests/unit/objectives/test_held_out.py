"""How a model is measured on held-out text is said by the objective that corrupts its input."""

from dataclasses import replace
from typing import ClassVar, get_args

import pytest

from ablations.planning import cells, grids
from ablations.planning.checks import grid_checks
from lightning_modules.backbones import Transformer
from lightning_modules.batch import QUERY_STREAM, Example
from lightning_modules.config import ConfigError, knob
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.objectives import LanguageModel, MaskedLM, Objective, Objectives
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming


class Silent(Objective):
    """An objective as a user adds it: it corrupts and has a head, a loss and measures, under a target of its own."""

    corrupts: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = ("plm",)

    def heads(self, size):
        return MaskedLM().heads(size)

    def corrupt(self, example, draws, vocabulary):
        example = MaskedLM().corrupt(example, draws, vocabulary)
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


class More(Objectives):
    silent: Silent | None = knob(None, "Says nothing of held-out text.", neutral=None)
    measured: Measured | None = knob(None, "Says how it is measured.", neutral=None)
    elsewhere: Elsewhere | None = knob(None, "Is measured at another target.", neutral=None)


class Wider(System):
    objectives: More = More(mlm=MaskedLM())


def test_an_objective_that_corrupts_and_is_not_measured_is_refused_by_name():
    with pytest.raises(ConfigError, match=naming("objectives.silent", "Silent", "held_out")):
        Wider().but(**{"objectives.mlm": None, "objectives.silent": {}})


def test_an_objective_is_measured_at_targets_of_its_own():
    with pytest.raises(ConfigError, match=naming("objectives.elsewhere", "mlm", "plm")):
        Wider().but(**{"objectives.mlm": None, "objectives.elsewhere": {}})


def test_check_refuses_it_before_anything_is_trained(tmp_path, monkeypatch):
    for module in (grid_checks, cells):
        monkeypatch.setattr(module, "System", Wider)
    monkeypatch.setitem(SYSTEMS, "roberta_base", Wider.read(SYSTEMS["roberta_base"].to_dict()))
    file = tmp_path / "g.yaml"
    file.write_text(
        """\
question: Does it learn without masks?
base: roberta_base
set: {data.corpora: [wikipedia-mini], objectives.mlm: null}
axes:
  objectives.silent.weight: [1.0, 2.0]
scales:
  smoke: {set: {training.steps: 2}}
metrics:
  - {name: heldout.loss, better: lower}
"""
    )
    with pytest.raises(ConfigError, match=naming("g.yaml", "objectives.silent", "held_out")):
        grids.read(file)


def test_an_objective_of_ones_own_trains_and_is_measured(tiny, tmp_path):
    changes = {"objectives.mlm": None, "objectives.measured": {}, "training.steps": 2}
    system = Wider.read(tiny.to_dict()).but(**changes)
    assert system.heldout_objective.masking.rate == 0.5
    fitted = fit(system, 0, tmp_path)
    assert {"heldout.loss", "heldout.plateau", "heldout.bigram_loss"} <= fitted.metrics.keys()


def test_masked_models_share_one_masking_and_language_models_have_their_own(tiny):
    often = tiny.but(**{"objectives.mlm.masking.rate": 0.8})
    assert often.heldout_objective == tiny.heldout_objective == tiny.evaluation.objective
    forward = {"objectives.mlm": None, "objectives.lm": {}, "model.direction": "left_to_right"}
    assert tiny.but(**forward).heldout_objective == LanguageModel()


KINDS = [get_args(info.annotation)[0] for info in Objectives.model_fields.values()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.corrupts])
def test_whatever_corrupts_measures_a_loss_at_each_of_its_held_out_targets(kind):
    """A training compares these losses with those of the bigram and unigram baselines, by name."""
    objective, model = kind(), Transformer(num_layers=1, hidden_size=16, num_heads=2, max_positions=16)
    model = model.but(query_stream=QUERY_STREAM in objective.needs)
    form = objective.held_out(MaskedLM())
    example = form.corrupt(Example.of(make_tokens()), make_draws(), make_vocabulary())
    measured = objective.measure(objective.heads(model.size(50)), model.build(50)(example), example)
    assert {f"{prefix(target)}loss" for target in form.targets} <= measured.keys()
