"""The page of published configurations: the parameters papers print beside those that we count."""

import json
from pathlib import Path
from typing import Any

from ablations.core import store
from ablations.core.formatting import Sheet, comma_separated, latex, markdown, quantity
from ablations.figures.parameters import draw
from ablations.figures.style import svg
from ablations.literature.configurations import Catalogue, read
from ablations.literature.parameters import CLOSE, PARTS, Comparison, comparisons, millions, percent

FOLDER = "published"  # in a results folder


def sheets(catalogue: Catalogue, found: list[Comparison]) -> tuple[Sheet, Sheet, dict[str, Any]]:
    """The table to read, the table of every number, and the knobs behind each row."""
    items = [(one, one.configuration) for one in found]
    reading = Sheet(
        ("paper", "where", "configuration", "printed (M)", "counted (M)", "deviation (%)", "counted are",
         "FLOPs a token", "why they differ"),
        [
            (item.paper, item.table, item.name, item.printed, millions(one.counted), percent(one.deviation),
             item.includes, quantity(one.flops_per_token), one.reason)
            for one, item in items
        ] + [
            (item.paper, item.table, item.name, item.printed, "", "", "", "", f"Cannot be built yet: {item.missing}.")
            for item in catalogue.absent
        ],
        left=3,
        notes=_notes(catalogue),
    )  # fmt: skip
    everything = Sheet(
        ("id", "paper", "where", "configuration", "printed (M)", "includes", "counted", "deviation (%)", "rounds",
         "encoder", "with pooler", "with all heads", "flops a token", "ALBERT Avg", "why they differ"),
        [
            (item.id, item.paper, item.table, item.name, item.printed, item.includes, one.counted,
             None if one.deviation is None else 100 * one.deviation, one.rounds if item.printed else None,
             one.encoder, one.pooler, one.heads, one.flops_per_token, item.average, one.reason)
            for one, item in items
        ] + [
            (item.id, item.paper, item.table, item.name, item.printed, *[None] * 9,
             f"Cannot be built yet: {item.missing}.")
            for item in catalogue.absent
        ],
        left=4,
    )  # fmt: skip
    trace = {"configurations": [{"id": item.id, "base": item.base, "set": dict(item.set)} for _, item in items]}
    return reading, everything, trace


def _notes(catalogue: Catalogue) -> list[str]:
    parts = "; ".join(f"{name}: {meaning}" for name, meaning in PARTS.items())
    return [
        "Counted in our own network, biases and LayerNorm included, tied tables once. No paper says which parts its "
        f"count includes: it is compared with the nearest of three, the same for all like rows of a paper ({parts}).",
        f"A reason is given where the deviation exceeds {100 * CLOSE:g} %. FLOPs are those of pre-training, forward "
        "and backward, matrix products only, at 512 positions (Mask15: 128).",
        "ALBERT's counts are without the pooler where layers share nothing, and with it elsewhere. With a position "
        "table as wide as the stream (512 x H parameters, where ours and the released code have 512 x E) every count "
        "of its Tables 3, 4, 11 and 12, and of Table 1 but the largest and BERT-xlarge, is reproduced to the printed "
        "digit. That is arithmetic; the paper does not say how it counts.",
        f"Sources: {'; '.join(f'{name}: {source}' for name, source in catalogue.sources.items())}.",
    ]


def publish(results_dir: Path) -> list[Path]:
    """Writes ``published/parameters`` as ``.md``, ``.csv``, ``.tex``, ``.json`` and ``.svg`` into a results folder.

    The bytes depend on the catalogue and the networks alone.

    Returns:
        The files written.
    """
    catalogue = read()
    found = comparisons(catalogue)
    reading, everything, trace = sheets(catalogue, found)
    drawing = "![The published average of ALBERT over parameters](parameters.svg)"
    texts = {
        "md": f"# Parameters of published configurations\n\n{drawing}\n\n{markdown(reading)}",
        "csv": comma_separated(everything),
        "tex": latex(reading),
        "json": json.dumps(trace, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        "svg": svg(draw(found)),
    }
    paths = [results_dir / FOLDER / f"parameters.{end}" for end in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        store.write(path, text.encode())
    return paths
