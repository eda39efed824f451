"""A run's stream read with other lengths than its own: as an evaluation with these; refusals by name."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import mapped
from lightning_modules.config import ConfigError
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.language_model import of_training
from lightning_modules.measures.final_metrics import measures
from lightning_modules.objectives.lm import NEXT
from lightning_modules.zero_shot import stream
from lightning_modules.zero_shot.measure import asked, kept
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.speed import TURNS
from lightning_modules.zero_shot.table import ZERO_SHOT
from tests.by_token import losses_by_token
from tests.messages import naming
from tests.unit.training.test_recurrent_state import LSTM

XL = {
    "objectives.mlm": None,
    "objectives.lm.direction": "left_to_right",
    "model.direction": "left_to_right",
    "model.positions": "relative",
    "model.memory_length": 6,
    "model.segment_types": 0,
    "model.init_std": 0.3,
    "format.kind": "stream",
    "format.break_mode": "none",
    "format.frame": "document_ends",
    "evaluation.rows": 4,
    "evaluation.sequences": 12,
}
TASK = ZERO_SHOT["heldout_stream"]


def read(system, **settings):
    module = system.build(0).eval()
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    model = of_training(module, system, encoder)
    return asked(model, TASK.name, Measurement(**settings), system.data, system)


def evaluated(system, **settings):
    """The measures of the same weights, with the settings in the run's own evaluation."""
    other = system.but(**{f"evaluation.{name}": value for name, value in settings.items()})
    module = other.build(0).eval()
    module.load_state_dict(system.build(0).state_dict())
    return module, other.data_module(0).heldout


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"memory_length": 0},
        {"memory_length": 20, "sequence_length": 5},
        {"sequence_length": 1, "context": 7},
    ],
    ids=str,
)
def test_a_stream_is_read_as_an_evaluation_with_these_lengths(tiny, settings):
    system = tiny.but(**XL)
    module, heldout = evaluated(system, **settings)
    expected, found = measures(module, heldout, False), read(system, **settings)
    assert found.metrics["loss"] == pytest.approx(expected["next_loss"], abs=1e-5)
    assert found.metrics["accuracy"] == pytest.approx(expected["next_accuracy"], abs=1e-6)
    assert np.allclose(found.scores["loss"], losses_by_token(module, heldout, False).ravel(), atol=1e-5)
    other = read(system, memory_length=3).metrics["loss"]
    assert abs(other - found.metrics["loss"]) > 1e-4, "lengths matter"


@pytest.mark.parametrize("settings", [{"sequence_length": 4}, {"sequence_length": 1, "context": 8}], ids=str)
def test_a_lead_predicts_nothing_and_stands_before_everything(tiny, settings):
    system = tiny.but(**XL)
    module, heldout = evaluated(system, **settings)
    found = read(system, lead=8, **settings)
    assert np.allclose(found.scores["loss"], losses_by_token(module, heldout, False)[:, 8:].ravel(), atol=1e-5)
    assert found.metrics["loss"] == pytest.approx(found.scores["loss"].mean())


def test_tokens_are_put_together_where_they_are_many_with_their_documents(tiny, monkeypatch):
    system = tiny.but(**XL)
    alone = read(system, lead=16)
    monkeypatch.setattr(stream, "_FEW", 10)
    monkeypatch.setattr(stream, "_TOGETHER", 16)
    together = read(system, lead=16)
    assert len(alone.scores["loss"]) == 4 * 32
    assert together.weights.tolist() == [16.0] * 8
    assert np.allclose(alone.scores["loss"].reshape(8, 16).mean(1), together.scores["loss"])
    assert (alone.documents.reshape(8, 16)[:, 0] == together.documents).all()
    assert len(set(alone.documents)) > 1
    assert kept(together, TASK.name).keys() == {"heldout_stream.loss", "weight", "document"}
    monkeypatch.setattr(stream, "_MOST", 4)  # a record has room for so many
    assert read(system, lead=16).weights.tolist() == [32.0] * 4


