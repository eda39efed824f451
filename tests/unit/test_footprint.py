"""The memory that a plan tells: against what torch keeps where it computes, and against what knobs must do to it."""

from weakref import finalize

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_modules import cached
from lightning_modules import footprint as memory
from lightning_modules.config import ConfigError
from lightning_modules.footprint import example_of, exchanged, footprint, footprints, trace
from lightning_modules.places import cache
from lightning_modules.systems import BERT_BASE, GPT2, SYSTEMS, TRANSFORMER_XL_BASE
from lightning_modules.training.callbacks import average
from lightning_modules.training.execution import Execution, recompute_layers

SMALL = {
    "model.num_layers": 3, "model.hidden_size": 32, "model.num_heads": 4, "model.max_positions": 64,
    "model.ffn_size": None, "data.tokenizer.vocab_size": 400, "format.sequence_length": 48,
    "training.precision": "fp32", "training.batch_size": 16,
}  # fmt: skip
STILL = dict.fromkeys(("model.dropout", "model.attention_dropout", "model.embedding_dropout"), 0.0)
NAMES = ["roberta_base", "bert_base", "spanbert_base", "gpt", "transformer_xl_base", "xlnet_base", "albert_base"]
AGAIN = Execution(activation_checkpointing=True)


def small(name, **changes):
    system = SYSTEMS[name]
    own = dict(SMALL)
    if "embedding_size" in type(system.model).model_fields and system.model.embedding_size:
        own["model.embedding_size"] = 16
    if getattr(system.model, "memory_length", 0):
        own["model.memory_length"] = 20
    return system.but(**own).but(**STILL).but(**changes)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_tell_what_torch_keeps(name):
    """Within a twentieth of what autograd saves on a CPU in fp32, whose loss and attention are other kernels."""
    system = small(name)
    told, kept = trace(system, 6), trace(system, 6, device="cpu")
    assert told.saved + told.states == pytest.approx(kept.saved + kept.states, rel=0.05)
    assert told.carried == kept.carried
    assert (kept.carried > 0) == (name == "transformer_xl_base")


@pytest.mark.parametrize("recompute", [False, True])
def test_rows_beyond_those_that_are_traced_follow_a_straight_line(recompute):
    system = small("bert_base", **{"training.batch_size": 24})
    whole = trace(system, 24, recompute)
    line = footprint(system, Execution(activation_checkpointing=recompute))
    if not recompute:
        assert line.activations == pytest.approx(whole.saved + whole.states + whole.largest, rel=0.01)
    else:
        assert line.activations > whole.saved + whole.states


@pytest.mark.parametrize("sharing", ["all", "none"])
@pytest.mark.parametrize(
    ("algorithm", "averaged"), [("adamw", 0), ("sgd", 0), ("sgd", 1), ("adagrad", 0)], ids=lambda value: str(value)
)
def test_what_an_optimiser_keeps_and_devices_exchange_is_of_shared_weights_once(sharing, algorithm, averaged):
    changes = {"optimizer.algorithm": algorithm, "optimizer.nonmonotone_interval": averaged, "model.sharing": sharing}
    system = small("albert_base", **changes)
    module = system.build(0)
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    if averaged:
        average(optimizer)
    held = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    assert exchanged(system) == sum(p.grad.nbytes for p in module.parameters())
    assert footprint(system).optimizer == sum(tensor.nbytes for tensor in held if tensor.numel() > 1)


def test_weights_gradients_and_moments_are_those_of_a_step():
    system = small("albert_base")
    module = system.build(0)
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    held = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    told = footprint(system)
    assert told.parameters == told.gradients == sum(4 * p.numel() for p in module.parameters())
    assert told.optimizer == sum(tensor.nbytes for tensor in held if tensor.numel() > 1)
    assert told.update == told.optimizer, "LAMB"
    assert footprint(small("bert_base")).update == 0


def peak(system, recompute):
    """The most bytes of tensors alive at once in a forward and backward pass on the CPU, without the parameters."""

    class Alive(TorchDispatchMode):
        now = most = 0

        def __init__(self):
            super().__init__()
            self.known = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self.note(tensor.untyped_storage())
            return result

        def note(self, storage):
            place, size = storage._cdata, storage.nbytes()
            if place in self.known:
                return
            self.known.add(place)
            self.now += size
            self.most = max(self.most, self.now)
            finalize(storage, self.gone, place, size)

        def gone(self, place, size):
            self.known.discard(place)
            self.now -= size

    module, example = system.build(0), example_of(system, system.training.batch_size)
    if recompute:
        recompute_layers(module)
    with Alive() as alive:
        terms = module.objectives.loss(module.heads, module.backbone(example), example)
        sum(total for total, _, _ in terms.values()).backward()
    gradients = sum(4 * p.numel() for p in module.parameters())
    return alive.most, gradients


@pytest.mark.parametrize("recompute", [False, True])
def test_the_peak_of_a_step_is_near(recompute):
    """Within a third of the most that is alive at once, of which gradients of weights are a part by then."""
    system = small("bert_base", **{"training.batch_size": 48, "model.num_layers": 6})
    most, gradients = peak(system, recompute)
    told = footprint(system, Execution(activation_checkpointing=recompute))
    assert most - gradients <= 1.33 * told.activations
    assert told.activations <= 1.33 * most


