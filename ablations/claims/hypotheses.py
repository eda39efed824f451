"""The claims of a grid before it runs: what each says, what we compare, and what would be agreement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablations.claims.contrasts import asked_cells
from ablations.claims.judging import verdicts
from ablations.claims.margins import source
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import families_text
from ablations.core.formatting import markdown_text
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid
from ablations.schema.metrics import EXACT


@dataclass(frozen=True)
class Hypothesis:
    """A claim as a scale tests it.

    Attributes:
        verdict: The verdict without records: sides, metric and printed values for people.
        agreement: What the adjusted interval must show.
        open: Why the scale cannot test the claim; empty if it can.
    """

    verdict: Verdict
    agreement: str
    open: str

    def to_dict(self) -> dict[str, Any]:
        """One column per property."""
        verdict, claim = self.verdict, self.verdict.claim
        return {
            "claim": claim.id,
            "published claim": claim.claim,
            "statement": claim.statement,
            "source": claim.origin,
            "published": verdict.published,
            "sides": verdict.sides,
            "metric": claim.metric,
            "better": claim.better,
            "relation": claim.relation,
            "margin": verdict.margin,
            "margin from": source(claim),
            "size": claim.size,
            "post hoc": claim.post_hoc,
            "ratio": claim.ratio,
            "agreement": self.agreement,
            "proxy": verdict.proxy,
            "not answered here": self.open,
        }


def hypotheses(grid: Grid, cells: Sequence[Cell]) -> list[Hypothesis]:
    """Every claim of a grid, in its order, as the cells of a scale test it."""
    undecided = verdicts(Measurements(grid, cells, {}))
    return [Hypothesis(one, _agreement(one), asked_cells(one.claim, grid, cells)[1]) for one in undecided]


def text(stated: Sequence[Hypothesis]) -> str:
    """The hypotheses as a list in Markdown; below it the rule of decision and remarks."""
    rule = _rule([hypothesis.verdict for hypothesis in stated])
    lines = [f"{n}. {_sentences(hypothesis)}" for n, hypothesis in enumerate(stated, start=1)]
    return "\n".join(lines) + f"\n\n{rule}\n" + "".join(f"\n* {line}" for line in _remarks(stated))


def _rule(verdicts: Sequence[Verdict]) -> str:
    looks, tests = verdicts[0].looks, families_text(verdicts)
    if not tests:
        return "No claim of this grid is tested at this scale."
    seeds = f"{looks[0]} seeds" + "".join(f", then {more} for what is open" for more in looks[1:])
    return (
        f"Claims are judged at {seeds}. The interval counts the noise of runs, pooled over cells or, of fine-tunings, "
        "by seed. It also counts that of held-out examples where their scores are kept. It is adjusted for "
        f"{tests} of this grid and for the looks (Holm). If the whole interval shows the opposite, the claim is "
        "contradicted. Otherwise it is not resolved."
    )


def _sentences(hypothesis: Hypothesis) -> str:
    verdict, claim = hypothesis.verdict, hypothesis.verdict.claim
    printed = f": {verdict.published}" if verdict.published else ""
    pair = f"{verdict.sides[0]} against {verdict.sides[1]}" if len(verdict.sides) == 2 else "; ".join(verdict.sides)
    unit = f" ({verdict.unit})" if verdict.unit else ""
    ours = f"Here: {pair}, in {verdict.metric}{unit}, {claim.better} is better. {margin_text(verdict)}"
    return f"*{markdown_text(claim.statement)}* " + markdown_text(
        f"({claim.origin}{printed}.) {ours}Agreement: {hypothesis.agreement}."
    )


def margin_text(verdict: Verdict) -> str:
    """The margin of a verdict and where it comes from, as a sentence with a space behind it; empty without one."""
    if verdict.margin is None:
        return ""
    unit = f" {verdict.unit}" if verdict.unit else ""
    return f"Margin {verdict.margin:.3g}{unit} ({source(verdict.claim)}). "


def _remarks(stated: Sequence[Hypothesis]) -> list[str]:
    """Proxies and open claims, each remark once with the numbers of its claims."""
    about: dict[tuple[str, str], list[int]] = {}
    for n, hypothesis in enumerate(stated, start=1):
        remarks = (("By proxy", hypothesis.verdict.proxy), ("Left open at this scale", hypothesis.open))
        for label, remark in remarks:
            if remark:
                about.setdefault((label, remark), []).append(n)
    return [f"{name} ({', '.join(map(str, claims))}): {markdown_text(text)}." for (name, text), claims in about.items()]


def _agreement(verdict: Verdict) -> str:
    """The result that would replicate the claim."""
    claim, first, unit = verdict.claim, verdict.sides[0], f" {verdict.unit}" if verdict.unit else ""
    if claim.metric in EXACT:
        return f"{first} is better, without an interval, since there is no noise"
    a, b, c, d = (*verdict.sides, *[""] * 4)[:4]
    order = " > ".join(verdict.sides)
    within = f"within {verdict.margin:.3g}{unit}" if verdict.margin else ""
    favours, bound = f"the whole interval favours {first}", within.removeprefix("within ")
    better = {
        "": favours,
        "inside": f"{favours}, {within} of 0",
        "beyond": f"{favours}, by more than {bound}",
        "at_most": f"no part of the interval favours {first} by more than {bound}",
    }
    return {
        ">": better[claim.size],
        "~": f"the whole interval lies {within} of 0",
        "ratio": f"the whole interval of the ratio lies above {claim.ratio} in favour of {first}",
        "ordering": f"the whole interval of every step favours {order}",
        "trend": f"the whole interval of the slope favours {order}, and no step goes the other way",
        "interaction": f"the whole interval shows that {a} beats {b} by more than {c} beats {d}",
        "spread": f"the whole interval of the distances from the median favours {first}",
    }[claim.relation]
