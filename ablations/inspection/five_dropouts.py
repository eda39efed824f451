"""The five dropouts of AWD-LSTM as tables: masks that are given instead of drawn, and what the network makes of them.

The network is the one that trains (`lightning_modules.model.Recurrent`), so tiny that each table fits on a page.
Nothing of it is replaced but the random bits, from which it makes its masks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ablations.core.formatting import Sheet, markdown
from ablations.core.shown import Shown
from ablations.figures.style import FAINT, INK, Drawing, blank, shown, titles
from lightning_modules.batch import Example, Tokens
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.model import Recurrent
from lightning_modules.model.recurrent import RecurrentEncoder

KINDS = {
    "word types": "word_type_dropout",
    "input": "input_dropout",
    "recurrent weights": "weight_dropout",
    "between layers": "hidden_dropout",
    "output": "output_dropout",
}
_SHARED = {  # what an entry of a mask acts on
    "word types": "all places of a word in the batch",
    "input": "all positions of a row",
    "recurrent weights": "all positions and all rows of the batch",
    "between layers": "all positions of a row",
    "output": "all positions of a row",
}
_UNITS, _WEIGHTS = 5, "weight_hh_l0"
_PLAIN = Recurrent(
    num_layers=2,
    hidden_size=_UNITS,
    embedding_size=_UNITS,
    embedding_norm=False,
    embedding_dropout=0.0,
    dropout=0.0,
    init_std=0.5,
)
_KEPT, _DROPPED = torch.iinfo(torch.int16).max, torch.iinfo(torch.int16).min  # bits for any rate but 0


class GivenMasks(TorchFunctionMode):
    """Masks in place of those that dropout draws, in the order of its draws; afterwards the draws are as before.

    The random bits of `lightning_modules.model.layers.drop` are replaced, and nothing else.

    Args:
        masks: What each draw keeps; None for one that is drawn as usual.

    Attributes:
        sizes: Entries of each draw so far.
    """

    def __init__(self, masks: Sequence[Bool[Tensor, "..."] | None]) -> None:
        super().__init__()
        self.masks, self.sizes = list(masks), list[int]()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.random_:
            self._fill(result)
        return result

    def _fill(self, bits: Int[Tensor, " n"]) -> None:
        """Writes the bits that make a mask: 16 for each entry, four entries a number."""
        mask = self.masks[len(self.sizes)] if len(self.sizes) < len(self.masks) else None
        entries = 4 * len(bits)
        self.sizes.append(entries)
        if mask is None:
            return
        if not 0 <= entries - mask.numel() < 4:
            raise ConfigError([f"a mask of {mask.numel()} entries for a draw of {entries - 3} to {entries}"])
        values = torch.full((entries,), _KEPT, dtype=torch.int16)
        values[: mask.numel()][~mask.flatten()] = _DROPPED
        bits.copy_(values.view(torch.int64))


@dataclass(frozen=True)
class FiveDropouts:
    """A network of two LSTM layers of five units that reads two short texts, with masks that are given.

    Attributes:
        texts: Two texts of as many words.
        dropped_words: Words that word-type dropout drops.
        dropped_units: Of each text, the units (from 1) that input, hidden and output dropout drop.
        dropped_weights: Recurrent weights of the first layer that weight dropout drops, of 100, at random places.
        rate: The rate of all five.
        seed: Of the weights and of these places.
    """

    texts: Sequence[str] = ("the dog sees the cat", "a cat hears a dog")
    dropped_words: Sequence[str] = ("dog",)
    dropped_units: Sequence[Sequence[int]] = ((2, 5), (1, 3, 4))
    dropped_weights: int = 22
    rate: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        lengths = {len(text.split()) for text in self.texts}
        wrong = []
        if len(lengths) != 1 or len(self.texts) != len(self.dropped_units):
            wrong.append("texts must be equally long, and dropped_units needs an entry for each text")
        for word in set(self.dropped_words) - set(self.words):
            wrong.append(f"there is no word '{word}' in the texts.{did_you_mean(word, self.words)}")
        for unit in {unit for units in self.dropped_units for unit in units} - set(range(1, _UNITS + 1)):
            wrong.append(f"dropped_units has {unit}: units are 1 to {_UNITS}")
        if not 0 <= self.dropped_weights <= 4 * _UNITS**2:
            wrong.append(f"dropped_weights is {self.dropped_weights}: a layer has {4 * _UNITS**2}")
        if wrong:
            raise ConfigError(wrong)

    @property
    def words(self) -> list[str]:
        """The different words."""
        return list(dict.fromkeys(word for text in self.texts for word in text.split()))

    @cached_property
    def _example(self) -> Example:
        ids = torch.tensor([[self.words.index(word) for word in text.split()] for text in self.texts])
        special = torch.zeros_like(ids, dtype=torch.bool)
        return Example.of(Tokens(ids, special, ~special, torch.arange(len(ids))))

    def encoder(self, kind: str) -> RecurrentEncoder:
        """The network with one of the five dropouts, in training; without any for an empty name."""
        settings = _PLAIN.but(**({KINDS[kind]: self.rate} if kind else {}))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return settings.build(len(self.words)).train()

    def masks(self, kind: str) -> list[Bool[Tensor, "..."]]:
        """What is kept in each draw of a step, in the order of the draws."""
        if kind == "word types":
            return [torch.tensor([word not in self.dropped_words for word in self.words])]
        if kind == "recurrent weights":
            places = torch.randperm(4 * _UNITS**2, generator=torch.Generator().manual_seed(self.seed))
            kept = torch.ones(4 * _UNITS**2, dtype=torch.bool)
            kept[places[: self.dropped_weights]] = False
            return [kept.view(4 * _UNITS, _UNITS), torch.ones(4 * _UNITS, _UNITS, dtype=torch.bool)]
        units = torch.ones(len(self.texts), 1, _UNITS, dtype=torch.bool)
        for row, dropped in enumerate(self.dropped_units):
            units[row, 0, [unit - 1 for unit in dropped]] = False
        return [units]

    @torch.no_grad()
    def tables(self, kind: str) -> tuple[Float[Tensor, "rows units"], Float[Tensor, "rows units"]]:
        """The entries that a dropout acts on, as they are and as the network reads them in training.

        Raises:
            ConfigError: For a dropout that does not exist.
        """
        if kind not in KINDS:
            raise ConfigError([f"there is no dropout '{kind}'.{did_you_mean(kind, KINDS)}"])
        return self._acted_on("", kind), self._acted_on(kind, kind)

    def _acted_on(self, used: str, kind: str) -> Float[Tensor, "rows units"]:
        """The entries that a dropout acts on, with the one that is used."""
        encoder, seen = self.encoder(used), list[Tensor]()
        first, second = (layer for stack in encoder.stacks for layer in stack.children())
        with ExitStack() as stack:
            if kind == "recurrent weights":
                note = first.register_forward_pre_hook(lambda one, _: seen.append(one.state_dict()[_WEIGHTS].clone()))
            else:
                reader = second if kind == "between layers" else first
                note = reader.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
            stack.callback(note.remove)
            stack.enter_context(GivenMasks(self.masks(used) if used else []))
            encoded = encoder(self._example)
        (entries,) = [encoded.last] if kind == "output" else seen
        return entries.flatten(0, -2)

    def picture(self, kind: str) -> Drawing:
        """A dropout's table as it is, what is kept of it, and what the network reads."""
        before, after = self.tables(kind)
        names = self._names(kind)
        figure = blank(1.5 + 0.29 * len(names))
        panels = figure.subplots(1, 3, sharey=True)
        limit, kept = float(after.abs().max()), (after != 0).float()
        _draw(panels[0], before, names, limit, "as it is")
        _draw(panels[1], kept, names, 1.0, "kept: 1, dropped: 0", digits=0, colours="Greys")
        _draw(panels[2], after, names, limit, "as it is read")
        if kind != "recurrent weights":
            for axes in panels:  # between the texts
                axes.axhline(len(names) / 2 - 0.5, color=INK, lw=1)
        share = 1 - float(kept.mean())
        titles(
            figure,
            f"Dropout {kind if kind == 'between layers' else f'of the {kind}'}",
            f"{100 * share:.0f} % of the entries are zero. The others are divided by 1 - p: multiplied by "
            f"{1 / (1 - self.rate):.3g} here. An entry of the mask is shared by {_SHARED[kind]}.",
        )
        return figure

    def _names(self, kind: str) -> list[str]:
        if kind == "recurrent weights":
            gates = ("input", "forget", "cell", "output")
            return [f"{gate} {unit}" for gate in gates for unit in range(1, _UNITS + 1)]
        return [word for text in self.texts for word in text.split()]

    @torch.no_grad()
    def draws(self) -> Shown:
        """What all five draw in one step, in that order, for a network of three layers as the released one has."""
        rows = []
        for kind, knob in KINDS.items():
            encoder = _PLAIN.but(num_layers=3, **{knob: self.rate}).build(len(self.words)).train()
            with GivenMasks([]) as given:
                encoder(self._example)
            rows.append(
                {"dropout": kind, "setting": f"model.{knob}", "masks": len(given.sizes), "shared": _SHARED[kind]}
            )
        table = Sheet(
            ["dropout", "setting", "masks a step, three layers", "an entry is shared by"],
            [[row["dropout"], row["setting"], f"{row['masks']}", row["shared"]] for row in rows],
            left=4,
        )
        return Shown(markdown(table), pd.DataFrame(rows))

    @torch.no_grad()
    def means(self, count: int = 2000) -> Shown:
        """The mean over many masks of what the first layer reads, as a share of what it reads in evaluation."""
        encoder, whole = self.encoder("input"), self._acted_on("", "input")
        torch.manual_seed(self.seed)
        scaled = torch.stack([encoder.input_dropout(whole[None])[0] for _ in range(count)])
        found = {"divided by 1 - p": scaled, "as they are": scaled * (1 - self.rate)}
        rows = []
        for name, drawn in found.items():
            # the entries of a unit share a mask, so a mask's mean over units is one observation
            ratios = (drawn * whole).sum((1, 2)) / whole.square().sum()
            half = 1.96 * float(ratios.std()) / math.sqrt(count)
            rows.append({"kept entries": name, "share": float(ratios.mean()), "half": half})
        table = Sheet(
            ["kept entries", "mean over masks, as a share of the entry in evaluation"],
            [[row["kept entries"], f"{row['share']:.3f} ± {row['half']:.3f}"] for row in rows],
            left=1,
        )
        return Shown(markdown(table), pd.DataFrame(rows))

    def against_the_lecture(self) -> Shown:
        """Where the tables of a lecture differ from its own code, from another lecture, and from the network here."""
        weights = nn.LSTM(_UNITS, 10).get_parameter(_WEIGHTS)
        rarely = sum(math.comb(100, k) for k in range(self.dropped_weights + 1)) / 2**100
        own = self.encoder("recurrent weights").stacks.get_submodule("0.0").get_parameter(_WEIGHTS)
        before, after = self.tables("input")
        factor = float((after[after != 0] / before[after != 0]).mean())
        rows = [
            ("a kept value", "stays as it is", "another lecture: value / (1 - p)",
             f"multiplied by {factor:.2f} at p = {self.rate:g}"),
            ("recurrent weights dropped", f"{self.dropped_weights} of 100", "its code: p = 0.5",
             f"{self.dropped_weights} or fewer have probability {rarely:.0e} at p = 0.5"),
            ("recurrent weights", "20 x 5", f"its code: LSTM(5, 10), {weights.shape[0]} x {weights.shape[1]}",
             f"{own.shape[0]} x {own.shape[1]} for five units"),
        ]  # fmt: skip
        columns = ["what", "the table", "elsewhere", "here"]
        return Shown(markdown(Sheet(columns, [list(row) for row in rows], left=4)), pd.DataFrame(rows, columns=columns))


def _draw(
    axes: Axes,
    entries: Float[Tensor, "rows units"],
    names: Sequence[str],
    limit: float,
    title: str,
    digits: int = 2,
    colours: str = "PuOr",
) -> None:
    values = entries.numpy()
    low, high = (-limit, limit) if colours == "PuOr" else (-0.6, 3.0)
    axes.imshow(values, cmap=colours, aspect="auto", alpha=0.55, vmin=low, vmax=high)
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        colour = FAINT if not value else INK
        axes.text(
            column, row, f"{value:.{digits}f}" if value else "0", ha="center", va="center", fontsize=7.5, color=colour
        )
    axes.set_xticks(range(values.shape[1]), [str(n + 1) for n in range(values.shape[1])])
    axes.set_yticks(range(len(names)), [shown(name, 14) for name in names])
    axes.set_title(title)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
