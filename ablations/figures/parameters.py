"""ALBERT's argument in one figure: its published average over the parameters of each model."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

from ablations.figures.style import FAINT, OKABE_ITO, STYLE, blank, titles
from ablations.literature.parameters import Comparison

_OWN, _SHARED = OKABE_ITO[0], OKABE_ITO[1]
_BELOW = 69.0  # per cent: where the axis of scores starts; one published point lies below
_TICKS = (5, 10, 20, 50, 100, 200, 500, 1000)
_AREA = 60.0  # of a model's mark, square points per GFLOP per token
_NAMES = {  # configuration -> offset of its name from its mark, in points, and the side
    "albert_t1_bert_base": (10, -9, "left"),
    "albert_t1_bert_large": (12, -2, "left"),
    "albert_t1_bert_xlarge": (0, -22, "center"),
    "albert_t1_albert_base": (-9, 1, "right"),
    "albert_t1_albert_large": (-11, 4, "right"),
    "albert_t1_albert_xlarge": (-16, 4, "right"),
    "albert_t1_albert_xxlarge": (-22, 6, "right"),
}


def draw(models: Sequence[Comparison]) -> Figure:
    """Score over parameters (logarithmic): each size of Lan et al. (2020), Table 2, with own and with shared layers.

    The area of a mark is its FLOPs per token, which sharing does not change. Small marks: embedding sizes (Table 3),
    depths and widths of shared layers (Tables 11 and 12).

    Args:
        models: Comparisons in the order of the file; those of ALBERT with an average are drawn.
    """
    scored = [model for model in models if model.configuration.average is not None]
    with mpl.rc_context(STYLE):
        figure = blank(5.4)
        axes = figure.add_subplot()
        for ids, colour in (("albert_t1_bert", _OWN), ("albert_t1_albert", _SHARED)):
            _sizes(axes, [model for model in scored if model.configuration.id.startswith(ids)], colour)
        for ids, colour in (("t3_not", _OWN), ("t3_all", _SHARED), ("t11", _SHARED), ("t12", _SHARED)):
            _variants(axes, [model for model in scored if model.configuration.id.startswith(f"albert_{ids}")], colour)
        _notes(axes, scored)
        _format(axes)
        titles(
            figure,
            "Sharing layers saves parameters, not computing",
            "Scores as published (Lan et al. 2020, BERT-xlarge in its early versions). "
            "Parameters and FLOPs are counted in our own network.",
        )
    return figure


def _points(models: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    return [model.counted / 1e6 for model in models], [model.configuration.average or 0.0 for model in models]


def _sizes(axes: Axes, models: Sequence[Comparison], colour: str) -> None:
    x, y = _points(models)
    axes.plot(x, y, "-", color=colour, lw=1.6, alpha=0.6, zorder=3)
    areas = [_AREA * model.flops_per_token / 1e9 for model in models]
    axes.scatter(x, y, s=areas, color=colour, alpha=0.3, lw=0, zorder=3)
    axes.plot(x, y, "o", color=colour, ms=5, zorder=5)
    for model, at, score in zip(models, x, y, strict=True):
        dx, dy, side = _NAMES[model.configuration.id]
        gigaflops = model.flops_per_token / 1e9
        decimals = 2 if gigaflops < 1 else 1 if gigaflops < 10 else 0
        text = f"{model.configuration.name}\n{at:,.0f} M, {gigaflops:.{decimals}f} GFLOPs"
        place = {"xytext": (dx, dy), "textcoords": "offset points", "ha": side, "va": "center"}
        axes.annotate(text, (at, score), **place, fontsize=8, color=colour, linespacing=1.25, zorder=6)


def _variants(axes: Axes, models: Sequence[Comparison], colour: str) -> None:
    x, y = _points(models)
    kept = [(at, score) for at, score in zip(x, y, strict=True) if score > _BELOW]
    axes.plot(*zip(*kept, strict=True), "-", color=colour, lw=0.8, alpha=0.45, zorder=2)
    axes.plot(*zip(*kept, strict=True), "o", color=colour, ms=3, alpha=0.75, mew=0, zorder=4)


def _notes(axes: Axes, scored: Sequence[Comparison]) -> None:
    by_id = {model.configuration.id: model for model in scored}
    small = {"textcoords": "offset points", "fontsize": 7.5, "color": FAINT, "va": "center"}
    for id, text, offset, side in (
        ("albert_t11_l3", "3 layers", (-5, 0), "right"),
        ("albert_t11_l6", "6 layers", (-5, 0), "right"),
        ("albert_t11_l12", "12 layers", (5, -3), "left"),
        ("albert_t12_h2048", "H=2048", (0, 8), "center"),
        ("albert_t12_h4096", "H=4096", (0, 8), "center"),
        ("albert_t12_h6144", "3 layers, H=6144", (0, -9), "center"),
        ("albert_t3_not_shared_e64", "E=64", (-5, -4), "right"),
        ("albert_t3_all_shared_e64", "E=64", (-5, -4), "right"),
        ("albert_t3_all_shared_e768", "E=768", (5, 0), "left"),
    ):
        model = by_id[id]
        axes.annotate(text, (model.counted / 1e6, model.configuration.average), xytext=offset, ha=side, **small)
    lowest = by_id["albert_t11_l1"]
    axes.annotate(
        f"1 layer: {lowest.configuration.average:g} ↓",
        (lowest.counted / 1e6, _BELOW),
        xytext=(0, 7),
        ha="center",
        **small,
    )


def _format(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlim(3.3, 2600)
    axes.set_ylim(_BELOW, 91.5)
    axes.xaxis.set_major_locator(FixedLocator(_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MultipleLocator(5))
    axes.set_xlabel("parameters (millions)")
    axes.set_ylabel("average of five tasks (%), published\nhigher is better")
    marks = [
        Line2D([], [], color=_OWN, marker="o", lw=1.6, label="separate layers (BERT)"),
        Line2D([], [], color=_SHARED, marker="o", lw=1.6, label="one shared layer (ALBERT)"),
        Line2D(
            [], [], color=FAINT, marker="o", ms=12, alpha=0.4, mew=0, lw=0, label="area and GFLOPs: training, per token"
        ),
        Line2D([], [], color=FAINT, marker="o", ms=3, lw=0.8, label="variants of embedding size, depth, width"),
    ]
    key = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 1.0}
    axes.legend(handles=marks, loc="lower right", fontsize=8, borderaxespad=0.2, **key)
