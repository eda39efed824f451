"""Figures of vectors: groups of words in a plane, the states of one word by layer, and the accuracy of probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ablations.figures.style import OKABE_ITO, STYLE, blank, draw_level, keyed, shown, titles
from lightning_modules.analysis.words_as_vectors import nearest_alike

_MOST_COLUMNS = 5  # layers side by side
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_SIDES = (  # of a point, in the order in which its label tries them: offsets in points, alignments
    (5, 0, "left", "center"),
    (-5, 0, "right", "center"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (4, 4, "left", "bottom"),
    (-4, 4, "right", "bottom"),
    (4, -4, "left", "top"),
    (-4, -4, "right", "top"),
)


def principal(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first two principal components of vectors ``[n 2]``, and the share of their variance in each ``[2]``."""
    from sklearn.decomposition import PCA

    if len(vectors) < 3 or np.allclose(vectors, vectors[0], rtol=1e-4, atol=1e-6):
        return np.zeros((len(vectors), 2)), np.zeros(2)
    fitted = PCA(2, svd_solver="full").fit(vectors)
    return fitted.transform(vectors), fitted.explained_variance_ratio_


def word_map(groups: Mapping[str, Sequence[str]], vectors: np.ndarray, subtitle: str = "") -> Figure:
    """Words in the plane of their first two principal components, one colour and marker per group.

    Args:
        groups: Name -> words.
        vectors: Those of all words, group by group ``[n e]``.
    """
    places, shares = principal(vectors)
    names = [(group, word) for group, words in groups.items() for word in words]
    with mpl.rc_context(STYLE):
        figure = blank(6.5)
        key, panels = keyed(figure, 1, 1, 1)
        axes = panels[0, 0]
        for number, group in enumerate(groups):
            members = np.array([name == group for name, _ in names])
            axes.plot(
                *places[members].T, _MARKS[number % len(_MARKS)], color=_hue(number), ms=5, label=shown(group, 20)
            )
        axes.set_xlabel(f"first principal component ({100 * shares[0]:.0f} % of the variance)")
        axes.set_ylabel(f"second ({100 * shares[1]:.0f} %)")
        axes.margins(0.08)
        _legend(key, axes, min(7, len(groups)))
        titles(figure, "Words of the embedding table, by principal components", subtitle)
        hues = {group: _hue(number) for number, group in enumerate(groups)}
        _name_points(figure, axes, places, [(word, hues[group]) for group, word in names])
    return figure


def _hue(number: int) -> str:
    return OKABE_ITO[number % len(OKABE_ITO)]


def _legend(key: Axes, axes: Axes, columns: int) -> None:
    lines, known = axes.get_legend_handles_labels()
    first = sorted(range(len(known)), key=lambda n: "untrained" in known[n])  # a stable sort
    lines, known = [lines[n] for n in first], [known[n] for n in first]
    key.legend(lines, known, loc="center left", ncols=columns, fontsize=9, handletextpad=0.2, columnspacing=1.2)


def _name_points(figure: Figure, axes: Axes, places: np.ndarray, names: Sequence[tuple[str, str]]) -> None:
    """Labels points that have room for a label on one of eight sides; points in a crowd may stay without one."""
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    points = axes.transData.transform(places)
    inside = axes.get_window_extent()
    taken: list = []
    for (word, colour), place in zip(names, places, strict=True):
        for right, up, ha, va in _SIDES:
            text = axes.annotate(
                shown(word, 20), place, xytext=(right, up), textcoords="offset points",
                ha=ha, va=va, fontsize=8, color=colour,
            )  # fmt: skip
            box = text.get_window_extent(renderer)
            is_free = not any(box.overlaps(other) for other in taken) and not box.padded(4).count_contains(points)
            if is_free and inside.contains(*box.min) and inside.contains(*box.max):
                taken.append(box)
                break
            text.remove()


