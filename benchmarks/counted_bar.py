"""What counting reaches on the held-out text of a grid's cells: the bar that its models have to pass.

    ABLATIONS_DATA=... python benchmarks/counted_bar.py masking_ratio demo

Counts everything that the models have read, the text of the trunks that they continue included, and writes
``results/bars/<id of the held-out text>.json``, which pages read. A hidden word is predicted by

    P(w) proportional to the product over contexts of P(w | context)^exponent, times P(w)^exponent

over the whole vocabulary. Each P(w | context) is counted with absolute discounting and interpolated with P(w). Contexts
are the word on the left and that on the right (the product of neighbours: P(w|left) P(w|right) / P(w)); then two words
on either side, and one on both. A context with a hidden word is unknown, and gives P(w). Exponents and discount are
fitted on the held-out text of the trunk, which is not judged. Neighbours alone and all contexts have a score each.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablations.core.disk import kept_weights
from ablations.core.disk.bars import Bar, write
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.batch import Example
from lightning_modules.data import TokenStore, fingerprints_of, open_store
from lightning_modules.system import System

NEIGHBOURS = ((-1,), (1,))  # offsets of the words of a context
CONTEXTS = (*NEIGHBOURS, (-2, -1), (1, 2), (-1, 1))
DISCOUNTS = (0.5, 0.7, 0.8, 0.9)
FITTED = 4_000  # hidden words on which exponents are fitted
_CHUNK = 1 << 22  # tokens counted at once


@dataclass(frozen=True)
class Questions:
    """Hidden words ``[n]`` and the words of each context ``[n offsets]``, -1 where one is hidden."""

    words: np.ndarray
    contexts: dict[tuple[int, ...], np.ndarray]

    @classmethod
    def of(cls, examples: Sequence[Example], mask: int) -> "Questions":
        """The questions of held-out examples; what the models see is what counting sees."""
        words, contexts = [], {offsets: [] for offsets in CONTEXTS}
        for example in examples:
            inputs, target = example.inputs, example.targets["mlm"]
            known = inputs.real & ~inputs.special & (inputs.ids != mask)
            seen = np.pad(np.where(known.numpy(), inputs.ids.numpy(), -1), ((0, 0), (2, 2)), constant_values=-1)
            row, column = np.divmod(target.where.numpy(), inputs.ids.shape[1])
            words.append(target.ids.numpy())
            for offsets, found in contexts.items():
                found.append(np.stack([seen[row, column + 2 + offset] for offset in offsets], axis=1))
        return cls(np.concatenate(words), {offsets: np.concatenate(found) for offsets, found in contexts.items()})

    def some(self, most: int) -> "Questions":
        """At most so many, evenly spread."""
        kept = np.linspace(0, len(self.words) - 1, min(most, len(self.words))).astype(int)
        return Questions(self.words[kept], {offsets: found[kept] for offsets, found in self.contexts.items()})


class Counts:
    """How often each word of the vocabulary stands in the contexts of some questions.

    Args:
        stores: The text that is counted.
        asked: All questions that will be asked.
    """

    def __init__(self, stores: Sequence[TokenStore], asked: Sequence[Questions]) -> None:
        self.size = stores[0].vocabulary.size
        self.words = np.sum([np.bincount(store.ids, minlength=self.size) for store in stores], axis=0)
        self.rows, self.table = {}, {}
        for offsets in CONTEXTS:
            keys = np.unique(np.concatenate([self._key(questions.contexts[offsets]) for questions in asked]))
            keys = keys[keys >= 0]
            place = np.full(self.size ** len(offsets), -1, dtype=np.int32)
            place[keys] = np.arange(len(keys))
            counts = np.zeros(len(keys) * self.size, dtype=np.int32)
            for store in stores:
                for start in range(0, len(store.ids), _CHUNK):
                    cells = self._cells(store.ids[max(0, start - 2) : start + _CHUNK + 2], offsets, place)
                    counts += np.bincount(cells, minlength=len(counts)).astype(np.int32)
            self.rows[offsets], self.table[offsets] = place, counts.reshape(len(keys), self.size)

    def _key(self, context: np.ndarray) -> np.ndarray:
        """One number a context ``[n]``, -1 for one with an unknown word."""
        keys = np.zeros(len(context), dtype=np.int64)
        for column in context.T:
            keys = keys * self.size + column
        return np.where((context < 0).any(1), -1, keys)

    def _cells(self, ids: np.ndarray, offsets: tuple[int, ...], place: np.ndarray) -> np.ndarray:
        """Row and word, as one number, of each place whose context some question has; two at both ends are left out."""
        ids = ids.astype(np.int64)
        inner = np.arange(2, len(ids) - 2)
        row = place[self._key(np.stack([ids[inner + offset] for offset in offsets], axis=1))]
        return row[row >= 0].astype(np.int64) * self.size + ids[inner][row >= 0]

    def logs(self, questions: Questions, discount: float) -> Tensor:
        """Logarithms of P(w | context) of every word, the last without a context ``[n contexts+1 v]``."""
        alone = (self.words + 1) / (self.words.sum() + self.size)
        logs = []
        for offsets in CONTEXTS:
            keys = self._key(questions.contexts[offsets])
            rows = np.where(keys >= 0, self.rows[offsets][keys], -1)
            counts = self.table[offsets][rows].astype(np.float32) * (rows >= 0)[:, None]
            total = np.maximum(counts.sum(1, keepdims=True), 1e-9)
            kept = np.maximum(counts - discount, 0)
            left = np.where(counts.sum(1, keepdims=True) > 0, 1 - kept.sum(1, keepdims=True) / total, 1.0)
            logs.append(np.log(kept / total + left * alone))
        logs.append(np.broadcast_to(np.log(alone), logs[0].shape))
        return torch.from_numpy(np.stack(logs, axis=1).astype(np.float32))


def loss(logs: Tensor, words: Tensor, exponents: Tensor) -> Tensor:
    """Nats a question of the product, normalised over the vocabulary."""
    return torch.nn.functional.cross_entropy(torch.einsum("ncv,c->nv", logs, exponents), words)


def fitted(logs: Tensor, words: Tensor, used: Sequence[int]) -> tuple[float, Tensor]:
    """The lowest loss with some contexts, and the exponents of all, 0 for the others."""
    shown = logs[:, used]
    exponents = torch.full((len(used),), 1.0 / len(used), requires_grad=True)
    optimizer = torch.optim.LBFGS([exponents], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(shown, words, exponents)
        value.backward()
        return value

    optimizer.step(closure)
    every = torch.zeros(logs.shape[1])
    every[list(used)] = exponents.detach()
    return float(loss(logs, words, every)), every


def asked(system: System, count: int) -> Questions:
    """The questions of a system's held-out text."""
    data = system.data_module(0)
    examples = list(islice(data.some_heldout(count), 10_000))
    return Questions.of(examples, open_store(system.data, "train").vocabulary.mask)


