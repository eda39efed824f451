"""Figures of attention: all heads on one sentence, one head enlarged, and the averages of every head over a text.

Colours (viridis) show the square root of a weight, so that 1 % differs visibly from 0. All heads share one scale, drawn
next to them. Masked positions are grey.
"""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from ablations.figures.style import INK, OKABE_ITO, STYLE, blank, keyed, shown, titles
from lightning_modules.analysis.attention_maps import HeadStatistics

_PICTURE = {
    "cmap": "viridis",
    "norm": PowerNorm(0.5, vmin=0.0, vmax=1.0),
    "interpolation": "nearest",
    "aspect": "equal",
}
_TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
_WRITTEN = 0.3  # weights from this one on are written into the enlarged head
_MOST_WRITTEN = 24  # tokens; a longer sentence makes cells too small for numbers
_PROFILE = {  # statistic -> panel title, and whether it is a share
    "previous": ("on the token before", True),
    "itself": ("on the token itself", True),
    "following": ("on the token after", True),
    "first": ("on [CLS]", True),
    "separator": ("on [SEP]", True),
    "distance": ("mean distance (tokens)", False),
    "entropy": ("entropy (nats)", False),
    "beyond": ("beyond position (nats)", False),
}


def all_heads(weights: np.ndarray, prior: np.ndarray, subtitle: str = "") -> Figure:
    """One small panel per head: rows are layers, columns are heads; transposed if layers outnumber heads.

    Args:
        weights: ``[layer head t s]``.
        prior: The same with constant queries and keys; zero where the mask forbids attention, which is drawn in grey.
    """
    layers, heads = weights.shape[:2]
    is_turned = layers > heads
    rows, columns = (heads, layers) if is_turned else (layers, heads)
    side = 5.9 / max(columns, 3)
    with mpl.rc_context(STYLE):
        figure = blank(1.1 + rows * (side + 0.1))
        panels = figure.subplots(rows, columns, squeeze=False)
        by_layer = panels.T if is_turned else panels
        for (layer, head), axes in zip(np.ndindex(layers, heads), by_layer.flat, strict=True):
            image = _picture(axes, weights[layer, head], prior[layer, head])
            axes.set_xticks([])
            axes.set_yticks([])
        across, down = ("layer", "head") if is_turned else ("head", "layer")
        for number, axes in enumerate(panels[0], 1):
            axes.set_title(f"{across} {number}" if columns <= 8 else f"{number}", loc="center", fontsize=9)
        for number, axes in enumerate(panels[:, 0], 1):
            axes.set_ylabel(f"{down} {number}" if rows <= 8 else f"{number}", fontsize=9)
        _scale(figure, image, panels)
        titles(figure, "Attention in one sentence, head by head", subtitle)
    return figure


def one_head(weights: np.ndarray, prior: np.ndarray, pieces: Sequence[str], where: str, subtitle: str = "") -> Figure:
    """One head, token by token, next to the attention that positions alone would give.

    Args:
        weights: ``[t s]``.
        prior: The same with constant queries and keys; zero where the mask forbids attention, which is drawn in grey.
    """
    with mpl.rc_context(STYLE):
        figure = blank(4.7)
        left, right = figure.subplots(1, 2, sharey=True)
        names, size = [shown(piece, 12) for piece in pieces], min(8.5, 150 / len(pieces))
        image = _picture(left, weights, prior)
        _picture(right, prior, prior)
        for axes, name in ((left, "learned"), (right, "positions only")):
            axes.set_title(name, loc="center")
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
            axes.set_xlabel("attended token (key)")
            axes.tick_params(length=0)
        left.set_yticks(range(len(names)), names, fontsize=size)
        left.set_ylabel("attending token (query)")
        for row, column in np.argwhere(weights >= _WRITTEN) if len(pieces) <= _MOST_WRITTEN else ():
            colour = INK if weights[row, column] > 0.45 else "white"
            text = f"{100 * weights[row, column]:.0f}"
            left.text(column, row, text, ha="center", va="center", fontsize=0.72 * size, color=colour)
        _scale(figure, image, np.array([left, right]))
        titles(figure, f"{where}: attention, token by token", subtitle)
    return figure


