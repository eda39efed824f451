"""A model with a recurrent state reads a stream in steps as it reads it at once, in training and on held-out text."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from lightning_modules.batch import Encoded, Example, SegmentState
from lightning_modules.measures.final_metrics import measures
from lightning_modules.model.settings import BackboneModule
from lightning_modules.objectives.objective import own_heads
from lightning_modules.pretraining import fit
from lightning_modules.training import module as training
from lightning_modules.training.recurrent_state import RecurrentState
from lightning_modules.training.weights import WEIGHTS
from tests.conftest import make_tokens

LSTM = {
    "model.kind": "lstm", "model.num_layers": 2, "model.hidden_size": 16, "model.embedding_size": 8,
    "model.dropout": 0.0, "model.embedding_dropout": 0.0, "model.init_std": 0.5, "objectives.mlm": None,
    "objectives.lm.direction": "left_to_right", "format.kind": "stream", "format.frame": "document_ends",
    "training.batch_size": 4, "training.steps": 10, "evaluation.sequences": 12, "evaluation.rows": 4,
}  # fmt: skip


@pytest.fixture
def lstm(tiny):
    return tiny.but(**LSTM)


@torch.no_grad()
def test_steps_are_parts_of_a_row_and_a_pass_begins_anew(lstm):
    """Two passes, with rows in micro-batches: states are those of rows that are read at once, from their beginning."""
    data = lstm.but(**{"training.micro_batch_size": 2, "training.batch_size": 100}).data_module(0)
    batches, module = data.train_dataloader(), lstm.build(0).eval()
    steps = len(data.sequences) // 100
    assert steps >= 2
    state, passes = RecurrentState(), ([], [])
    for step in range(2 * steps):
        examples = batches.step(step)
        passes[step // steps].append([(each, state.encode(module.backbone, each).last) for each in examples])
    for one in passes:
        for group in (0, 1, 49):
            ids = torch.cat([step[group][0].inputs.ids for step in one], 1)
            whole = module.backbone(Example.of(make_whole(ids))).last
            assert torch.allclose(torch.cat([step[group][1] for step in one], 1), whole, atol=1e-5)


def make_whole(ids):
    tokens = make_tokens(*ids.shape)
    tokens.ids, tokens.special = ids, torch.zeros_like(tokens.special)
    return tokens


def weights_of(system, folder):
    result = fit(system, 0, folder)
    return result, load_file(folder / WEIGHTS)


def test_training_carries_and_is_one_however_it_is_divided(lstm, tmp_path, monkeypatch):
    """Micro-batches and evaluations between steps change nothing; without a carry it would be another training."""
    whole, weights = weights_of(lstm, tmp_path / "whole")
    _, parts = weights_of(lstm.but(**{"training.micro_batch_size": 2}), tmp_path / "parts")
    assert all((parts[name] - value).abs().max() < 1e-5 for name, value in weights.items())
    often, same = weights_of(lstm.but(**{"evaluation.points": 10}), tmp_path / "often")
    assert all(torch.equal(same[name], value) for name, value in weights.items())
    assert whole.metrics["heldout.next_loss"] == often.metrics["heldout.next_loss"]
    assert whole.cost["tokens"] == whole.cost["real_tokens"] == 10 * 4 * 16
    assert whole.cost["flops"] == lstm.flops()
    assert whole.cost["heldout_tokens_per_second"] > 0

    class Forgetful(RecurrentState):
        def encode(self, backbone, example):
            self.__init__()
            return super().encode(backbone, example)

    monkeypatch.setattr(training, "RecurrentState", Forgetful)
    _, forgot = weights_of(lstm, tmp_path / "forgot")
    assert max((forgot[name] - value).abs().max() for name, value in weights.items()) > 1e-3


@torch.no_grad()
def test_held_out_losses_are_exact_sums_however_segments_are_cut(lstm):
    """The LSTM carries all there is, so that the length of segments changes nothing; without a carry it does."""
    module = lstm.build(0).eval()
    held = lstm.data_module(0).heldout
    assert held.width == 48
    rows = torch.cat([example.inputs.ids for example in held], 1)
    encoded = module.backbone(Example.of(make_whole(rows)))
    last = list(held)[-1].inputs.following
    wanted = torch.cat([rows, last[:, None]], 1)[:, 1:]
    head, lm = own_heads(module.heads, "lm")["vocabulary"], module.objectives.lm
    nats = F.cross_entropy(head(encoded.last.flatten(0, 1), encoded), wanted.flatten())
    found = {}
    for length, context in ((16, 0), (7, 0), (48, 0), (8, 8), (8, 40)):
        cut = lstm.but(**{"evaluation.sequence_length": length, "evaluation.context": context})
        found[length, context] = measures(module, cut.data_module(0).heldout, bf16=False)["next_loss"]
    for reading in ((16, 0), (7, 0), (48, 0), (8, 40)):
        assert found[reading] == pytest.approx(float(nats), abs=1e-5)
    assert abs(found[8, 8] - float(nats)) > 1e-4, "sixteen positions are not all"
    assert lm.scored == "all"


class Remembers(BackboneModule):
    """Tells how long its memory is."""

    memory_length = 5

    def __init__(self, kept=()):
        super().__init__()
        self.kept = kept

    def begin(self, rows, device=None, memory_length=None):
        length = self.memory_length if memory_length is None else memory_length
        return torch.zeros(rows, length) if length else None

    def forward(self, example, carry=None):
        ids = example.inputs.ids
        states = ids.float()[..., None]
        return Encoded([states], states, states[0], None if carry is None else carry + 1)

    def depth(self, name):
        return 0


def going(group=0, fresh=None):
    tokens = make_tokens()
    tokens.segment_state = SegmentState(group, fresh)
    return Example.of(tokens)


def test_an_evaluation_may_remember_more_or_nothing_and_groups_are_apart():
    model = Remembers()
    for length, wanted in ((None, 5), (9, 9), (0, None)):
        carry = RecurrentState(length).encode(model, going()).carry
        assert (carry if carry is None else carry.shape[1]) == wanted
    state = RecurrentState()
    for _ in range(3):
        assert (state.encode(model, going(0)).carry >= 1).all()
    assert (state.encode(model, going(1)).carry == 1).all()
    fresh = torch.tensor([True, False, True, False])
    assert state.encode(model, going(0, fresh)).carry[:, 0].tolist() == [1, 4, 1, 4]
    assert state.encode(model, Example.of(make_tokens())).carry is None, "rows that do not go on have none"
    saved = state.state_dict(lambda held: held[None])
    again = RecurrentState()
    again.load_state_dict(saved, 0)
    assert again.state_dict(lambda held: held[None]).keys() == {0, 1}, "kept if it is not read"
    assert again.encode(model, going(0)).carry[:, 0].tolist() == [2, 5, 2, 5]


def test_a_checkpoint_has_the_rows_of_every_rank():
    state, ranks = RecurrentState(), []
    for rank in range(2):
        own = RecurrentState()
        for _ in range(1 + rank):
            own.encode(Remembers(), going())
        ranks.append(own.state_dict(lambda held: held)[0])
    saved = {0: [torch.stack(both) for both in zip(*ranks, strict=True)]}
    for rank in range(2):
        state.load_state_dict(saved, rank)
        assert np.unique(state.encode(Remembers(), going()).carry).tolist() == [2 + rank]


XL = {
    "model.positions": "relative", "model.num_layers": 2, "model.memory_length": 24, "model.dropout": 0.0,
    "model.embedding_dropout": 0.0, "model.attention_dropout": 0.0, "model.direction": "left_to_right",
    "model.init_std": 0.3, "objectives.mlm": None, "objectives.lm.direction": "left_to_right",
    "format.kind": "stream", "format.frame": "document_ends", "training.batch_size": 4, "training.steps": 6,
    "evaluation.sequences": 12, "evaluation.rows": 4, "optimizer.eps": 1e-3,
}  # fmt: skip


@pytest.fixture
def xl(tiny):
    return tiny.but(**XL)


def test_training_with_a_memory_is_one_however_it_is_divided(xl, tmp_path):
    _, weights = weights_of(xl, tmp_path / "whole")
    _, parts = weights_of(xl.but(**{"training.micro_batch_size": 2}), tmp_path / "parts")
    assert all((parts[name] - value).abs().max() < 1e-5 for name, value in weights.items())
    _, none = weights_of(xl.but(**{"model.memory_length": 0}), tmp_path / "none")
    assert max((none[name] - value).abs().max() for name, value in weights.items()) > 1e-3


def test_in_both_directions_too_and_where_a_part_of_a_row_goes_on(xl, tmp_path):
    """Micro-batches of one direction, and of rows of which the second half is read again."""
    both = {"model.direction": "both", "objectives.lm": None, "objectives.mlm.weight": 1.0, "format.both_ways": True}
    both |= {"format.reuse_length": 8}
    _, weights = weights_of(xl.but(**both), tmp_path / "whole")
    _, parts = weights_of(xl.but(**both, **{"training.micro_batch_size": 2}), tmp_path / "parts")
    assert all((parts[name] - value).abs().max() < 1e-5 for name, value in weights.items())
    for name, other in {"one way": {"format.both_ways": False}, "no memory": {"model.memory_length": 0}}.items():
        _, changed = weights_of(xl.but(**both).but(**other), tmp_path / name)
        assert max((changed[name] - value).abs().max() for name, value in weights.items()) > 1e-3


@torch.no_grad()
def test_an_evaluation_has_lengths_of_its_own(xl):
    """A memory of all there is makes segments those of the row; shorter ones, and windows read again, are other."""
    found = {}
    for length, memory, context in ((48, 0, 0), (8, 48, 0), (5, 47, 0), (8, 0, 0), (8, 8, 0), (8, None, 40)):
        changes = {"sequence_length": length, "memory_length": memory, "context": context}
        changed = xl.but(**{f"evaluation.{name}": value for name, value in changes.items()})
        module = changed.build(0)
        found[length, memory] = measures(module, changed.data_module(0).heldout, bf16=False)["next_loss"]
    whole = found[48, 0]
    for same in ((8, 48), (5, 47), (8, None)):
        assert found[same] == pytest.approx(whole, abs=1e-5)
    for other in ((8, 0), (8, 8)):
        assert abs(found[other] - whole) > 1e-4


@torch.no_grad()
def test_a_pass_begins_with_an_empty_memory(xl):
    system = xl.but(**{"training.batch_size": 100})
    batches, module, state = system.data_module(0).train_dataloader(), system.build(0).eval(), RecurrentState()
    steps = len(system.data_module(0).sequences) // 100
    seen = [state.encode(module.backbone, batches.step(step)[0]).last for step in range(2 * steps)]
    assert all(torch.equal(one, other) for one, other in zip(seen[:steps], seen[steps:], strict=True))
    alone = module.backbone(batches.step(1)[0]).last
    assert not torch.allclose(seen[1], alone, atol=1e-3)