def main(grid: str, scale: str, results: str | None = None) -> None:
    """Computes and writes the bar of a grid's cells at a scale, which have one held-out text and a finished run."""
    records = Records(results)
    found = plan(grids.read(grid), scale, records=records)
    run = found.cells[0].runs[0]
    kept_weights.lend_tokenizer(records.folder, run)
    systems = [run.system, *([before] if (before := run.system.continued_from) else [])]
    judged = asked(run.system, run.system.evaluation.sequences_at_end)
    other = asked(systems[-1], 2_000).some(FITTED)
    counts = Counts([open_store(system.data, "train") for system in systems], [judged, other])
    words = torch.from_numpy(judged.words)
    methods: dict[str, dict[str, Any]] = {}
    ways = {"one word on either side": (0, 1, 5), "two words on either side": tuple(range(len(CONTEXTS) + 1))}
    for name, used in ways.items():
        tried = {d: fitted(counts.logs(other, d), torch.from_numpy(other.words), used) for d in DISCOUNTS}
        discount = min(tried, key=lambda d: tried[d][0])
        exponents = tried[discount][1]
        sums = [
            float(loss(counts.logs(part, discount), torch.from_numpy(part.words), exponents)) * len(part.words)
            for part in _parts(judged)
        ]
        numbers = [round(float(value), 3) for value in exponents]
        methods[name] = {"nats": sum(sums) / len(words), "discount": discount, "exponents": numbers}
        methods[name]["nats on the text of the fit"] = tried[discount][0]
    texts = [" and ".join(system.data.corpora) for system in systems]
    bar = Bar(
        metric="heldout.loss",
        scores={f"product of counts, {name}": methods[name]["nats"] for name in ways},
        recipe={
            "script": f"benchmarks/counted_bar.py {grid} {scale}",
            "counted": fingerprints_of(name for system in systems for name in system.data.corpora),
            "contexts": [list(offsets) for offsets in CONTEXTS],
            "fitted on": f"{len(other.words):,} hidden words of the held-out text of {texts[-1]}",
            "judged on": f"{len(judged.words):,} hidden words of the held-out text of {texts[0]}",
            "methods": methods,
        },
    )
    sums = next(filter(None, (records.sums(run.id) for cell in found.cells for run in cell.runs)))
    print(write(records.folder, sums["text"], bar), json.dumps(bar.to_dict(), indent=1), sep="\n")


def _parts(questions: Questions) -> list[Questions]:
    """A thousand questions at a time."""
    return [
        Questions(questions.words[n : n + 1000], {o: found[n : n + 1000] for o, found in questions.contexts.items()})
        for n in range(0, len(questions.words), 1000)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