def of_source(weights: np.ndarray, source: Sequence[str], target: Sequence[str], subtitle: str = "") -> Figure:
    """What a translation attends to in its source: one panel a head, a row for each piece that is written.

    Args:
        weights: ``[head t s]``; rows sum to 1.
        source: The pieces of the source.
        target: The pieces of the translation, the end included.
    """
    heads, size = len(weights), min(8.5, 150 / max(len(source), len(target)))
    columns = min(heads, 2)
    with mpl.rc_context(STYLE):
        figure = blank(0.8 + 3.4 * -(-heads // columns))
        panels = figure.subplots(-(-heads // columns), columns, squeeze=False, sharex=True, sharey=True)
        for number, axes in enumerate(panels.flat):
            if number >= heads:
                axes.set_visible(False)
                continue
            image = _picture(axes, weights[number], np.ones_like(weights[number]))
            axes.set_title(f"head {number + 1}" if heads > 1 else "attention", loc="center")
            axes.set_xticks(range(len(source)), [shown(piece, 12) for piece in source], rotation=90, fontsize=size)
            axes.set_yticks(range(len(target)), [shown(piece, 12) for piece in target], fontsize=size)
            axes.tick_params(length=0, labelbottom=True, labelleft=True)
        _scale(figure, image, panels)
        titles(figure, "What each piece of the translation attends to in its source", subtitle)
    return figure


def _picture(axes: Axes, weights: np.ndarray, prior: np.ndarray) -> AxesImage:
    axes.grid(visible=False)
    axes.set_facecolor("#e6e6e6")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes.imshow(np.ma.masked_where(prior <= 0, weights), **_PICTURE)


def _scale(figure: Figure, image: AxesImage, panels: np.ndarray) -> None:
    bar = figure.colorbar(image, ax=panels, shrink=0.8, aspect=28, pad=0.02, ticks=_TICKS)
    bar.ax.set_yticklabels([f"{100 * tick:g} %" for tick in _TICKS], fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)


def profile(learned: HeadStatistics, prior: HeadStatistics, subtitle: str = "") -> Figure:
    """The averages of every head over a text, by layer: filled as learned, hollow with positions only.

    A head has the same colour and the same offset within its layer in all panels.
    """
    heads = learned.entropy.shape[1]
    with mpl.rc_context(STYLE):
        figure = blank(5.9)
        key, panels = keyed(figure, 1, 2, 4)
        offsets = np.linspace(-0.3, 0.3, heads) if heads > 1 else np.zeros(1)
        for axes, (name, (title, is_share)) in zip(panels.ravel(), _PROFILE.items(), strict=True):
            factor = 100.0 if is_share else 1.0
            values, alone = factor * getattr(learned, name), factor * getattr(prior, name)
            _dots(axes, values, alone, offsets)
            axes.set_title(title, fontsize=9)
            top = max(float(values.max()), float(alone.max()), 0.01)  # smaller values are noise
            axes.set_ylim(-0.04 * top, 1.08 * top)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
            axes.tick_params(labelsize=8)
            if is_share:
                axes.yaxis.set_major_formatter("{x:g} %")
        for axes in panels[-1]:
            axes.set_xlabel("layer", fontsize=9)
        lines, known = panels[0, 0].get_legend_handles_labels()
        most = min(heads, len(OKABE_ITO))
        shown_lines, names = [*lines[:most], lines[-1]], [*known[:most], known[-1]]
        key.legend(shown_lines, names, loc="center left", ncols=most + 1, fontsize=9, handletextpad=0.1,
                   columnspacing=1.0)  # fmt: skip
        titles(figure, "What each head attends to, on average over held-out text", subtitle)
    return figure


def _dots(axes: Axes, values: np.ndarray, alone: np.ndarray, offsets: np.ndarray) -> None:
    """One statistic of every head ``[layer head]``, the heads of a layer side by side."""
    layers, heads = values.shape
    for head in range(heads):
        places, colour = np.arange(1, layers + 1) + offsets[head], OKABE_ITO[head % len(OKABE_ITO)]
        axes.vlines(places, alone[:, head], values[:, head], color=colour, lw=0.8, alpha=0.5)
        axes.plot(places, values[:, head], "o", color=colour, ms=5, label=f"head {head + 1}", zorder=3)
    places = np.arange(1, layers + 1)[:, None] + offsets
    axes.plot(places.ravel(), alone.ravel(), "o", mfc="none", mec=INK, mew=0.8, ms=5, zorder=4,
              label="positions only")  # fmt: skip
    axes.set_xlim(0.4, layers + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
