"""How much faster a held-out stream is read with a memory than with a context that is read again for each token.

Both ways predict with as long an attention. With a memory of L positions the stream is read in segments of L, each
position once. Read again, each token is predicted from a window of L positions of its own. That is the comparison of
Dai et al. (2019, Table 9) with a plain decoder, here on one model. One process times both in turns, the median counts,
and on a CPU seconds are of the processor: so the ratio depends little on what else a machine does, and on the machine
much.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, Problem
from lightning_modules.data.order.heldout import HeldOutStream
from lightning_modules.objectives.lm import NEXT
from lightning_modules.system import System
from lightning_modules.training.recurrent_state import RecurrentState
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.task import Asking, Found, OfRun

TURNS = 8
_RECIPE = 1  # raise when the same stream would be read otherwise
_WINDOWS = 4  # that are read again in a turn


@dataclass(frozen=True)
class ReadingSpeed(OfRun):
    """Reading one row of a run's held-out stream in two ways."""

    source: str = "Dai et al. 2019, Table 9"
    metrics = {
        "loss": "mean loss of the tokens that are read with a memory, nats",
        "speed_up": "tokens predicted per second with a memory over those with a window read again for each",
        "cached_tokens_per_second": "tokens predicted per second with a memory (on a CPU, of processor time)",
        "recomputed_tokens_per_second": "the same without one, each token from a window of its own",
    }
    reads = frozenset({"memory_length"})
    better = "lower"
    of_weights = False
    recipe = (_RECIPE,)
    own_split: str = "the beginning of the run's own held-out stream"

    def text(self, system: System, settings: Measurement) -> Any:
        """The text of the loss is as long as the attention; speeds compare on any text."""
        return [system.data.essence(), system.format.kind, system.format.frame]

    def problems(self, system: System, settings: Measurement) -> Iterator[Problem]:
        if system.format.kind != "stream" or "memory_length" not in type(system.model).model_fields:
            what = f"format.kind is {system.format.kind}, model.kind {system.get('model.kind')}"
            text = f"{self.name} is of streams and models that count what they remember, and {what}"
            yield Problem("measure", f"{text}: leave {self.name} out")
        elif not _length(system, settings):
            text = f"{self.name} needs the length of the attention, and the model remembers nothing by itself"
            yield Problem("measuring.memory_length", f"{text}: set measuring.memory_length")
        elif system.model.longest and _length(system, settings) > system.model.longest:
            text = f"a window of {_length(system, settings)} positions is longer than model.max_positions"
            text += f" {system.model.longest}: lower measuring.memory_length, or raise it"
            yield Problem("measuring.memory_length", text)

    def positions(self, system: System, settings: Measurement) -> float:
        return _length(system, settings) * (1 + TURNS * (1 + _WINDOWS))

    def memory(self, system: System, settings: Measurement) -> int:
        return _length(system, settings)

    def ask(self, asking: Asking) -> Found:
        system = asking.system
        if system is None:
            raise ConfigError([f"{self.name} is of a run's own stream: ask a run, or choose another task"])
        if problems := list(self.problems(system, asking.settings)):
            raise ConfigError(problems)
        length = _length(system, asking.settings)
        cached, anew = (_opened(system, length, *shape) for shape in ((length, 0), (1, length - 1)))
        state, nats, seconds = RecurrentState(length), [], []
        for turn in range(TURNS + 1):
            ends = np.linspace(turn * length, (turn + 1) * length - 1, _WINDOWS).astype(int)
            windows = [anew.segment(int(end)).to(asking.model.device) for end in ends]
            segment = cached.segment(turn).to(asking.model.device)
            found, once = _timed(lambda segment=segment: _nats(asking, state, segment), asking)
            _, again = _timed(lambda windows=windows: [_nats(asking, state, one) for one in windows], asking)
            nats.append(found)
            seconds.append((once / length, again / _WINDOWS))
        each = np.array(seconds[1:])  # the first turn fills the memory, and warms up
        by_token = np.median(each, axis=0)
        return Found(
            {
                "loss": float(np.concatenate(nats[1:]).mean()),
                "speed_up": float(np.median(each[:, 1] / each[:, 0])),
                "cached_tokens_per_second": float(1 / by_token[0]),
                "recomputed_tokens_per_second": float(1 / by_token[1]),
            }
        )


def _length(system: System, settings: Measurement) -> int:
    given = settings.memory_length
    return getattr(system.model, "memory_length", 0) if given is None else given


def _opened(system: System, attention: int, segment: int, context: int) -> HeldOutStream:
    """One held-out row, in segments of a length, as far as it is read."""
    needed = attention * (TURNS + 1)
    own = {"rows": 1, "sequence_length": segment, "context": context, "memory_length": None}
    read = system.but(**{f"evaluation.{name}": value for name, value in own.items()})
    heldout = read.data_module(0).some_heldout(-(-needed // system.format.sequence_length))
    assert isinstance(heldout, HeldOutStream), "a stream's format has a stream's held-out text"
    if heldout.width < needed:
        text = f"{heldout.width} positions of held-out text are too few to read {needed} of them"
        raise ConfigError([f"{text}: lower measuring.memory_length, or add text"])
    return heldout


@torch.no_grad()
def _nats(asking: Asking, state: RecurrentState, example: Example) -> np.ndarray:
    """The nats of what a batch predicts; they are on the host, so that a device has been waited for."""
    encoded, target = state.encode(asking.model.backbone, example), example.targets[NEXT]
    logits = asking.model.logits(encoded, target.where)
    return F.cross_entropy(logits, target.ids, reduction="none").double().cpu().numpy()


def _timed(read: Callable[[], Any], asking: Asking) -> tuple[Any, float]:
    """What a reading gives, and its seconds."""
    clock = time.process_time if asking.model.device.type == "cpu" else time.monotonic
    started = clock()
    return read(), max(clock() - started, 1e-9)
