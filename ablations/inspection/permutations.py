"""Permutations: who may look where in an order, and what a pair of trained models says of two hidden words at once."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ablations.core.formatting import Sheet, markdown
from ablations.core.shown import Shown
from ablations.figures.style import FAINT, OKABE_ITO, Drawing, blank, shown, titles
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.made import PREFIX, Language
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.objectives import own_heads
from lightning_modules.objectives.plm import visible, with_targets
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.training.module import Pretrain
from lightning_modules.training.weights import WEIGHTS, load_into

_CONTEXT, _EARLIER, _ITSELF = OKABE_ITO[5], OKABE_ITO[0], OKABE_ITO[4]
_UPRIGHT = 20  # letters of a sentence whose words fit below its columns
_MASKED, _PERMUTED = "masked", "permuted"


@dataclass(frozen=True)
class Orders:
    """A sentence whose hidden words are predicted in several orders.

    Attributes:
        words: The words, each once.
        orders: The hidden words in the order in which they are predicted; all orders are of the same words.
    """

    words: Sequence[str]
    orders: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        hidden = set(self.orders[0]) if self.orders else set()
        alike = all(set(order) == hidden and len(order) == len(hidden) for order in self.orders)
        if len(set(self.words)) < len(self.words) or not hidden or not hidden <= set(self.words) or not alike:
            raise ConfigError(
                [f"orders need words that occur once in {' '.join(self.words)!r}, the same ones in every order"]
            )

    def ranks(self, order: Sequence[str]) -> torch.Tensor:
        """The rank of each word in an order ``[1 t]``; -1 for context."""
        return torch.tensor([[list(order).index(word) if word in order else -1 for word in self.words]])

    def picture(self) -> Drawing:
        """What the states of words see, and what the queries that predict them see, in each order."""
        figure = blank(0.9 + 2.35 * len(self.orders))
        panels = figure.subplots(len(self.orders), 2, squeeze=False)
        for (left, right), order in zip(panels, self.orders, strict=True):
            ranks = self.ranks(order)
            seen = visible(ranks)[0].numpy()
            hidden = (ranks[0] >= 0).numpy()
            self._draw(left, seen | np.eye(len(self.words), dtype=bool), hidden, rows=np.ones_like(hidden))
            self._draw(right, seen, hidden, rows=hidden)
            left.set_title(shown(f"{', then '.join(order)}: states"))
            right.set_title("queries")
        titles(
            figure,
            "Rows are words, columns what they see",
            "Light: context. Dark: a hidden word that comes before it in the order. Orange: itself. Empty: not seen.",
        )
        return figure

    def _draw(self, axes: Axes, seen: np.ndarray, hidden: np.ndarray, rows: np.ndarray) -> None:
        for row, column in np.ndindex(seen.shape):
            if not rows[row]:
                continue
            colour = _ITSELF if row == column else _EARLIER if hidden[column] else _CONTEXT
            face = colour if seen[row, column] else "white"
            axes.add_patch(Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, facecolor=face, edgecolor=FAINT, lw=0.6))
        places = range(len(self.words))
        long = len(" ".join(self.words)) > _UPRIGHT
        upright: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(places, [shown(word, 12) for word in self.words], **upright)
        named = [place for place in places if rows[place]]
        axes.set_yticks(named, [shown(self.words[place], 12) for place in named])
        axes.set_xlim(-0.6, len(self.words) - 0.4)
        axes.set_ylim(len(self.words) - 0.4, -0.6)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    def conditions(self) -> Shown:
        """What each objective says of the hidden words, as a product, and which of them a factor knows."""
        hidden = [word for word in self.words if word in self.orders[0]]
        before = {word: self.words[: list(self.words).index(word)] for word in hidden}
        context = [word for word in self.words if word not in hidden]
        said: dict[str, Sequence[tuple[str, Sequence[str]]]] = {"next words": [(word, before[word]) for word in hidden]}
        said["masked"] = [(word, context) for word in hidden]
        for order in self.orders:
            told = [(word, [w for w in self.words if w in (*context, *order[:n])]) for n, word in enumerate(order)]
            said[f"permuted: {', '.join(order)}"] = told
        rows = [
            {
                "objective": name,
                "formula": " ".join(f"p({w} | {' '.join(given)})" if given else f"p({w})" for w, given in parts),
                "context": "all" if all(set(context) <= set(given) for _, given in parts) else "left of it",
                "told": sum(word in hidden for _, given in parts for word in given),
            }
            for name, parts in said.items()
        ]
        table = Sheet(
            ["objective", "what it says of the hidden words", "context", "hidden words that it sees"],
            [[row["objective"], row["formula"], row["context"], f"{row['told']}"] for row in rows],
            left=3,
        )
        return Shown(markdown(table), pd.DataFrame(rows))


@dataclass(frozen=True)
class TrainedPair:
    """Two tiny models of made text, one masked and one of permuted prediction, as the grid ``joint_targets`` has them.

    Attributes:
        steps: Optimiser steps of each.
        seed: Of both.
    """

    steps: int = 800
    seed: int = 0

    @cached_property
    def systems(self) -> dict[str, System]:
        """Objective -> system."""
        cells = plan(grids.read("joint_targets"), "mechanism", filters={"text": "joint"}).cells
        return {cell.values["objective"]: cell.system.but(**{"training.steps": self.steps}) for cell in cells}

    @cached_property
    def _trained(self) -> dict[str, tuple[Pretrain, dict[str, float]]]:
        found = {}
        for name, system in self.systems.items():
            with tempfile.TemporaryDirectory() as folder:
                metrics = fit(system, self.seed, Path(folder)).metrics
                module = system.build(self.seed)
                load_into(module, Path(folder) / WEIGHTS)
            found[name] = module.eval(), dict(metrics)
        return found

    @property
    def language(self) -> Language:
        """The made text."""
        (name,) = self.systems[_MASKED].data.corpora
        return Language.of(name.removeprefix(f"{PREFIX}:"))

    def losses(self) -> Shown:
        """What both say of two neighbouring hidden words, next to the best that can be said."""
        words = self.systems[_MASKED].format.sequence_length - 2
        best = [self.language.neighbours_nats(words, together=together) for together in (True, False)]
        rows = [
            {"objective": name, "together": metrics["heldout.joint_loss"], "alone": metrics["heldout.joint_alone_loss"]}
            for name, (_, metrics) in self._trained.items()
        ]
        rows.append({"objective": "the best possible", "together": best[0], "alone": best[1]})
        table = Sheet(
            ["objective", "both, as it says them (nats)", "each alone (nats)"],
            [[row["objective"], f"{row['together']:.2f}", f"{row['alone']:.2f}"] for row in rows],
            left=1,
        )
        return Shown(markdown(table), pd.DataFrame(rows))

    def joint(self, objective: str) -> pd.DataFrame:
        """Probabilities of first words and second words, both hidden in one held-out sentence ``[8 8]``."""
        (module, _), tokens, at, (firsts, seconds) = self._trained[objective], *self._sentence()
        if objective == _MASKED:
            ids = tokens.ids.clone()
            ids[0, [at, at + 1]] = self._heldout.sequences.store.vocabulary.mask
            target = Target(torch.tensor([at, at + 1]), torch.zeros(2, dtype=torch.long))
            example = replace(Example.of(replace(tokens, ids=ids)), targets={"mlm": target})
            first, second = self._said(module, "mlm", example)
            table = first[firsts, None] * second[None, seconds]
        else:
            rows = Example.of(tokens).rows(torch.arange(len(tokens.ids)).repeat_interleave(len(firsts)))
            rows.inputs.ids[:, at] = torch.tensor(firsts)
            order = torch.where(rows.inputs.special, 2, -1)  # hidden from the context, as in training
            order[:, at], order[:, at + 1] = 0, 1
            chosen = np.zeros(tuple(order.shape), dtype=bool)
            chosen[:, [at, at + 1]] = True
            said = self._said(module, "plm", with_targets(rows, chosen, order))
            table = said[0, firsts][:, None] * said[1::2][:, seconds]
        words = self.language.vocabulary
        return pd.DataFrame(table.numpy(), index=list(words["left"]), columns=list(words["right"]))

    @staticmethod
    def _said(module: Pretrain, name: str, example: Example) -> torch.Tensor:
        objective = dict(module.objectives.present())[name]
        with torch.no_grad():
            predicted = objective.predicted(own_heads(module.heads, name), module(example), example)
        (logits, _) = next(iter(predicted.values()))
        return torch.softmax(logits.double(), 1)

    @cached_property
    def _heldout(self) -> HeldOut:
        return self.systems[_MASKED].data_module(self.seed).some_heldout(1)

    def _sentence(self) -> tuple[Tokens, int, tuple[list[int], list[int]]]:
        """A held-out row, the place of the first word of a pair in it, and the ids of all first and second words."""
        vocabulary = self._heldout.sequences.store.vocabulary
        number = {piece: place for place, piece in enumerate(vocabulary.pieces)}
        ids = tuple([number[word] for word in self.language.vocabulary[kind]] for kind in ("left", "right"))
        tokens = self._heldout.sequences.batch(self._heldout.chosen[:1])
        row = tokens.ids[0].tolist()
        at = next(place for place in range(1, len(row) - 1) if row[place] in ids[0] and row[place + 1] in ids[1])
        return tokens, at, (ids[0], ids[1])

    def picture(self) -> Drawing:
        """The probability of every pair of words in that place."""
        figure = blank(3.9)
        panels = figure.subplots(1, 2)
        for axes, name in zip(panels, (_MASKED, _PERMUTED), strict=True):
            table = self.joint(name)
            image = axes.imshow(table.to_numpy(), cmap="Blues", vmin=0, vmax=1 / len(table))
            axes.set_xticks(range(len(table)), list(table.columns))
            axes.set_yticks(range(len(table)), list(table.index))
            axes.set_title("masked: p(first) p(second)" if name == _MASKED else "permuted: p(first) p(second | first)")
            axes.set_xlabel("second word")
            axes.grid(visible=False)
        panels[0].set_ylabel("first word")
        figure.colorbar(image, ax=list(panels), shrink=0.8, label="probability")
        titles(
            figure,
            "Two words that determine each other, both hidden",
            "In the text each first word has one second word: the diagonal. Best is 1/8 on it, nothing elsewhere.",
        )
        return figure
