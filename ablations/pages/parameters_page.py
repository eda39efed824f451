"""The page of published configurations: the parameter counts of the papers next to ours."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ablations.core import store
from ablations.core.disk.reading import Damage, Flawed, content
from ablations.core.formatting import Sheet, comma_separated, markdown, quantity
from ablations.figures.parameters import draw
from ablations.figures.style import svg
from ablations.literature.configurations import Catalogue, read
from ablations.literature.parameters import CLOSE, PARTS, Comparison, comparisons, millions, percent
from ablations.pages import systems_page

FOLDER = "published"  # in a results folder


def sheets(catalogue: Catalogue, compared: list[Comparison]) -> tuple[Sheet, Sheet, dict[str, Any]]:
    """The table to read, the table of every number, and the knobs behind each row."""
    items = [(count, count.configuration) for count in compared]
    reading = Sheet(
        ("paper", "where", "configuration", "printed (M)", "counted (M)", "deviation (%)", "counted are",
         "FLOPs per token", "why they differ"),
        [
            (item.paper, item.table, item.name, item.printed, millions(count.counted), percent(count.deviation),
             item.includes, quantity(count.flops_per_token), count.reason)
            for count, item in items
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
            (item.id, item.paper, item.table, item.name, item.printed, item.includes, count.counted,
             None if count.deviation is None else 100 * count.deviation,
             count.rounds if item.printed else None,
             count.encoder, count.pooler, count.heads, count.flops_per_token, item.average, count.reason)
            for count, item in items
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
        "We count the parameters of our own network, with biases and LayerNorm, and tied tables once. No paper says "
        "which parts its count includes. So we compare with the nearest of three counts, the same for all rows of a "
        f"kind in a paper ({parts}).",
        f"A reason is given where the deviation exceeds {100 * CLOSE:g} %. FLOPs are those of pretraining: forward "
        "and backward, only matrix products, at 512 positions (Mask15: 128).",
        "ALBERT's counts leave out the pooler if layers share nothing, and include it otherwise. Suppose the "
        "position table has the hidden size: 512 x H parameters, where ours and the released code have 512 x E. Then "
        "our counts match every printed digit of its Tables 3, 4, 11 and 12. They match Table 1 except the largest and "
        "BERT-xlarge. That is arithmetic: the paper does not say how it counts.",
        f"Sources: {'; '.join(f'{name}: {source}' for name, source in catalogue.sources.items())}.",
    ]


def publish(results_dir: Path) -> list[Path]:
    """Writes ``published/parameters`` as ``.md``, ``.csv``, ``.json`` and ``.svg`` into a results folder.

    Next to it is the page of `systems_page`. The bytes depend only on the catalogue and the networks.

    Returns:
        The files written.
    """
    store.check_inside(results_dir / FOLDER, results_dir)
    catalogue = read()
    compared = comparisons(catalogue)
    reading, everything, trace = sheets(catalogue, compared)
    image = "![The published average of ALBERT over parameters](parameters.svg)"
    texts = {
        "md": f"# Parameters of published configurations\n\n{image}\n\n{markdown(reading)}",
        "csv": comma_separated(everything),
        "json": json.dumps(trace, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        "svg": svg(draw(compared)),
    }
    paths = [results_dir / FOLDER / f"parameters.{end}" for end in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        store.write(path, text.encode())
    (results_dir / FOLDER / "parameters.tex").unlink(missing_ok=True)  # of an earlier version
    return [*paths, *systems_page.publish(results_dir / FOLDER)]


def damages(results_dir: Path) -> Iterator[Damage]:
    """The files of `publish` in a results folder that are not as this version writes them.

    Figures are left out, since other versions of libraries draw them with other bytes.
    """
    if not (results_dir / FOLDER).is_dir():
        return
    with TemporaryDirectory() as fresh:
        for path in publish(Path(fresh)):
            place = path.relative_to(fresh)
            with suppress(FileNotFoundError, Flawed):
                if path.suffix == ".svg" or content(results_dir / place, results_dir) == path.read_bytes():
                    continue
            yield Damage(place.as_posix(), "altered", "is not what this version writes. Run `ablations tables`.")
