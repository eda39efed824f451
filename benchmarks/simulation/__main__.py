"""Checks intervals, corrections and verdicts on simulated grids of known truth, and writes ``results/statistics``.

From the root of the checkout, in a few minutes::

    python -m benchmarks.simulation
    python -m benchmarks.simulation --grids 100 --results-dir elsewhere
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import Results, echo, reporting_errors

if TYPE_CHECKING:
    from benchmarks.simulation.simulation import Row

FOLDER = "statistics"  # of the results folder
STUDIES = ("coverage", "examples", "family_wise_error", "trunks", "pairs", "power", "aa", "alignment")
_PROMISED = 0.05  # of grids may have a false finding
_INTRODUCTION = """# Can the statistics be trusted?

We applied the formulas for measured grids to simulated ones, whose truth is known. `python -m benchmarks.simulation`
rebuilds this page in a few minutes, byte for byte with the pinned libraries. It reads no record and trains nothing.

"""


def command(
    grids: Annotated[int | None, typer.Option(help="Simulated grids per condition. Default: as published.", min=10)] = (
        None
    ),
    results_dir: Results = None,
) -> None:
    """Simulates grids: coverage of intervals, errors of two looks, power, and A/A tests."""
    from ablations.core.disk.publishing import unwritten
    from ablations.core.store import Records, check_inside

    with reporting_errors():
        results = Records(results_dir).folder
        check_inside(results / FOLDER, results)
        try:  # before the minutes that it takes
            (results / FOLDER).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritten(error, results / FOLDER, "pages") from error
        written = write(results / FOLDER, grids)
        for path in written:
            echo(path)


def write(folder: Path, grids: int | None = None) -> list[Path]:
    """Runs the studies and writes ``<study>.csv``, ``<study>.svg`` and ``README.md``.

    Args:
        folder: Created if missing.
        grids: Grids per condition; None for the number that each study needs to be precise.
    """
    from ablations.core import store
    from ablations.figures import style
    from benchmarks.simulation import aa_tests, alignment_simulation, pair_simulation, simulation, trunk_simulation
    from benchmarks.simulation import figures as drawings

    count: dict[str, Any] = {} if grids is None else {"grids": grids}
    rows = {
        "coverage": simulation.coverage(**count),
        "examples": simulation.coverage_of_examples(**count),
        "family_wise_error": simulation.family_wise_error(**count),
        "trunks": trunk_simulation.in_blocks(**count),
        "pairs": pair_simulation.in_pairs(**count),
        "power": simulation.power(**count),
        "aa": aa_tests.verdict_rows(**count),
        "alignment": alignment_simulation.error_rates(**count),
    }
    drawn = (
        drawings.coverage, drawings.examples, drawings.family_wise_error, drawings.trunks, drawings.pairs,
        drawings.power, drawings.same_twice, drawings.alignment,
    )  # fmt: skip
    written = []
    for name, draw in zip(STUDIES, drawn, strict=True):
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
        ("examples", "And over new examples?", _of_examples(rows["examples"]), _examples_table(rows["examples"])),
        ("family_wise_error", "Are false findings rare?", *_of_families(rows["family_wise_error"])),
        ("trunks", "And among arms of one trunk?", _of_trunks(rows["trunks"]), _trunk_table(rows["trunks"])),
        ("pairs", "And among fine-tunings?", _of_pairs(rows["pairs"]), _pair_table(rows["pairs"])),
        ("power", "What do two looks show?", _of_power(rows["power"]), _power_table(rows["power"])),
        ("aa", "Is a variant ever better than itself?", _of_same(rows["aa"]), _same_table(rows["aa"])),
        ("alignment", "Is speed ever called quality?", *_of_alignment(rows["alignment"])),
    ]
    text = _INTRODUCTION
    for name, question, answer, table in parts:
        text += f"## {question}\n\n{answer}\n\n![{question}]({name}.svg)\n\n"
        text += f"{table}\nEvery number: [{name}.csv]({name}.csv).\n\n"
    return text.rstrip("\n") + "\n"


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _range(values: "Sequence[float | None]") -> str:
    known = [value for value in values if value is not None]
    low, high = f"{100 * min(known):.1f}", f"{100 * max(known):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _among(rows: "Sequence[Row]", **wanted: Any) -> "list[Row]":
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _of_coverage(rows: "Sequence[Row]") -> str:
    from benchmarks.simulation.simulation import LOOKS

    kinds = list(dict.fromkeys(row["noisier cells"] for row in rows))
    judged = [row for row in rows if row["seeds"] in LOOKS.n]
    normal = _among(judged, noise="normal", method="moderated")
    alike, others = _among(normal, **{"noisier cells": kinds[0]}), [r for r in normal if r["noisier cells"] != kinds[0]]
    tight = _among(judged, noise="normal", method="one pooled variance")
    lowest, highest = min(normal, key=lambda row: row["lowest"]), max(normal, key=lambda row: row["highest"])
    skewed, heavy = (_among(judged, noise=noise, method="moderated") for noise in ("skewed", "heavy-tailed"))
    widths = [
        (_among(judged, noise="normal", method=method, seeds=LOOKS.n[0])[0]["width"])
        for method in ("moderated", "own variances", "one pooled variance")
    ]
    return (
        "A grid has eight cells, and each variant is compared with the baseline. Intervals with moderated variances, "
        f"which decide verdicts, cover the true difference in {_range([row['coverage'] for row in alike])} of "
        "contrasts if all cells vary alike (4 and 8 seeds). They cover it in "
        f"{_range([row['coverage'] for row in others])} if some have 4 or 9 times the variance of others. The single "
        f"contrast that is covered least has {_percent(lowest['lowest'])} ({lowest['noisier cells']}, "
        f"{lowest['seeds']} seeds), and the one covered most {_percent(highest['highest'])}. Two quiet cells among "
        "noisy ones have wider intervals than they need. One "
        f"variance for all cells would cover as little as {_percent(min(row['lowest'] for row in tight))}. If all "
        f"cells vary alike, the intervals of 4 seeds are {widths[0] / widths[1]:.2f} times as wide as with each cell's "
        f"own variance. One pooled variance would give {widths[2] / widths[1]:.2f}: the price of not knowing that they "
        f"do. With heavy tails they cover {_range([row['coverage'] for row in heavy])}, with skewed noise "
        f"{_range([row['coverage'] for row in skewed])}."
    )


def _coverage_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    seeds = sorted({row["seeds"] for row in rows})
    lines = []
    for kind, noise, method in dict.fromkeys((row["noisier cells"], row["noise"], row["method"]) for row in rows):
        found = _among(rows, **{"noisier cells": kind, "noise": noise, "method": method})
        covers = [
            f"{_percent(row['coverage'])} ({100 * row['lowest']:.1f} to {100 * row['highest']:.1f})" for row in found
        ]
        lines.append([kind, noise, method, *covers, *(f"{row['width']:.2f}" for row in found)])
    notes = [
        "Share of all contrasts, and in brackets that of the single contrasts. Width: the median, in standard "
        "deviations of a quiet cell's run."
    ]
    headings = ["noisier cells", "noise", "variances", *(f"covers, n = {n}" for n in seeds)]
    return markdown(Sheet([*headings, *(f"width, n = {n}" for n in seeds)], lines, left=3, notes=notes))


def _of_examples(rows: "Sequence[Row]") -> str:
    most = max(row["seeds"] for row in rows)
    alike, differ = dict.fromkeys(row["answers"] for row in rows)

    def of(answers: str, method: str) -> str:
        return _percent(_among(rows, answers=answers, method=method, seeds=most)[0]["coverage"])

    both = [row["coverage"] for row in rows if row["method"] == "seeds and examples"]
    return (
        "All runs answer the same 300 questions, so no number of seeds shows the error that lies in their choice. "
        "An interval that knows the noise of runs only covers the difference over new questions less with every seed. "
        f"With {most} seeds it covers it in {of(alike, 'seeds')} of grids where the runs of a variant are much alike. "
        f"Where they differ, the questions hardly matter ({of(differ, 'seeds')}). Verdicts use the noise of examples "
        f"where scores by example are kept. Their intervals cover {_range(both)} throughout."
    )


def _examples_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    seeds = sorted({row["seeds"] for row in rows})
    lines = []
    for answers, method in dict.fromkeys((row["answers"], row["method"]) for row in rows):
        found = _among(rows, answers=answers, method=method)
        covers = [_percent(row["coverage"]) for row in found]
        lines.append([answers, method, *covers, *(f"{100 * row['width']:.1f}" for row in found)])
    headings = ["answers", "noise of", *(f"covers, n = {n}" for n in seeds), *(f"width, n = {n}" for n in seeds)]
    return markdown(Sheet(headings, lines, left=2, notes=["Width: the median, in points of accuracy."]))


def _kept(share: float, error: float) -> str:
    """Whether the promise of at most one false finding in twenty grids is kept, as far as a simulation shows."""
    if share <= _PROMISED:
        return "The promise, at most 5 %, is kept."
    if share <= _PROMISED + 2 * error:
        return "The promise is at most 5 %, and the largest is above it by no more than the simulation's own error."
    over = _percent(share - _PROMISED, 2)
    return (
        f"The promise is at most 5 %, and the largest is above it by {over}: some cases are judged a little too often."
    )


def _of_families(rows: "Sequence[Row]") -> tuple[str, str]:
    from ablations.core.formatting import Sheet, markdown
    from benchmarks.simulation.simulation import BIMODAL, LOOKS

    worst = max(rows, key=lambda row: row["moderated"])
    largest = max(row["family"] for row in rows)
    pooled, own = (max(row[method] for row in rows) for method in ("one pooled variance", "own variances"))
    failing = [row["own claim"] for row in rows if row["noisier cells"] == BIMODAL and row["own claim"] is not None]
    uncorrected = max(row["uncorrected"] for row in rows if row["family"] == largest)
    answer = (
        f"Each grid is judged at {LOOKS.n[0]} seeds, and what is open at {LOOKS.n[1]}, by Holm's procedure within "
        f"looks. With moderated variances {_range([row['moderated'] for row in rows])} of grids have a false finding, "
        "over families of 1, 5 and 9, whichever cells are noisier. The largest share is "
        f"{_percent(worst['moderated'], 2)} (standard error {_percent(worst['standard error'], 2)}). "
        f"{_kept(worst['moderated'], worst['standard error'])} Each cell's own variance errs in up to "
        f"{_percent(own)} of grids, one pooled variance in up to "
        f"{_percent(pooled)}. Two looks at 5 % without correction err in up to {_percent(uncorrected)}. A variant that "
        "fails in a fifth of its runs does not harm the other claims. Its own claim is another matter. Against the "
        f"mean over failures and successes it errs in {_range(failing)} of grids: {LOOKS.n[0]} seeds often see no "
        "failure. No test of means can repair that. Such runs are shown one by one."
    )
    methods = ("moderated", "own variances", "one pooled variance", "uncorrected")
    lines = [
        [row["noisier cells"], row["real effects"], row["family"], *(_percent(row[method]) for method in methods)]
        for row in rows
    ]
    headings = ["noisier cells", "real effects", "family", *methods[:3], "moderated, not corrected"]
    return answer, markdown(Sheet(headings, lines, left=2))


def _mean(rows: "Sequence[Row]", name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def _of_trunks(rows: "Sequence[Row]") -> str:
    from benchmarks.simulation.simulation import LOOKS

    inside, both, apart = (_among(rows, method=name) for name in dict.fromkeys(row["method"] for row in rows))
    families = sorted({row["family"] for row in rows})
    errs = ", ".join(_percent(_mean(_among(inside, family=size), "errs")) for size in families)
    worst = max(both, key=lambda row: row["errs"])
    alike = [row for row in apart if row["icc"] == max(r["icc"] for r in rows)]
    return (
        "Arms continue from common trunks, which make up half or nine tenths of the variance of a quiet arm's run. "
        f"Three or five arms, the control among them, are judged at {LOOKS.n[0]} trunks, and what is open at "
        f"{LOOKS.n[1]}. "
        "Verdicts take the differences within trunks as the sample, with one degree of freedom less than trunks. In "
        f"families of {', '.join(map(str, families[:-1]))} and {families[-1]} this errs in {errs} of grids. Whichever "
        "arm is noisier changes nothing but chance. Its intervals cover "
        f"{_range([row[name] for row in inside for name in ('lowest', 'highest')])} for any single arm. The residuals "
        "of arms and trunks together, moderated, have more degrees of freedom. They err in up to "
        f"{_percent(worst['errs'])} ({worst['arms']} arms, {worst['noisier cells']}) and cover as little as "
        f"{_percent(min(row['lowest'] for row in both))}. Runs taken as separate draws err in "
        f"{_range([row['errs'] for row in alike])} where trunks matter most: they see next to nothing."
    )


def _trunk_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    families, lines = sorted({row["family"] for row in rows}), []
    for method, arms, icc, kind in dict.fromkeys(
        (row["method"], row["arms"], row["icc"], row["noisier cells"]) for row in rows
    ):
        found = _among(rows, method=method, arms=arms, icc=icc, **{"noisier cells": kind})
        low, high = min(row["lowest"] for row in found), max(row["highest"] for row in found)
        errs = [_percent(_among(found, family=size)[0]["errs"]) for size in families]
        lines.append([method, arms, f"{icc:g}", kind, *errs, f"{100 * low:.1f} to {100 * high:.1f} %"])
    lines.sort(key=lambda line: [row["method"] for row in rows].index(str(line[0])))
    headings = ["compared", "arms", "share of the trunk", "noisier arms", *(f"errs, family of {n}" for n in families)]
    notes = ["Covers: 95 % intervals of single arms, from the least to the most covered."]
    return markdown(Sheet([*headings, "covers"], lines, left=4, notes=notes))


def _of_pairs(rows: "Sequence[Row]") -> str:
    ours, formula, alone, apart = (_among(rows, method=name) for name in dict.fromkeys(row["method"] for row in rows))
    families, answered = (_among(ours, scores=scores) for scores in dict.fromkeys(row["scores"] for row in rows))
    by_seeds = {n: max(row["errs"] for row in _among(families, seeds=n)) for n in sorted({r["seeds"] for r in rows})}
    errs = ", ".join(f"{_percent(share)} with {n}" for n, share in by_seeds.items())
    worst = max(_among(formula, scores="normal"), key=lambda row: row["errs"])
    separate = [row for row in _among(apart, scores="normal") if not row["correlation"]]
    return (
        "Two arms are fine-tuned from the same pretrainings and answer the same examples. Their seed effects correlate "
        "by 0 to .97. The differences vary over seeds, over examples, and over both together. Verdicts count all three "
        "parts, none below 0. The degrees of freedom are Satterthwaite's, with the share of the seeds at its upper "
        f"90 % limit. Holm's procedure over 14 such claims errs in at most {errs} seeds. The promise is 5 %. Single "
        f"intervals cover {_range([row['coverage'] for row in families])}, of right and wrong answers "
        f"{_range([row['coverage'] for row in answered])}. So with few seeds that hardly differ, intervals are wider "
        "than they had to be if that were known. Satterthwaite's formula by itself errs in up to "
        f"{_percent(worst['errs'])} of grids ({worst['seeds']} seeds). Few seeds often show less than their part, and "
        "then the formula also claims the many degrees of freedom of the examples. Student's paired test of seeds "
        f"alone covers as little as {_percent(min(row['coverage'] for row in alone))}, for it does not know the noise "
        "of examples. Arms of different pretrainings have seeds of their own, whose effects do not correlate. They are "
        "separate draws with one variance for both, by the same parts. Holm's procedure errs in at most "
        f"{_percent(max(row['errs'] for row in separate))} of families then, and single intervals cover "
        f"{_range([row['coverage'] for row in separate])}."
    )


def _pair_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    ours = _among(rows, method=rows[0]["method"])
    seeds, lines = sorted({row["seeds"] for row in ours}), []
    keys = ("example variance", "seed variance", "correlation", "examples")
    for kind in dict.fromkeys(tuple(row[key] for key in keys) for row in ours):
        found = _among(ours, **dict(zip(keys, kind, strict=True)))
        normal, answered = (_among(found, scores=scores) for scores in dict.fromkeys(row["scores"] for row in found))
        correlation = "" if kind[2] is None else f"{kind[2]:g}"
        shares = [_percent(row[name]) for name in ("errs", "coverage") for row in normal]
        lines.append([*kind[:2], correlation, kind[3], *shares, *(_percent(row["coverage"]) for row in answered)])
    headings = ["variance over examples", "over seeds", "correlation", "examples"]
    for what in ("errs, family of 14", "covers", "covers, right or wrong"):
        headings += [f"{what}, n = {n}" for n in seeds]
    return markdown(Sheet(headings, lines, left=3, notes=["The rule of verdicts. The other three are in the file."]))


def _of_power(rows: "Sequence[Row]") -> str:
    from benchmarks.simulation.simulation import LOOKS

    largest = max(row["family"] for row in rows)
    two = {row["method"]: row for row in _among(rows, family=largest, effect=2.0)}
    moderated = two["moderated"]
    gap = max(row["formula"] - row["first look"] for row in rows if row["method"] == "moderated")
    return (
        f"In a family of {largest} whose cells vary alike, {_percent(moderated['first look'], 0)} of grids find a "
        f"difference of two standard deviations of a run at {LOOKS.n[0]} seeds. By {LOOKS.n[1]} seeds "
        f"{_percent(moderated['both looks'], 0)} find it, with {moderated['seeds']:.1f} seeds on average. Each "
        f"cell's own variance would find {_percent(two['own variances']['both looks'], 0)}, one pooled variance "
        f"{_percent(two['one pooled variance']['both looks'], 0)}. The formula behind every detectable effect promises "
        f"up to {100 * gap:.0f} percentage points more than the first look finds. The reason is that the variances of "
        "a grid are not known."
    )


def _power_table(rows: "Sequence[Row]") -> str:
    from ablations.core.formatting import Sheet, markdown

    lines = [
        [
            row["family"],
            f"{row['effect']:g}",
            *(_percent(row[name], 0) for name in ("first look", "formula", "both looks")),
            f"{row['seeds']:.1f}",
        ]
        for row in _among(rows, method="moderated")
        if row["effect"]
    ]
    notes = ["Moderated variances. Effect: in standard deviations of a run."]
    headings = ["family", "effect", "found at 4 seeds", "formula for that", "found by 8 seeds", "mean seeds"]
    return markdown(Sheet(headings, lines, left=1, notes=notes))


def _of_same(rows: "Sequence[Row]") -> str:
    quiet = [_percent(1 - row["share wrong"]) for row in rows[:4]]
    return (
        "The code that judges published claims judged simulated records at two looks. The same variant under two names "
        f"has no difference in {quiet[0]} of grids. A grid of seven such claims has no other verdict in {quiet[1]}. "
        f"With a baseline of 4 times the variance it is {quiet[2]}, of 9 times {quiet[3]}. The promise is 95 %. A true "
        f"difference of the size that one look at {rows[-1]['seeds']} seeds detects with 80 % power is found in "
        f"{_percent(rows[-1]['as claimed'])} of grids."
    )


def _same_table(rows: "Sequence[Row]") -> str:
    from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, WITHIN
    from ablations.core.formatting import Sheet, markdown

    outcomes = (AS_CLAIMED, WITHIN, OPEN, AGAINST)
    lines = [
        [row["scenario"], row["grids"], row["wrong grids"], *(_percent(row[name]) for name in outcomes)] for row in rows
    ]
    return markdown(Sheet(["what is simulated", "grids", "grids with a wrong verdict", *outcomes], lines))


def _of_alignment(rows: "Sequence[Row]") -> tuple[str, str]:
    from ablations.core.crossing import EARLIER
    from ablations.core.formatting import Sheet, fixed, markdown

    speed, quality = _among(rows, truth="speed"), _among(rows, truth="quality")
    worst, wrong = max(speed, key=lambda row: row["quality"]), max(quality, key=lambda row: row["speed"])
    straight, flat = _among(speed, end="not flat"), _among(speed, end="flat")
    again = [row for row in speed if row["quality by bootstrap"] is not None]
    told = {
        truth: [row[truth] for row in _among(rows, truth=truth, seeds=4, effect=0.2)] for truth in ("speed", "quality")
    }
    answer = (
        "Two arms differ in speed alone, one curve being the other's stretched in time, or in quality alone, by a "
        "constant. Curves and noise are as in the records. Arms that differ in speed are called *quality* in at most "
        f"{_percent(worst['quality'])} of grids, over 3, 4 and 8 seeds (standard error "
        f"{_percent(worst['standard error'])}). Arms that differ by a constant are called *speed* in at most "
        f"{_percent(wrong['speed'])}. Both classes need their second condition. By the interval at the largest "
        f"multiple alone, speed is called quality in up to {_percent(max(r['quality by the end'] for r in straight))} "
        "of grids. Where curves flatten at the end of the schedule, as those of the records do, it is up to "
        f"{_percent(max(r['quality by the end'] for r in flat))}. So it must hold at {EARLIER:.2f} of that multiple "
        "too. By the band alone, a constant is called speed in up to "
        f"{_percent(max(row['speed by size'] for row in quality))}: so what an offset would leave must be excluded. "
        "The price is that much stays open. At 4 seeds a difference of 0.2 nats is called by its name in "
        f"{_range(told['speed'])} of grids if it is speed. If it is quality, it is in {_range(told['quality'])}. That "
        "depends on how far beyond the crossing both arms come and how straight the curves are. A bootstrap over runs "
        "would call speed "
        f"quality in up to {_percent(max(row['quality by bootstrap'] for row in again))} of grids without a flat end, "
        f"where the t interval does in {_percent(max(row['quality by the end'] for row in again))}."
    )
    lines = []
    keys = ("truth", "form", "end", "multiple", "effect")
    for condition in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        found = _among(rows, **dict(zip(keys, condition, strict=True)))
        truth, form, end, multiple, effect = condition
        said = [f"{_percent(row['quality'])} / {_percent(row['speed'])}" for row in found]
        lines.append([truth, form, end, f"{multiple:g}", f"{effect:g}",
                      fixed(found[0]["aligned"], 3), fixed(found[0]["left by an offset"], 3), *said])  # fmt: skip
    seeds = dict.fromkeys(row["seeds"] for row in rows)
    headings = ["truth", "form", "end", "multiple", "effect", "aligned", "an offset would leave"]
    notes = ["Said: quality / speed. The rest is open. Multiple: of its crossing that the slower arm reaches."]
    return answer, markdown(Sheet([*headings, *(f"said, n = {n}" for n in seeds)], lines, left=3, notes=notes))


if __name__ == "__main__":
    typer.run(command)
