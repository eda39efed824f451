"""A claim of a grid, in full.

In a file, a claim may name a published claim and then takes the paper's part from it (``planning/asked_claims.py``).
"""

from typing import Any, Literal

from ablations.schema.metrics import better
from lightning_modules.config import Settings, knob, required


class Control(Settings):
    """A cell that must have learned what a claim asks about, or no answer says anything."""

    at: dict[str, Any] = required("Axis -> value of the cell.")
    metric: str = knob("", "The metric on which it must be above the best constant answer. By default the claim's.")
    above: str = knob("", "A simple method of that metric that it must be above, in place of the best constant answer.")


ThreatKind = Literal["other subject", "by construction", "confounded"]  # of `outcomes.Regime`


class Threat(Settings):
    """A threat to the validity of a claim's test: why its result, whatever the numbers, says nothing of the claim."""

    kind: ThreatKind = required(
        "With 'other subject' another quantity or protocol is measured than the claim's. With 'by construction' the "
        "result follows from the formula. With 'confounded' something else that differs between the sides may explain "
        "all of it."
    )
    because: str = required("The reason in one plain sentence.", min_length=1)
    withdrawn: bool = knob(
        False,
        "Whether it was found before the claim had a verdict, so that the test is withdrawn and has p = 1 in the "
        "correction. Found later, a threat changes no number.",
    )


class Claim(Settings):
    """One published statement in a form that can be tested."""

    id: str = required(
        "Unique within the grid. By default that of the published claim.", pattern=r"^[a-z0-9][a-z0-9_.]*$"
    )
    claim: str = knob("", "Id of the published claim that it tests. Empty for a hypothesis of the grid.")
    statement: str = required("The claim in words.", min_length=1)
    source: str = knob("", "Paper and table. For a hypothesis, where it comes from, if anywhere.")
    published_metric: str = knob("", "What the paper measured.")
    published: dict[str, float] = knob({}, "The paper's values of the sides by letter: {a: value, b: value, ...}.")
    metric: str = required("The metric measured here.")
    official: str = knob(
        "", "The same metric on the official data set. Replaces 'metric' at scales that fine-tune on that set."
    )
    a: dict[str, Any] = knob({}, "Axis -> value of the first side.")
    b: dict[str, Any] = knob({}, "Axis -> value of the second side.")
    sides: tuple[dict[str, Any], ...] = knob(
        (), "Replaces a and b. Ordering, trend: the sides, best first. Interaction: a, b, c, d of (a - b) - (c - d)."
    )
    against: str = knob("", "A metric of side a that replaces side b, such as a majority baseline.")
    relation: Literal[">", "~", "ratio", "ordering", "trend", "interaction", "spread"] = knob(
        ">", "'>': a is better than b. '~': they differ by less than margin. The others: ablations/claims/relations.py."
    )
    margin: float | None = knob(
        None, "Largest difference that still counts as equal, in the metric's unit. By default claims/margins.py.", gt=0
    )
    size: Literal["", "inside", "beyond", "at_most"] = knob(
        "",
        "What '>' says of the size: 'inside' the margin (a little), 'beyond' it (much), 'at_most' the margin, if it is "
        "better at all. By default nothing.",
    )
    ratio: float | None = knob(None, "a is at least so many times as good as b.", gt=0)
    positive_control: Control | None = knob(
        None, "A cell that shows that the question can be learned here. At the floor, the regime is 'below counting'."
    )
    proxy: str = knob("", "How our measurement differs from the paper's.")
    alternative: str = knob(
        "", "The simplest other explanation of the result, and what speaks for or against it. Shown once it is settled."
    )
    threat: Threat | None = knob(
        None, "Where the result says nothing of the claim: its kind is the regime of the verdict."
    )
    post_hoc: bool = knob(False, "Whether it was stated after runs of its grid had been seen.")

    @property
    def better(self) -> Literal["lower", "higher"]:
        """The better direction of our metric."""
        return better(self.metric)

    @property
    def is_withdrawn(self) -> bool:
        """Whether its test was withdrawn before it had a verdict."""
        return self.threat is not None and self.threat.withdrawn

    @property
    def origin(self) -> str:
        """Paper and table; names a hypothesis as one."""
        return self.source if self.claim else ", ".join(filter(None, ("own hypothesis", self.source)))

    @property
    def asked(self) -> tuple[dict[str, Any], ...]:
        """The sides in the order of the claim, as axis -> value; only the first with ``against``."""
        return self.sides or tuple(side for side in (self.a, self.b) if side)
