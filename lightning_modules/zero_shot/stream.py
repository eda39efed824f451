"""The held-out stream of a run, read in other segments, contexts and memories than while it was trained.

How a stream is read is no part of a training: lengths are settings of a measurement, so one training is read at all of
them. Settings that are not given are those of the run's own evaluation. The tokens are the same however they are read;
with a lead, those at the beginning of rows predict nothing, and all others have so many before them.

What is read again before a single token may be in random order from one distance to another (Khandelwal et al. 2018,
section 5). The order is drawn once for each token, the same for all models; ends of documents move with the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError, Problem
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.order.heldout import HeldOutStream
from lightning_modules.draws import Draws
from lightning_modules.objectives.lm import NEXT
from lightning_modules.system import System
from lightning_modules.training.recurrent_state import RecurrentState
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.task import Asking, Found, OfRun

_RECIPE = 1  # raise when the same stream would be read otherwise
_FEW = 1 << 12  # so many tokens are examples each; of more, neighbours in a row are put together
_TOGETHER = 32  # at least
_MOST = 8_192  # examples, whatever is read, so that a record has room for their losses and documents
_OF_EVALUATION = ("sequence_length", "context", "memory_length")
_SHUFFLED = ("shuffle_from", "shuffle_to")
_SEED = 0  # all runs read the same orders


@dataclass(frozen=True)
class ReadStream(OfRun):
    """The held-out stream of a run."""

    source: str = "held-out text of the corpora of a run"
    metrics = {
        "loss": "mean loss of next tokens, nats",
        "accuracy": "share of next tokens that are the most probable one",
    }
    reads = frozenset({"examples", "lead", "memory_from", *_SHUFFLED, *_OF_EVALUATION})
    better = "lower"
    recipe = (_RECIPE,)
    own_split: str = "rows of the run's own held-out stream"

    def text(self, system: System, settings: Measurement) -> Any:
        form = system.format
        order = form.sentence_order if form.kind == "stream" else ""
        positions = form.sequence_length * _sequences(system, settings)  # however long the segments of the training are
        shape = [positions, system.evaluation.rows, settings.lead]
        return [system.data.essence(), form.kind, form.frame, order, *shape]

    def problems(self, system: System, settings: Measurement) -> Iterator[Problem]:
        if system.format.kind != "stream":
            text = f"{self.name} reads a stream, and format.kind is {system.format.kind}: set it to stream, or leave"
            yield Problem("measure", f"{text} {self.name} out")
            return
        try:
            read = _as_read(system, settings)
        except ConfigError as error:
            named = "; ".join(problem.message for problem in error.problems)
            yield Problem("measuring", named.replace("evaluation.", "measuring."))
            return
        if settings.memory_from == "other_row":
            yield from _nothing_foreign(read)
        yield from _nothing_shuffled(read, settings)
        length = read.evaluation.sequence_length or read.format.sequence_length
        width = read.format.sequence_length * _sequences(system, settings) // read.evaluation.rows
        if settings.lead % length:
            near = settings.lead // length * length
            text = f"measuring.lead {settings.lead} cuts a segment of {length} positions: set it to {near}"
            yield Problem("measuring.lead", f"{text} or {near + length}")
        elif settings.lead >= width:
            text = f"measuring.lead {settings.lead} leaves none of the {width} positions of a row to predict: lower it"
            yield Problem("measuring.lead", f"{text}, raise measuring.examples, or lower evaluation.rows")

    def positions(self, system: System, settings: Measurement) -> float:
        read = _as_read(system, settings)
        length = read.evaluation.sequence_length or read.format.sequence_length
        tokens = read.format.sequence_length * _sequences(system, settings)
        if read.evaluation.context:
            tokens -= settings.lead * read.evaluation.rows  # a lead that is context is not read by itself
        passes = 1 if settings.memory_from == "own_row" else 2
        return passes * tokens * (1 + read.evaluation.context / length)

    def memory(self, system: System, settings: Measurement) -> int:
        read = _as_read(system, settings)
        return 0 if read.evaluation.context else _remembered(read)

    def ask(self, asking: Asking) -> Found:
        system, settings = asking.system, asking.settings
        if system is None:
            raise ConfigError([f"{self.name} is of a run's own stream: ask a run, or choose another task"])
        if problems := list(self.problems(system, settings)):
            raise ConfigError(problems)
        read = _as_read(system, settings)
        heldout = read.data_module(0).some_heldout(_sequences(system, settings))
        assert isinstance(heldout, HeldOutStream), "a stream's format has a stream's held-out text"
        if settings.lead >= heldout.width:
            text = f"measuring.lead {settings.lead} leaves none of the {heldout.width} positions of a row to predict"
            raise ConfigError([f"{text}: lower it, or add held-out text"])
        state = RecurrentState(read.evaluation.memory_length, foreign=settings.memory_from == "other_row")
        nats, right = _read(asking, heldout, state)
        each = max(_TOGETHER, -(-nats.size // _MOST)) if nats.size > _FEW else 1
        starts = np.arange(0, nats.shape[1], each)
        counts = np.broadcast_to(np.diff(np.append(starts, nats.shape[1])), (len(nats), len(starts)))
        return Found(
            {"loss": float(nats.mean()), "accuracy": float(right.mean())},
            {"loss": (np.add.reduceat(nats, starts, axis=1) / counts).ravel()},
            counts.ravel().astype(float),
            _documents(heldout, settings.lead + starts),
        )


def _sequences(system: System, settings: Measurement) -> int:
    """As many positions are read as so many sequences of the training have."""
    return settings.examples or system.evaluation.sequences_at_end


def _nothing_foreign(read: System) -> Iterator[Problem]:
    """Why no row can be read with what is remembered of another one."""
    has_length = hasattr(read.model, "memory_length")  # a recurrent model carries its state, which has none
    for is_so, named, change in (
        (bool(read.evaluation.context), "a context that is read again", "set measuring.context to 0"),
        (has_length and not _remembered(read), "a memory of 0 positions", "set measuring.memory_length"),
        (read.evaluation.rows == 1, "evaluation.rows 1", "set it to 2 or more"),
    ):
        if is_so:
            text = f"measuring.memory_from other_row has no other text to remember with {named}: {change}"
            yield Problem("measuring.memory_from", f"{text}, or memory_from to own_row")


def _nothing_shuffled(read: System, settings: Measurement) -> Iterator[Problem]:
    """Why nothing of what is read can be shuffled as requested."""
    first, last, seen = settings.shuffle_from, settings.shuffle_to, read.evaluation.context + 1
    if first is None:
        if last is not None:
            yield Problem("measuring.shuffle_to", f"measuring.shuffle_to {last} needs measuring.shuffle_from: set it")
    elif (read.evaluation.sequence_length or read.format.sequence_length) > 1 or seen == 1:
        text = f"measuring.shuffle_from {first} is a distance from one predicted token: set measuring.sequence_length"
        yield Problem("measuring.shuffle_from", f"{text} to 1, and measuring.context to what is read again before it")
    elif min(last or seen, seen) <= first:
        text = f"measuring.shuffle_from {first} leaves fewer than two of the tokens up to a distance of"
        yield Problem("measuring.shuffle_from", f"{text} {min(last or seen, seen)} to shuffle: lower it")


def _remembered(read: System) -> int:
    """The positions that a model remembers on held-out text."""
    given = read.evaluation.memory_length
    return getattr(read.model, "memory_length", 0) if given is None else given


def _as_read(system: System, settings: Measurement) -> System:
    """The run with the settings of a measurement in the place of those of its evaluation."""
    given = {name: getattr(settings, name) for name in _OF_EVALUATION}
    return system.but(**{f"evaluation.{name}": value for name, value in given.items() if value is not None})


@torch.no_grad()
def _read(asking: Asking, heldout: HeldOutStream, state: RecurrentState) -> tuple[np.ndarray, np.ndarray]:
    """Nats of each token, and whether it is the most probable one ``[rows, width]``."""
    model, lead, nats, right = asking.model, asking.settings.lead, [], []
    for segment in range(heldout.segments):
        is_lead = segment * heldout.reading.length < lead
        if is_lead and heldout.reading.context:
            continue  # nothing is carried from it
        example = heldout.segment(segment)
        example = replace(example, inputs=_shuffled(example.inputs, asking.settings)).to(model.device)
        encoded, target = state.encode(model.backbone, example), example.targets[NEXT]
        if not is_lead:
            logits = model.logits(encoded, target.where)
            nats.append(F.cross_entropy(logits, target.ids, reduction="none").double().cpu().numpy())
            right.append((logits.argmax(-1) == target.ids).cpu().numpy())
    rows = heldout.reading.rows
    joined = [np.concatenate([part.reshape(rows, -1) for part in parts], axis=1) for parts in (nats, right)]
    return joined[0], joined[1]


def _shuffled(tokens: Tokens, settings: Measurement) -> Tokens:
    """The rows with the tokens at some distances from what their last one predicts in random order."""
    if settings.shuffle_from is None:
        return tokens
    length, sample = tokens.ids.shape[1], tokens.sample.numpy()
    first = max(0, length - (settings.shuffle_to or length))
    end = max(first, length - settings.shuffle_from + 1)
    keys = Draws(_SEED, sample, sample, np.zeros_like(sample)).uniform("order of context", end - first)
    order = torch.arange(length).repeat(len(sample), 1)
    order[:, first:end] = first + torch.from_numpy(keys.argsort(1))
    return replace(tokens, ids=tokens.ids.gather(1, order), special=tokens.special.gather(1, order))


def _documents(heldout: HeldOutStream, columns: np.ndarray) -> np.ndarray:
    """The document of the token at each column of each row ``[rows * columns]``."""
    stream = heldout.sequences
    assert isinstance(stream, Stream)
    places = (stream.edges[heldout.chosen[: heldout.reading.rows]][:, None] + columns).ravel()
    words = places - np.searchsorted(stream.ends, places, side="left")  # ends of documents are in no store
    return np.searchsorted(stream.store.document_starts, words, side="right")
