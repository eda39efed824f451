"""``ablations simulate``: checks intervals, corrections and verdicts on simulated grids whose truth is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, reporting_errors, tell

if TYPE_CHECKING:
    from ablations.core.simulation import Row

FOLDER = "statistics"  # of the results folder
_STUDIES = ("coverage", "family_wise_error", "power", "aa")
_INTRODUCTION = """# Can the statistics be trusted?

We applied the formulas for measured grids to simulated ones, whose truth is known. `ablations simulate` rebuilds this
page in about a minute, byte for byte with the pinned libraries; it reads no record and trains nothing.

"""


def command(
    grids: Annotated[int | None, typer.Option(help="Simulated grids per condition; default: as published.", min=10)] = (
        None
    ),
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Simulates grids: coverage of intervals, family-wise error, power, and A/A tests."""
    from ablations.core.store import Records

    with reporting_errors():
        written = write(Records(results_dir).folder / FOLDER, grids)
        tell({"files": written}, form, "files", *map(str, written))


def write(folder: Path, grids: int | None = None) -> list[Path]:
    """Runs the studies and writes ``<study>.csv``, ``<study>.svg`` and ``README.md``.

    Args:
        folder: Created if missing.
        grids: Grids per condition; None for the number that each study needs to be precise.
    """
    from ablations.claims import aa_tests
    from ablations.core import simulation, store
    from ablations.figures import simulation as drawings
    from ablations.figures import style

    count: dict[str, Any] = {} if grids is None else {"grids": grids}
    rows = {
        "coverage": simulation.coverage(**count) + simulation.coverage_of_examples(**count),
        "family_wise_error": simulation.family_wise_error(**count),
        "power": simulation.power(**count),
        "aa": aa_tests.verdict_rows(**count),
    }
    drawn = (drawings.coverage, drawings.family_wise_error, drawings.power, drawings.same_twice)
    written = []
    for name, draw in zip(_STUDIES, drawn, strict=True):
        store.write(folder / f"{name}.csv", _csv(rows[name]).encode())
        written += [folder / f"{name}.csv", style.save(draw(rows[name]), folder / f"{name}.svg")]
    store.write(folder / "README.md", page(rows).encode())
    return [*written, folder / "README.md"]