def test_trainings_of_other_segments_are_asked_the_same_tokens(tiny):
    short = tiny.but(**XL)
    long = short.but(**{"format.sequence_length": 32, "training.batch_size": 2, "evaluation.sequences": 6})
    texts = [TASK.text(system, Measurement()) for system in (short, long)]
    assert texts[0] == texts[1]
    streams = [system.data_module(0).some_heldout(system.evaluation.sequences) for system in (short, long)]
    rows = [torch.cat([some.segment(n).inputs.ids for n in range(some.segments)], dim=1) for some in streams]
    assert torch.equal(*rows)
    assert TASK.text(long, Measurement(examples=3)) != texts[0]


def test_fewer_positions_are_the_beginnings_of_the_same_rows(tiny):
    system = tiny.but(**XL)
    whole, some = (read(system, examples=count).scores["loss"].reshape(4, -1) for count in (12, 6))
    assert np.allclose(whole[:, : some.shape[1]], some, atol=1e-5)
    texts = [TASK.text(system, Measurement(**settings)) for settings in ({}, {"memory_length": 3}, {"examples": 6})]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("changes", [XL, LSTM], ids=["memory", "state"])
def test_with_the_memory_of_another_row_only_what_is_remembered_differs(tiny, changes):
    """First segments remember nothing. The others are read as those of the next row's text would go on."""
    system = tiny.but(**{**changes, "evaluation.rows": 4, "evaluation.sequences": 12})
    length = system.format.sequence_length
    own, foreign = (read(system, memory_from=whose).scores["loss"].reshape(4, -1) for whose in ("own_row", "other_row"))
    assert np.allclose(own[:, :length], foreign[:, :length], atol=1e-6)
    assert (np.abs(own - foreign)[:, length:].max(axis=1) > 1e-5).all()
    module, heldout = evaluated(system)
    model = of_training(module, system, Encoder(tokenizer_file(system.data), system.data.tokenizer.kind))
    first, second = heldout.segment(0), heldout.segment(1)
    with torch.no_grad():
        carry = module.backbone(first, module.backbone.begin(4, module.device)).carry
        of_next = mapped(carry, lambda held: held[[1, 2, 3, 0]])
        target = second.targets[NEXT]
        logits = model.logits(module.backbone(second, of_next), target.where)
    by_hand = F.cross_entropy(logits, target.ids, reduction="none").numpy().reshape(4, -1)
    assert np.allclose(foreign[:, length : 2 * length], by_hand, atol=1e-5)


@pytest.mark.parametrize(
    ("shuffled", "moved"),
    [({"shuffle_from": 4}, range(4, 13)), ({"shuffle_from": 1, "shuffle_to": 5}, range(1, 6)), ({}, range(0))],
    ids=["beyond", "nearest", "none"],
)
def test_tokens_at_some_distances_stand_in_another_order(tiny, monkeypatch, shuffled, moved):
    window, seen = {"sequence_length": 1, "context": 11, "lead": 16}, {}

    def noting(name):
        seen[name] = []
        own = stream.RecurrentState.encode
        monkeypatch.setattr(
            stream.RecurrentState, "encode", lambda *args: seen[name].append(args[2].inputs.ids.flip(1)) or own(*args)
        )

    noting("plain")
    plain = read(tiny.but(**XL), **window)
    monkeypatch.undo()
    noting("shuffled")
    found = read(tiny.but(**XL), **window, **shuffled)
    monkeypatch.undo()
    noting("of another model")
    read(tiny.but(**{**LSTM, "evaluation.rows": 4}), **window, **shuffled)
    before, after, other = (torch.cat(seen[name]) for name in ("plain", "shuffled", "of another model"))
    at = torch.tensor([distance in moved for distance in range(1, 13)])  # the last token has distance 1
    assert torch.equal(before[:, ~at], after[:, ~at])
    assert torch.equal(before[:, at].sort(1).values, after[:, at].sort(1).values)
    assert (before[:, at] == after[:, at]).float().mean() < 0.5 or not at.any()
    assert torch.equal(after, other), "all models read the same orders"
    assert np.array_equal(plain.scores["loss"], found.scores["loss"]) == (not at.any())