def test_what_spares_memory_does():
    base = footprint(BERT_BASE)
    assert footprint(BERT_BASE, AGAIN).activations < base.activations / 2
    assert footprint(BERT_BASE, AGAIN).optimizer == base.optimizer
    several = footprint(BERT_BASE, Execution(devices=8))
    assert several.activations == pytest.approx(base.activations / 8, rel=0.05)
    assert several.parameters == base.parameters
    assert footprint(BERT_BASE, Execution(devices=4, nodes=2)) == several
    divided = footprint(BERT_BASE, Execution(devices=8, strategy="fsdp"))
    assert divided.activations == several.activations
    assert (divided.parameters, divided.optimizer) == (base.parameters // 8, 2 * (base.parameters // 8))
    assert divided.total < several.total
    micro = footprint(BERT_BASE.but(**{"training.micro_batch_size": 32}))
    assert micro.activations == several.activations
    exact = footprint(BERT_BASE.but(**{"training.precision": "fp32"}))
    assert exact.activations > 1.3 * base.activations
    assert exact.parameters == base.parameters


def test_logits_and_memory_count():
    most = GPT2.but(**{"training.micro_batch_size": 1, "model.num_layers": 1})
    assert footprint(most).activations > 1024 * 50_000 * 4, "one number a position and word"
    remembering = TRANSFORMER_XL_BASE
    longer = remembering.but(**{"model.memory_length": 2 * remembering.model.memory_length})
    assert footprint(longer).activations > 1.02 * footprint(remembering).activations


def test_what_no_trace_can_follow_is_not_told():
    lstm = SYSTEMS["gpt"].but(**{"model.kind": "lstm", "model.hidden_size": 64, "objectives.lm.transform": "bert"})
    assert footprint(lstm) is None
    (problem,) = Execution(devices=2, strategy="fsdp").problems(lstm.model, lstm.training)
    assert "weights of model.kind lstm cannot be divided" in str(problem)


def test_an_execution_without_devices_is_refused():
    with pytest.raises(ConfigError, match="devices"):
        Execution(devices=0)
    with pytest.raises(ConfigError, match="num-nodes"):
        Execution(nodes=0)
    with pytest.raises(ConfigError, match=r"strategy: .*Did you mean 'fsdp'"):
        Execution(devices=2, strategy="fspd")
    with pytest.raises(ConfigError, match=r"strategy: fsdp .* --devices"):
        Execution(strategy="fsdp")


def test_what_is_gathered_is_the_largest_unit_and_what_is_none():
    """Counted by hand for three layers of width 32, whose feed-forward is 128 wide: its norm is of the unit."""
    system = small("bert_base")
    total = sum(p.numel() for p in system.build(0).parameters())
    feed_forward = 2 * 32 * 128 + 128 + 32 + 2 * 32
    attention = 4 * (32 * 32 + 32) + 2 * 32
    rest = total - 3 * (feed_forward + attention)
    told = footprint(system, Execution(devices=2, strategy="fsdp"))
    assert told.gathered == 8 * rest + 12 * feed_forward
    assert footprint(system, Execution(devices=2)).gathered == 0


@pytest.fixture
def traces(monkeypatch):
    """What is traced, by processes that remember nothing."""
    found = []

    def counted(system, rows, recompute):
        found.append((rows, recompute))
        return trace(system, rows, recompute)

    def forget():
        monkeypatch.setattr(memory, "_found", {})
        monkeypatch.setattr(memory, "_read", {})
        return found

    monkeypatch.setattr(memory, "trace", counted)
    return forget


SEVERAL = [small("bert_base"), small("bert_base", **{"optimizer.peak_lr": 2e-3}), small("albert_base")]


def altered():
    (kept,) = (cache() / "footprints").glob("*.json")
    kept.write_text(kept.read_text().replace("1", "2"))


CHANGES = {
    "a model": lambda patch: patch.setattr("tests.unit.test_footprint.SEVERAL", [small("gpt"), *SEVERAL]),
    "an altered file": lambda patch: altered(),
    "other code": lambda patch: patch.setattr(cached, "code", lambda package: "other"),
}


def test_a_trace_is_made_once(traces):
    found = traces()
    first = footprints(SEVERAL)
    assert first == [footprint(system) for system in SEVERAL]
    assert found == [(4, False), (8, False)] * 2
    traces()
    assert footprints(SEVERAL) == first
    assert len(found) == 4
    traces()
    again = footprints(SEVERAL, AGAIN)
    assert found[4:] == [(4, True), (8, True)] * 2
    assert again != first


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_traced_before_a_change_is_not_used(change, traces, monkeypatch):
    found = traces()
    first = footprints(SEVERAL)
    traces()
    CHANGES[change](monkeypatch)
    assert footprints(SEVERAL)[-len(first) :] == first
    assert len(found) == (6 if change == "a model" else 8)