def senses(states: np.ndarray, untrained: np.ndarray, groups: Sequence[str], word: str, subtitle: str = "") -> Figure:
    """The states of one word in many sentences: one panel per layer, each in its own plane, one colour per sense.

    Args:
        states: ``[layer n d]``; layer 0 is the output of the embeddings.
        untrained: The same for the network before training, which is counted but not drawn.
        groups: The sense of each sentence.
    """
    kinds = list(dict.fromkeys(groups))
    chosen = sorted({round(place) for place in np.linspace(0, len(states) - 1, min(len(states), 8)).tolist()})
    columns = -(-len(chosen) // -(-len(chosen) // _MOST_COLUMNS))
    rows, columns = -(-len(chosen) // columns), max(columns, 4)  # panels of few layers stay small
    with mpl.rc_context(STYLE):
        figure = blank(1.1 + rows * (6.9 / columns + 0.75))
        key, panels = keyed(figure, 1, rows, columns)
        for axes, layer in zip(panels.ravel(), chosen, strict=False):
            places, shares = principal(states[layer])
            for number, kind in enumerate(kinds):
                members = np.array([group == kind for group in groups])
                axes.plot(*places[members].T, _MARKS[number % len(_MARKS)], color=_hue(number), ms=6, alpha=0.85,
                          label=shown(kind, 30))  # fmt: skip
            right, before = (nearest_alike(side[layer], groups) for side in (states, untrained))
            scored = "all vectors equal" if right is None else f"{right} of {len(groups)} nearest agree"
            control = "" if before is None else f"untrained: {before}"
            name = f"layer {layer}" if layer else "embeddings"
            axes.set_title(f"{name}\n{scored}\n{control}", fontsize=8.5)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.margins(0.15)
            axes.set_box_aspect(1)
            axes.set_xlabel(f"{100 * shares.sum():.0f} % of the variance" if shares.any() else "", fontsize=8)
        for axes in panels.ravel()[len(chosen) :]:
            axes.axis("off")
        _legend(key, panels[0, 0], len(kinds))
        titles(figure, f"The word “{shown(word, 20)}” in {len(groups)} sentences, layer by layer", subtitle)
    return figure


@dataclass(frozen=True)
class Probed:
    """The accuracy of probes on a task in each layer.

    Attributes:
        scores: Kind of probe -> accuracy in each layer, the embeddings first.
        untrained: The same for the network before training.
        levels: Name of a simple method -> its accuracy.
        examples: The number of examples behind each accuracy.
    """

    scores: Mapping[str, Sequence[float]]
    untrained: Mapping[str, Sequence[float]]
    levels: Mapping[str, float]
    examples: int


def probed(results: Probed, task: str, subtitle: str = "") -> Figure:
    """Accuracy of each probe by layer with its 95 % interval; the untrained network is dashed."""
    with mpl.rc_context(STYLE):
        figure = blank(4.7)
        key, panels = keyed(figure, 2, 1, 1)
        axes, last = panels[0, 0], max(map(len, results.scores.values())) - 1
        for number, (kind, scores) in enumerate(results.scores.items()):
            layers, values = np.arange(len(scores)) + 0.03 * (2 * number - 1), np.asarray(scores)
            half = 1.96 * np.sqrt(values * (1 - values) / results.examples)
            common = {"marker": _MARKS[number], "color": _hue(number)}
            axes.errorbar(layers, values, half, **common, lw=2, ms=6, elinewidth=1.2, capsize=3, zorder=4,
                          label=f"{kind} probe, pretrained")  # fmt: skip
            axes.plot(layers, results.untrained[kind], "--", **common, mfc="white", lw=1.2, ms=5,
                      label=f"{kind} probe, same network untrained")  # fmt: skip
        for name, value in results.levels.items():
            draw_level(axes, name, value, is_left=False)
        axes.set_xlim(-0.15, last + 0.15 + 0.32 * (last + 0.3))  # room for the names of the levels
        axes.set_xticks(range(last + 1))
        axes.set_xlabel("layer (0: embeddings)")
        axes.set_ylabel(f"accuracy on {results.examples:,} examples")
        axes.margins(y=0.12)
        _legend(key, axes, 2)
        titles(figure, f"What probes read of {shown(task, 30)} in each layer", subtitle)
    return figure