@pytest.mark.parametrize(
    ("changes", "settings", "names"),
    [
        ({}, {"lead": 5, "sequence_length": 4}, ("measuring.lead 5", "4 positions", "4 or 8")),
        ({}, {"lead": 48}, ("measuring.lead 48", "48 positions", "measuring.examples")),
        ({}, {"memory_length": 3, "context": 4}, ("measuring.memory_length", "measuring.context")),
        (LSTM, {"memory_length": 3}, ("measuring.memory_length", "lstm")),
        ({"model.positions": "learned", "model.memory_length": 0}, {"context": 9}, ("measuring.context 9", "16")),
        ({}, {"memory_from": "other_row", "memory_length": 0}, ("measuring.memory_from", "memory of 0 positions")),
        ({"evaluation.rows": 1}, {"memory_from": "other_row"}, ("measuring.memory_from", "evaluation.rows 1")),
        (
            {"model.memory_length": 0, "evaluation.context": 4},
            {"memory_from": "other_row"},
            ("measuring.memory_from", "measuring.context"),
        ),
        ({}, {"shuffle_from": 4}, ("measuring.shuffle_from 4", "measuring.sequence_length", "measuring.context")),
        ({}, {"shuffle_to": 4}, ("measuring.shuffle_to 4", "measuring.shuffle_from")),
        ({}, {"sequence_length": 1, "context": 7, "shuffle_from": 8}, ("measuring.shuffle_from 8", "lower it")),
    ],
)
def test_what_cannot_be_read_is_refused_by_name_before_a_training(tiny, changes, settings, names):
    system = tiny.but(**{**XL, **changes}) if changes is not LSTM else tiny.but(**LSTM)
    problems = list(TASK.problems(system, Measurement(**settings)))
    with pytest.raises(ConfigError, match=naming(*names)):
        raise ConfigError(problems)


def test_reading_again_costs_what_it_reads(tiny):
    system = tiny.but(**XL)
    plain, again = (TASK.positions(system, Measurement(**s)) for s in ({}, {"sequence_length": 1, "context": 7}))
    assert (plain, again) == (12 * 16, 12 * 16 * 8)
    assert TASK.positions(system, Measurement(memory_from="other_row")) == 2 * plain
    assert TASK.positions(system, Measurement(sequence_length=1, context=7, lead=8)) == (12 * 16 - 4 * 8) * 8


SPEED = ZERO_SHOT["reading_speed"]


def test_reading_with_a_memory_is_timed_against_reading_anew(tiny):
    """The loss is that of the segments after the first one, which fills the memory."""
    system = tiny.but(**XL)
    module = system.build(0).eval()
    model = of_training(module, system, Encoder(tokenizer_file(system.data), system.data.tokenizer.kind))
    found = asked(model, SPEED.name, Measurement(memory_length=9), system.data, system).metrics
    heldout = system.but(**{"evaluation.rows": 1, "evaluation.sequence_length": 9}).data_module(0).some_heldout(6)
    module.heldout_memory = 9
    nats = losses_by_token(module, heldout, False)[0, 9 : 9 * (1 + TURNS)]
    assert found["loss"] == pytest.approx(nats.mean(), abs=1e-5)
    assert found["speed_up"] > 0
    assert found["cached_tokens_per_second"] > 0
    assert found["recomputed_tokens_per_second"] > 0


def test_speed_is_of_models_that_remember(tiny):
    lstm, plain = tiny.but(**LSTM), tiny.but(**{**XL, "model.memory_length": 0})
    for system, settings, names in (
        (lstm, {"memory_length": 9}, ("reading_speed", "lstm")),
        (plain, {}, ("reading_speed", "measuring.memory_length")),
        (tiny.but(**{**XL, "model.positions": "sinusoidal"}), {"memory_length": 60}, ("60", "model.max_positions 16")),
    ):
        with pytest.raises(ConfigError, match=naming(*names)):
            raise ConfigError(SPEED.problems(system, Measurement(**settings)))
    assert not list(SPEED.problems(tiny.but(**XL), Measurement()))
