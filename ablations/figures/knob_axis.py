"""The x axis of a knob: numbers to scale, or names."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from ablations.core.formatting import axis_text, is_share, value_text
from ablations.figures.style import is_number, shown
from ablations.literature.published_values import same

_MOST = 12  # ticks below a whole figure
_SCALED = 3  # names that are numbers from which on they are to scale
_LETTER = 0.0125  # the width of a letter of a tick, as a share of the figure's
_HEIGHT = 2.3  # of a line of turned names, in letters


class KnobAxis:
    """The values of a knob as numbers (linear or logarithmic), or as names, evenly spaced.

    Three names or more that are all numbers are numbers.
    """

    def __init__(self, path: str, values: Sequence[Any], listed: Sequence[Any] = (), *, linear: bool = False) -> None:
        """``listed`` are the values as the grid lists them: the order of names. Names that are numbers come first."""
        self.path = path
        self.values: list[Any] = [v for i, v in enumerate(values) if not any(same(v, before) for before in values[:i])]
        named = [n for value in self.values if isinstance(value, str) and (n := number(value)) is not None]
        if len(named) == len(self.values) >= _SCALED:
            self.values = named  # variants that are called by numbers, such as lengths
        self.is_numeric = len(self.values) > 1 and all(map(is_number, self.values))
        if self.is_numeric:
            self.values = sorted(self.values)
        else:
            places = {str(value): place for place, value in reversed(list(enumerate(listed)))}
            numbers = {str(value): number(str(value)) for value in self.values}
            rank = {name: math.inf if found is None else found for name, found in numbers.items()}
            self.values.sort(key=lambda value: (rank[str(value)], places.get(str(value), len(places))))
        self.is_log = self.is_numeric and not linear and self._is_geometric()

    def _is_geometric(self) -> bool:
        """Whether the steps are more even as ratios than as differences, over a factor of four or more."""
        low, high = self.values[0], self.values[-1]
        if is_share(self.path) or low <= 0 or high < 4 * low or len(self.values) < 3:
            return False
        unevenness = [np.std(gaps) / np.mean(gaps) for gaps in (np.diff(self.values), np.diff(np.log(self.values)))]
        return bool(unevenness[1] < unevenness[0])

    def at(self, value: Any) -> float | None:
        """The position of a value; None if it is not on the axis."""
        if self.is_numeric:
            return float(value) if is_number(value) else number(str(value))
        return next((float(i) for i, known in enumerate(self.values) if same(known, value)), None)

    def format(self, axes: Axes, *, panels: int, stands_for: Mapping[float, Any] = MappingProxyType({})) -> None:
        """Sets ticks at the values, as many as fit into one of so many panels side by side, and names the knob.

        A tick at a stand-in names the published value below its own: ``stands_for``, by position.
        """
        if self.is_log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        places = self.values if self.is_numeric else list(range(len(self.values)))
        kept = places[:: max(1, -(-len(places) * panels // _MOST))] if self.is_numeric else places
        texts = [shown(value_text(self.path, self.values[places.index(place)]), 34) for place in kept]
        has_unit = self.is_numeric and is_share(self.path)  # once below the axis, not at every tick
        texts = [text.removesuffix(" %") for text in texts] if has_unit else texts
        known = {place: shown(value_text(self.path, value), 18) for place, value in stands_for.items()}
        texts = [f"{text}\nfor {known[at]}" if at in known else text for at, text in zip(kept, texts, strict=True)]
        axes.set_xticks(kept, self._apart(kept, texts, panels) if self.is_numeric else texts)
        if not self.is_numeric:
            axes.set_xlim(-0.5, len(self.values) - 0.5)
            self._name(axes, texts, 68 // panels)
        axes.set_xlabel(shown(axis_text(self.path)) + " (%)" * has_unit)

    def _apart(self, places: Sequence[float], texts: Sequence[str], panels: int) -> list[str]:
        """The labels of numbers without those that would lie over the one before."""
        at = np.log(places) if self.is_log else np.asarray(places, dtype=float)
        span, last, kept = float(at[-1] - at[0]) or 1.0, -math.inf, []
        for place, text in zip(at, texts, strict=True):
            has_room = (place - last) / span > _LETTER * panels * (max(map(len, text.split("\n"))) + 1)
            last = place if has_room else last
            kept.append(text if has_room else "")
        return kept

    def _name(self, axes: Axes, texts: list[str], room: int) -> None:
        """Wraps tick labels that exceed their room in characters, or turns them."""
        broken = ["\n".join(text.split(" ")) for text in texts]
        widest = [max(map(len, text.split("\n"))) for text in broken]
        if max((len(line) for text in texts for line in text.split("\n")), default=0) * len(texts) <= room:
            return
        if max(widest) * len(texts) <= room and max(text.count("\n") for text in broken) < 3:
            axes.set_xticks(range(len(texts)), broken)
        else:
            turned = max(20, 5 * math.ceil(math.degrees(math.asin(min(1.0, _HEIGHT * len(texts) / room))) / 5))
            axes.set_xticks(range(len(texts)), texts, rotation=turned, ha="right", rotation_mode="anchor")


def number(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None