def _csv(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, comma_separated

    return comma_separated(Sheet(list(rows[0]), [list(row.values()) for row in rows]))


def page(rows: "dict[str, list[Row]]") -> str:
    """The page of the studies: for each a short answer, the figure and a table."""
    parts = [
        ("coverage", "Do intervals cover?", _of_coverage(rows["coverage"]), _coverage_table(rows["coverage"])),
        ("family_wise_error", "Are false findings rare?", _of_families(rows["family_wise_error"]), ""),
        ("power", "Is the power right?", _of_power(rows["power"]), ""),
        ("aa", "Is a variant ever better than itself?", _of_same(rows["aa"]), _same_table(rows["aa"])),
    ]
    text = _INTRODUCTION
    for name, question, answer, table in parts:
        text += f"## {question}\n\n{answer}\n\n![{question}]({name}.svg)\n\n"
        text += f"{table}\n" * bool(table) + f"Every number: [{name}.csv]({name}.csv).\n\n"
    return text.rstrip("\n") + "\n"


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _range(values: "Sequence[float | None]") -> str:
    known = [value for value in values if value is not None]
    low, high = f"{100 * min(known):.1f}", f"{100 * max(known):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _of_coverage(rows: "Sequence[Row]") -> str:
    def of(noise: str, method: str) -> str:
        return _range([row["coverage"] for row in rows if row["noise"].startswith(noise) and row["method"] == method])

    return (
        f"The t interval, which decides verdicts, covers the true difference in {of('normal', 't')} of grids with "
        f"normal noise, in {of('heavy', 't')} with heavy tails, and in {of('skewed', 't')} with skewed noise, where "
        "its coverage is too low. With so few seeds no bootstrap does better throughout. BCa covers "
        f"{of('normal', 'BCa bootstrap')} under normal noise. Percentile-t covers "
        f"{of('normal', 'percentile-t bootstrap')} with 5 and 10 seeds, but its intervals are wider, and unbounded "
        "with 3; under skewed noise it is better. The multi-bootstrap over seeds and examples, which generalises to "
        f"new seeds and new examples, covers {of('300 answers, runs differ', 'seeds and examples')} where runs "
        f"differ as wholes (too narrow) and {of('300 answers, runs much', 'seeds and examples')} where they are much "
        "alike (too wide). So bootstrap intervals are reported for information, and t decides."
    )


def _coverage_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    seeds = sorted({row["seeds"] for row in rows})
    by_condition = {(row["noise"], row["method"], row["seeds"]): row for row in rows}
    lines = []
    for noise, method in dict.fromkeys((row["noise"], row["method"]) for row in rows):
        of_method = [by_condition[noise, method, n] for n in seeds]
        widths = ["unbounded" if row["width"] is None else f"{row['width']:.2f}" for row in of_method]
        lines.append([noise, method, *(_percent(row["coverage"]) for row in of_method), *widths])
    notes = ["Width: the median, in standard deviations of a difference; for answers, in accuracy."]
    headings = ["noise", "interval", *(f"covers, n = {n}" for n in seeds), *(f"width, n = {n}" for n in seeds)]
    return markdown(Sheet(headings, lines, left=2, notes=notes))


def _of_families(rows: "Sequence[Row]") -> str:
    largest = max(row["family"] for row in rows)
    uncorrected = [
        row["uncorrected"] for row in rows if row["family"] == largest and row["contrasts"] == "separate contrasts"
    ]
    worst = max(rows, key=lambda row: row["Holm"])
    return (
        f"With Holm's levels, {_range([row['Holm'] for row in rows])} of grids have a false finding, over all family "
        f"sizes, numbers of seeds and kinds of contrasts (largest: {_percent(worst['Holm'], 2)}, standard error "
        f"{_percent(worst['standard error'], 2)}). Without correction, {_range(uncorrected)} have one among {largest} "
        "separate contrasts."
    )


def _of_power(rows: "Sequence[Row]") -> str:
    gap, error = max(abs(row["simulated"] - row["formula"]) for row in rows), max(row["standard error"] for row in rows)
    return (
        "Simulated power differs from the formula behind every detectable effect by at most "
        f"{100 * gap:.1f} percentage points; the standard error of a point is at most {100 * error:.1f}."
    )


def _of_same(rows: "Sequence[Row]") -> str:
    twice, eight = rows[0], rows[1]
    quiet = [_percent(1 - row["share wrong"]) for row in (twice, eight)]
    first = min(200, twice["grids"])
    kept = [first - row["wrong of the first 200"] for row in (twice, eight)]
    return (
        "The code that judges published claims judged simulated records. The same variant under two names is "
        f"*not resolved* in {quiet[0]} of grids ({kept[0]} of the first {first}); a grid of seven such claims "
        f"has no other verdict in {quiet[1]} ({kept[1]} of the first {first}). The promise is 95 %: "
        "190 of 200 grids, give or take 3. A true difference of the size called detectable is found in "
        f"{_percent(rows[-1]['replicates'])} of grids; by definition it should be 80 %."
    )


def _same_table(rows: "Sequence[Row]") -> str:
    from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES
    from ablations.core.formatting import Sheet, markdown

    outcomes = (REPLICATES, NOT_RESOLVED, CONTRADICTS)
    lines = [
        [row["scenario"], row["grids"], row["wrong grids"], *(_percent(row[name]) for name in outcomes)] for row in rows
    ]
    return markdown(Sheet(["what is simulated", "grids", "grids with a wrong verdict", *outcomes], lines))
