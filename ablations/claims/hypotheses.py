"""The claims of a grid before anything has run: what each says, what is compared here, and what would be agreement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablations.claims.judging import verdicts
from ablations.claims.verdict import Verdict
from ablations.core.formatting import cell_text, markdown_text
from ablations.core.metrics import EXACT
from ablations.measurements.pairs import side_of
from ablations.measurements.table import Measurements
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid
from lightning_modules.tasks import TASKS


@dataclass(frozen=True)
class Hypothesis:
    """A claim as it is asked at a scale.

    Attributes:
        verdict: The verdict that no record has decided yet: sides, metric and printed values for people.
        agreement: What the adjusted interval has to show.
        open: Why the scale cannot answer; empty where it can.
    """

    verdict: Verdict
    agreement: str
    open: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data, one column a property."""
        verdict, claim = self.verdict, self.verdict.claim
        return {
            "claim": claim.id,
            "published claim": claim.claim,
            "statement": claim.statement,
            "source": claim.source,
            "published": verdict.published,
            "sides": verdict.sides,
            "metric": claim.metric,
            "better": claim.better,
            "relation": claim.relation,
            "margin": claim.margin,
            "ratio": claim.ratio,
            "agreement": self.agreement,
            "proxy": verdict.proxy,
            "not answered here": self.open,
        }


def hypotheses(grid: Grid, cells: Sequence[Cell]) -> list[Hypothesis]:
    """Every claim of a grid, in its order, as the cells of a scale ask it."""
    asked = verdicts(Measurements(grid, cells, {}))
    return [Hypothesis(verdict, _agreement(verdict), _open(grid, cells, verdict)) for verdict in asked]


def text(found: Sequence[Hypothesis]) -> str:
    """The hypotheses as a list in Markdown; below it what several share, and how they are decided."""
    family = found[0].verdict.family
    tests = f"the {family} tests" if family > 1 else "the one test"
    rule = (
        f"Runs are paired by seed. The interval is the 95 % one of the paired difference, adjusted for {tests} of this "
        "grid (Holm). Where the whole interval shows the opposite, the claim is contradicted; else it is not resolved."
    )
    lines = [f"{n}. {_sentences(one)}" for n, one in enumerate(found, start=1)]
    return "\n".join(lines) + f"\n\n{rule}\n" + "".join(f"\n* {line}" for line in _remarks(found))


def _sentences(one: Hypothesis) -> str:
    verdict, claim = one.verdict, one.verdict.claim
    printed = f": {verdict.published}" if verdict.published else ""
    pair = f"{verdict.sides[0]} against {verdict.sides[1]}" if len(verdict.sides) == 2 else "; ".join(verdict.sides)
    unit = f" ({verdict.unit})" if verdict.unit else ""
    here = f"Here: {pair}, in {verdict.metric}{unit}, {claim.better} is better."
    return f"*{markdown_text(claim.statement)}* " + markdown_text(
        f"({claim.source}{printed}.) {here} Agreement: {one.agreement}."
    )


def _remarks(found: Sequence[Hypothesis]) -> list[str]:
    """Proxies, and what the scale leaves open, each once with the numbers of the claims that it is about."""
    about: dict[tuple[str, str], list[int]] = {}
    for n, one in enumerate(found, start=1):
        for label, remark in (("By proxy", one.verdict.proxy), ("Left open at this scale", one.open)):
            if remark:
                about.setdefault((label, remark), []).append(n)
    return [f"{name} ({', '.join(map(str, claims))}): {markdown_text(text)}." for (name, text), claims in about.items()]


def _agreement(verdict: Verdict) -> str:
    """What would replicate the claim, in the words of its relation."""
    claim, first, unit = verdict.claim, verdict.sides[0], f" {verdict.unit}" if verdict.unit else ""
    if claim.metric in EXACT:
        return f"{first} is better; there is no noise, and so no interval"
    a, b, c, d = (*verdict.sides, *[""] * 4)[:4]
    order = " > ".join(verdict.sides)
    return {
        ">": f"the whole interval favours {first}",
        "~": f"the whole interval lies within {claim.margin}{unit} of 0",
        "ratio": f"{first} is at least {claim.ratio} times as good, by the whole interval of the ratio",
        "ordering": f"{order}, every step by its whole interval",
        "trend": f"{order}, by the whole interval of the slope, and no step goes the other way",
        "interaction": f"{a} is ahead of {b} by more than {c} of {d}, by the whole interval",
        "spread": f"{first} is steadier over seeds, by the whole interval of the distances from the median",
    }[claim.relation]


def _open(grid: Grid, cells: Sequence[Cell], verdict: Verdict) -> str:
    for wanted in verdict.claim.asked:
        if len(side_of(grid, cells, wanted)) != 1:
            return f"'{cell_text(wanted)}' is not one of the cells"
    task = verdict.claim.metric.partition(".")[0]
    if task in TASKS and not any(task in cell.tasks for cell in cells):
        return f"no model is fine-tuned on {task}"
    return ""
