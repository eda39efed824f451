"""How much memory of a device the pretraining of a system takes, known before it runs.

Parameters, gradients and moments are counted. What autograd keeps is traced: one forward pass on the meta device, whose
tensors have shapes alone, while every tensor that is saved for the backward pass is noted. So each knob of a backbone
and each head counts by what it does.
"""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from lightning_modules import cached, languages
from lightning_modules.batch import Example, SegmentState, Tokens, mapped
from lightning_modules.config import identity
from lightning_modules.data import Vocabulary
from lightning_modules.data.formats.text import TABLE
from lightning_modules.draws import Draws
from lightning_modules.model.cache import tensors
from lightning_modules.model.settings import StackSettings
from lightning_modules.model.weights import undrawn
from lightning_modules.places import cache
from lightning_modules.system import System
from lightning_modules.training.execution import ALONE, Execution, recompute_layers, units

_WEIGHT = 4  # bytes of a parameter, of its gradient, and of each of its two moments: all are fp32
_TRACED = 4, 8  # rows; what is kept grows by the same number of bytes with every row
_DEEPEST, _LONGEST = 100, 1 << 15  # layers and positions; a trace of more takes seconds


@dataclass(frozen=True)
class Footprint:
    """Bytes on one device.

    Attributes:
        optimizer: The moments of each parameter, two of AdamW as of LAMB, and a mean where weights are averaged.
        gathered: What devices that have a part of each weight (FSDP) hold of whole ones, and of their gradients.
        update: What a step of the optimiser takes besides them, when those two are gone. LAMB has two tensors the size
            of each parameter, fused AdamW none.
        activations: What the largest moment of a forward and backward pass of one micro-batch keeps besides them.
    """

    parameters: int
    gradients: int
    optimizer: int
    gathered: int
    update: int
    activations: int

    @property
    def total(self) -> int:
        """All of it at once: activations and gathered weights, or what the optimiser's step takes."""
        return self.parameters + self.gradients + self.optimizer + max(self.activations + self.gathered, self.update)


