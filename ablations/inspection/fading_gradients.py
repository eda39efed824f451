"""How far back the gradient of a prediction reaches: plain RNN, GRU, LSTM and attention, at first and when trained.

The text is made and its one dependency is known: behind the mark *again* is the word of a fixed number of words
before. The gradient is that of the loss of the word behind the last mark of a row, by the embedding of each word. A
distance is counted from the word that is predicted, so the mark has distance 1 and the word to copy that of the text.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ablations.core.formatting import Sheet, markdown
from ablations.core.shown import Shown
from ablations.core.statistics import Interval, mean_interval
from ablations.figures.style import FAINT, SERIES, Drawing, blank, titles
from lightning_modules.batch import Example, Tokens, Visibility
from lightning_modules.data.corpora.made import WORDS, Language
from lightning_modules.model import Transformer

_CELLS = {"plain RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
READERS = (*_CELLS, "attention")
_WIDTH = 64
_SENTENCE, _SENTENCES = 5, 8  # words of one, and how many a row has
_ROWS, _ASKED = 32, 512  # of a training step, and whose gradients are measured
_RATE, _CLIP, _WARM_UP = 1e-2, 1.0, 50
_LEAST = 1e-6  # of a gradient's share that a figure shows
_UNSEEN = 1 << 30  # number of the first document that no training reads


class _Reader(nn.Module):
    """One layer that reads words from the left, and a linear map of its states to the next word."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embeddings: nn.Module
        if name in _CELLS:
            self.embeddings = nn.Embedding(len(WORDS), _WIDTH)
            nn.init.normal_(self.embeddings.weight, std=0.5)
            self.layers: nn.Module = _CELLS[name](_WIDTH, _WIDTH, batch_first=True)
        else:
            self.layers = Transformer(
                num_layers=1,
                hidden_size=_WIDTH,
                num_heads=4,
                positions="rotary",
                norm="pre",
                direction="left_to_right",
                segment_types=0,
                embedding_dropout=0.0,
                dropout=0.0,
                attention_dropout=0.0,
                init_std=0.05,
            ).build(len(WORDS))
            self.embeddings = self.layers.embeddings
        self.next = nn.Linear(_WIDTH, len(WORDS))

    def forward(self, ids: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        if isinstance(self.layers, nn.RNNBase):
            return self.next(self.layers(self.embeddings(ids))[0])
        special = torch.zeros_like(ids, dtype=torch.bool)
        example = Example.of(Tokens(ids, special, ~special, torch.arange(len(ids))))
        return self.next(self.layers(replace(example, visible=Visibility(causal=True))).last)

    def gradients(self, rows: Int[Tensor, "b t"]) -> tuple[Float[Tensor, "b t-1"], Float[Tensor, " b"]]:
        """The length of the gradient of the loss of each row's last word by the embedding of each word before it, the
        nearest first, and that loss in nats.
        """
        read: list[Tensor] = []
        hook = self.embeddings.register_forward_hook(lambda *about: read.append(about[2]))
        logits = self(rows[:, :-1])[:, -1]
        hook.remove()
        nats = F.cross_entropy(logits, rows[:, -1], reduction="none")
        (gradient,) = torch.autograd.grad(nats.sum(), read)
        return gradient.norm(dim=-1).flip(1), nats.detach()


@dataclass(frozen=True)
class Fading:
    """The readers on one text, each from several seeds.

    Attributes:
        copies: Words from a copy back to what it repeats, a multiple of five.
        is_copied: Whether anything is copied. Without it the text has the same marks and words, and none depends on one
            so far back: the control.
        steps: Steps of each training.
        seeds: Trainings of each reader.
    """

    copies: int = 5
    is_copied: bool = True
    steps: int = 500
    seeds: int = 4

    @property
    def language(self) -> Language:
        """The made text: a subject, a filler, its verb, a mark and a word in each sentence.

        Raises:
            ConfigError: For a distance that is no number of whole sentences, or longer than a row.
        """
        copies = f"copies={self.copies}" if self.is_copied else "no-copies"
        return Language.of(f"agreement=2,{copies},length={_SENTENCE},sentences={_SENTENCES}")

    def _rows(self, first: int, count: int) -> Int[Tensor, "b t"]:
        return torch.from_numpy(self.language.numbers(np.arange(first, first + count))).reshape(count, -1)

    @cached_property
    def _asked(self) -> Int[Tensor, "b t"]:
        """Unseen rows whose last word is behind the mark *again*."""
        rows, again = self._rows(_UNSEEN, 2 * _ASKED), WORDS.index(self.language.vocabulary["mark"][1])
        return rows[rows[:, -2] == again]

    @cached_property
    def data(self) -> pd.DataFrame:
        """A row for each reader, seed, moment (``start``, ``trained``) and distance. ``share`` is the mean length of
        the gradient over that at distance 1. ``nats`` is the mean loss of what is behind *again*.
        """
        return pd.concat(self._measured(name, seed) for name in READERS for seed in range(self.seeds))

    def _measured(self, name: str, seed: int) -> pd.DataFrame:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            reader = _Reader(name)
        found = [self._asked_of(reader)]
        self._train(reader, seed)
        found.append(self._asked_of(reader))
        parts = [part.assign(moment=moment) for part, moment in zip(found, ("start", "trained"), strict=True)]
        return pd.concat(parts).assign(reader=name, seed=seed)

    def _asked_of(self, reader: _Reader) -> pd.DataFrame:
        exact = copy.deepcopy(reader).double()  # what attention leaves of a word would be zero otherwise
        lengths, nats = exact.gradients(self._asked)
        mean = lengths.mean(0)
        distances = range(1, len(mean) + 1)
        return pd.DataFrame({"distance": distances, "share": (mean / mean[0]).tolist(), "nats": float(nats.mean())})

    def _train(self, reader: _Reader, seed: int) -> None:
        """Adam, with a rate that rises linearly and then falls to zero over the second half."""
        optimizer = torch.optim.Adam(reader.parameters(), lr=_RATE)
        for step in range(self.steps):
            rate = _RATE * min(1.0, (step + 1) / _WARM_UP, 2 * (self.steps - step) / self.steps)
            optimizer.param_groups[0]["lr"] = rate
            rows = self._rows((seed * self.steps + step) * _ROWS, _ROWS)
            loss = F.cross_entropy(reader(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(reader.parameters(), _CLIP)
            optimizer.step()

    def curve(self, name: str, moment: str) -> list[Interval]:
        """The logarithm of ``share`` (`_LEAST` at least) at each distance: its mean over seeds with an interval."""
        table = self._table(name, moment).pivot_table(index="distance", columns="seed", values="share")
        return [mean_interval(np.log(row).tolist()) for row in np.maximum(table.to_numpy(), _LEAST)]

    def _table(self, name: str, moment: str) -> pd.DataFrame:
        return self.data.query("reader == @name and moment == @moment")

    def picture(self) -> Drawing:
        """Gradients by distance, at the start and after training."""
        figure = blank(4.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, moment in zip(panels, ("start", "trained"), strict=True):
            for name, colour in zip(READERS, SERIES, strict=False):
                curve = self.curve(name, moment)
                at = np.arange(1, len(curve) + 1)
                axes.plot(at, [math.exp(point.mean or 0.0) for point in curve], color=colour, lw=1.8, label=name)
                known = [point for point in curve if point.low is not None]
                if known:
                    low, high = ([math.exp(x) for x in side] for side in _sides(curve))
                    axes.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)
            if self.is_copied:
                axes.axvline(self.copies, color=FAINT, lw=1, ls=(0, (5, 3)))
            axes.set_yscale("log")
            axes.set_ylim(0.5 * _LEAST, 30)
            axes.set_yticks([1e-6, 1e-4, 1e-2, 1], ["1e-6", "1e-4", "0.01", "1"])
            axes.minorticks_off()
            axes.set_title("with random weights" if moment == "start" else f"after {self.steps:,} steps")
            axes.set_xlabel("distance in words")
        panels[0].set_ylabel("length of the gradient,\nover that of the last word")
        panels[1].legend(loc="upper right", ncols=2, fontsize=8)
        copied = f"Dashed: the word to copy, {self.copies} words back." if self.is_copied else ""
        titles(
            figure,
            "How a gradient fades with distance",
            f"{copied} Lines: means of logarithms over {self.seeds} seeds. Bands: their 95 % intervals. "
            "Less than 1e-6 counts as 1e-6.",
        )
        return figure

    def table(self) -> Shown:
        """What is left of a gradient a word farther, how much is at the word to copy, and whether that is learned."""
        rows = [row for name in READERS for row in self._lines(name)]
        texts = [[row["reader"], _told(row, "factor", 2), _told(row, "trained", 2),
                  _told(row, "there", 2), _told(row, "nats", 2)] for row in rows]  # fmt: skip
        titles = [
            "reader",
            "a word farther, at the start",
            "a word farther, trained",
            f"share {self.copies} words back, trained",
            "loss of a copy (nats)",
        ]
        return Shown(markdown(Sheet(titles, texts, left=1)), pd.DataFrame(rows))

    def _lines(self, name: str) -> Iterator[dict[str, object]]:
        start, trained = (self._table(name, moment) for moment in ("start", "trained"))
        found = {
            "factor": [_factor(part) for _, part in start.groupby("seed")],
            "trained": [_factor(part) for _, part in trained.groupby("seed")],
            "there": [_share(part, self.copies) for _, part in trained.groupby("seed")],
            "nats": [float(part["nats"].to_numpy()[0]) for _, part in trained.groupby("seed")],
        }
        row: dict[str, object] = {"reader": name}
        for key, values in found.items():
            interval = mean_interval(values)
            row |= {key: interval.mean, f"{key}_half": interval.half}
        yield row


def _sides(curve: Sequence[Interval]) -> tuple[list[float], list[float]]:
    return [point.low or 0.0 for point in curve], [point.high or 0.0 for point in curve]


def _share(part: pd.DataFrame, distance: int) -> float:
    """The gradient at a distance, of the sum over all distances."""
    share = part["share"].to_numpy()
    return float(share[distance - 1] / share.sum())


def _factor(part: pd.DataFrame) -> float:
    """By what the gradient is multiplied for each word that is farther away: the slope of its logarithm."""
    return float(np.exp(np.polyfit(part["distance"], np.log(part["share"]), 1)[0]))


def _told(row: dict[str, object], key: str, digits: int) -> str:
    mean, half = row[key], row[f"{key}_half"]
    assert isinstance(mean, float)
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if isinstance(half, float) else "")