@dataclass(frozen=True)
class Kept:
    """Bytes at the end of a forward pass, each storage once.

    Attributes:
        saved: What autograd saved, without the parameters.
        states: The outputs of embeddings and layers, where autograd did not save them.
        largest: The largest saved tensor; its gradient, which the backward pass makes, is as large.
        carried: What rows that go on hand to the next step.
    """

    saved: int
    states: int
    largest: int
    carried: int

    def at(self, rows: int, more: "Kept") -> "Kept":
        """What so many rows keep, by the straight line through this and ``more``, of `_TRACED` rows."""
        few, many = _TRACED
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return Kept(*(max(0, a + (b - a) * (rows - few) // (many - few)) for a, b in pairs))


def exchanged(system: System) -> int:
    """Bytes of gradients that devices which share a training sum up in each step (DDP): fp32, shared weights once.

    A ring of n devices sends and receives 2 (n - 1) / n times that on each of them.
    """
    return _WEIGHT * system.parameters()


def footprint(system: System, execution: Execution = ALONE) -> Footprint | None:
    """The memory of one device while a system is pretrained; None for networks that no trace can follow.

    With P parameters, and a trace of a micro-batch of the rows that a device has (`Kept`)::

        parameters = gradients = 4 P,   optimizer = 4 P * moments
        activations = saved + states + largest + carried * micro-batches

    Where layers are computed again, ``saved`` is what is saved outside of them, plus what one layer saves, which is the
    difference over the number of layers; the input of each layer is among ``states``. Kernels are those of a GPU:
    attention saves queries, keys, values, output and one number a row; dropout one byte an entry; under bf16 products
    have bf16 inputs and norms fp32 ones. Each of several devices holds all parameters (DDP), whose gradients are views
    of the buckets that are exchanged; or, with FSDP, its part of parameters, gradients and moments, and for the step ::

        gathered = 8 (P - all units) + 12 * largest unit

    weights and gradients of what is no unit (`execution.units`), and of one unit, while the next one's weights come.

    What comes on top is not counted: workspaces of kernels, memory that the allocator cannot use, the CUDA context.
    Not traced are distillations, LSTMs and adaptive softmax, whose shapes depend on what they read, and what no
    published model has: more than 100 layers, or rows of more than 32,768 positions.
    """
    if not traced(system):
        return None
    rows = max(1, system.training.batch_size // execution.ranks)
    micro = min(system.training.micro_batch_size or rows, rows)
    kept = _kept(system, micro, recompute=False)
    saved = kept.saved
    if execution.activation_checkpointing:
        outside = _kept(system, micro, recompute=True).saved
        saved = outside + (saved - outside) // cast(StackSettings, system.model).layers_in_all
    is_divided = execution.strategy == "fsdp"
    weights = _WEIGHT * system.parameters() // (execution.ranks if is_divided else 1)
    return Footprint(
        parameters=weights,
        gradients=weights,
        optimizer=system.moments * weights,
        gathered=_gathered(system) if is_divided else 0,
        update=2 * weights if system.optimizer.algorithm == "lamb" else 0,
        activations=saved + kept.states + kept.largest + kept.carried * -(-rows // micro),
    )


def footprints(systems: Iterable[System], execution: Execution = ALONE) -> list[Footprint | None]:
    """`footprint` of several systems; what was traced by the same code is read from the cache, and kept there.

    The first trace of a process imports for a second and a half.
    """
    path = cache() / "footprints" / f"traces-{identity([str(Path(__file__))])[:16]}.json"
    key = cached.code(Path(__file__).parent)
    _read.update({name: Kept(*sizes) for name, sizes in (cached.recalled(path, key) or {}).items()})
    known = len(_read)
    found = [footprint(system, execution) for system in systems]
    if len(_read) > known:
        cached.remember(path, key, {name: list(vars(kept).values()) for name, kept in _read.items()})
    return found


def _gathered(system: System) -> int:
    with undrawn():
        backbone, _ = system.networks()
    sizes = [sum(weight.numel() for weight in unit.parameters()) for unit in units(backbone)]
    return _WEIGHT * (2 * (system.parameters() - sum(sizes)) + 3 * max(sizes))


def traced(system: System) -> bool:
    """Whether what a system keeps can be computed from shapes, in a moment."""
    lm = system.objectives.lm
    if not isinstance(system.model, StackSettings) or (lm and lm.cutoffs) or system.objectives.distilled:
        return False
    return system.model.layers_in_all <= _DEEPEST and system.format.sequence_length <= _LONGEST


def _kept(system: System, rows: int, recompute: bool) -> Kept:
    key = system.model, system.objectives, system.format, system.training.precision, system.data.tokenizer.vocab_size
    if (found := _found.get((key, rows, recompute))) is None:
        if rows <= max(_TRACED):
            name = identity([*(part.to_dict() for part in key[:3]), *key[3:], rows, recompute])[:24]
            found = _read[name] = _read.get(name) or trace(system, rows, recompute)
        else:
            few, many = (_kept(system, count, recompute) for count in _TRACED)
            found = few.at(rows, many)
        _found[key, rows, recompute] = found
    return found


_found: dict[tuple[Any, int, bool], Kept] = {}  # by architecture: the seeds and rates of a plan share theirs
_read: dict[str, Kept] = {}  # traces, also of earlier processes, by a digest of what was traced


def trace(system: System, rows: int, recompute: bool = False, device: str = "meta") -> Kept:
    """What a forward pass of so many full rows keeps.

    Args:
        recompute: Whether layers are to be computed again: then only what is outside of them is noted.
        device: ``meta`` for shapes alone, as on a GPU; ``cpu`` to compute, as the tests do.
    """
    example = mapped(example_of(system, rows), lambda tensor: tensor.to(device))
    bf16, on_meta = system.training.precision == "bf16", device == "meta"
    with torch.random.fork_rng(devices=[]):
        if on_meta:
            with undrawn():
                backbone, heads = system.networks()
        else:
            backbone, heads = system.networks()
        if recompute:
            recompute_layers(backbone)
        own = {_place(parameter) for network in (backbone, heads) for parameter in network.parameters()}
        carry = backbone.begin(len(example.inputs.ids)) if example.inputs.segment_state else None
        noted: dict[int, Tensor] = {}
        with _noting(noted), _AsOnGpu(bf16) if on_meta else torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            encoded = backbone(example, carry)
            terms = system.objectives.loss(heads, encoded, example)
    assert all(total.requires_grad for total, _, _ in terms.values())
    saved = {place: _bytes(tensor) for place, tensor in noted.items() if place not in own}
    states = {_place(layer): _bytes(layer) for layer in encoded.layers}
    rest = sum(size for place, size in states.items() if place not in saved)
    carried = sum(map(_bytes, tensors(encoded.carry))) if encoded.carry is not None else 0
    return Kept(sum(saved.values()), rest, max(saved.values()), carried)


@contextmanager
def _noting(noted: dict[int, Tensor]) -> Iterator[None]:
    """Notes one tensor of each storage that autograd saves."""

    def note(tensor: Tensor) -> Tensor:
        noted.setdefault(_place(tensor), tensor)  # kept, so that no other storage takes its place
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        yield


def _place(tensor: Tensor) -> int:
    return cast(Any, tensor.untyped_storage())._cdata


def _bytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


class _AsOnGpu(TorchFunctionMode):
    """Lets the meta device, which has neither autocast nor kernels, save what a GPU does."""

    def __init__(self, bf16: bool) -> None:
        super().__init__()
        self.bf16 = bf16
        self.casts: dict[int, Tensor] = {}  # of parameters and biases, made once, as autocast does

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return torch.native_dropout(args[0], kwargs["p"], True)[0]
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if self.bf16 and func in _PRODUCTS:
            args = [self._low(value) for value in args]
        elif self.bf16 and func is F.layer_norm:
            args = [args[0].float(), *args[1:]]
        return func(*args, **kwargs)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, dropout_p: float) -> Tensor:
        shape = *q.shape[:3], k.shape[2]
        bias = None if attn_mask is None else self._low(attn_mask).expand(shape)
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, dropout_p)[0]

    def _low(self, value: Any) -> Any:
        """A tensor as a product reads it."""
        if not (self.bf16 and isinstance(value, Tensor) and value.dtype == torch.float32):
            return value
        if not value.is_leaf:
            return value.bfloat16()
        if _place(value) not in self.casts:
            self.casts[_place(value)] = value.bfloat16()
        return self.casts[_place(value)]


_PRODUCTS = (F.linear, torch.bmm, torch.baddbmm, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.einsum)


def example_of(system: System, rows: int) -> Example:
    """A corrupted micro-batch of full rows of random pieces, which represents any text."""
    length, size = system.format.sequence_length, system.data.tokenizer.vocab_size
    ids = torch.randint(5, size, (rows, length), generator=torch.Generator().manual_seed(0))
    special, streams = torch.zeros(rows, length, dtype=torch.bool), system.format.kind == "stream"
    if system.format.frame == "cls_sep" and not streams:
        special[:, [0, -1]] = True
    tokens = Tokens(
        ids=ids,
        special=special,
        real=torch.ones_like(special),
        sample=torch.arange(rows),
        tables={name: torch.zeros_like(ids) for name in ("segment", *[TABLE] * bool(languages.of(system.model)))},
        labels={"sentence": torch.arange(rows) % 2},
        marks={kind: (torch.arange(length) % 4 == 1).long().expand(rows, -1) for kind in system.objectives.reads},
    )
    if system.format.sides > 1:
        side = torch.arange(length) == length - 1
        source = replace(tokens, special=side.expand(rows, -1), tables={}, labels={})
        tokens = replace(tokens, tables={}, labels={}, ends=source.special, source=source)
    if streams:
        tokens = replace(tokens, following=ids[:, 0], segment_state=SegmentState())
    number = np.arange(rows)
    return system.collate(tokens, Draws(0, number, number, np.zeros(rows, dtype=np.int64)), _vocabulary(size))


@functools.cache
def _vocabulary(size: int) -> Vocabulary:
    """Whole words, and a text with each of them once."""
    return Vocabulary(tuple(map(str, range(size))), np.ones(size, dtype=bool), text=np.arange(5, size))
