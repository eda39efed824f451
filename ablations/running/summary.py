"""What an execution of a plan says at its end: outcomes, problems, and why runs have no result."""

from dataclasses import dataclass, field
from pathlib import Path

from ablations.core.formatting import markdown_code, markdown_safe, markdown_text


@dataclass(frozen=True)
class Failure:
    """Why a run has no result; other runs may have ended in the same way.

    Attributes:
        label: Its cell and seed.
        outcome: How it ended.
        detail: What happened, the type and the message first, then where.
        run_id: Its id.
        log: The log of its attempts on this machine.
        others: Number of other runs that ended in the same way.
    """

    label: str
    outcome: str
    detail: str
    run_id: str
    log: Path
    others: int = 0

    @property
    def named(self) -> str:
        """The run, and how many ended like it."""
        return f"{self.label} {self.outcome}" + (f", and {self.others} more in the same way" if self.others else "")

    def __str__(self) -> str:
        message, *places = self.detail.splitlines() or [""]
        where = [f"  at {place}" for place in places[:1]]
        return "\n".join([f"{self.named}: {message}", *where, f"  log: {self.log}"])

    def markdown(self) -> str:
        """An item of a list without paths of this machine."""
        message = markdown_text(self.detail.partition("\n")[0])
        return f"* {markdown_text(self.named)}: {message} ({markdown_code(f'ablations logs {self.run_id}')})"


@dataclass
class Summary:
    """The result of executing a plan.

    Attributes:
        outcomes: Outcome -> number of runs of the plan.
        executed: Attempts of this launcher.
        elsewhere: Runs that another launcher finished meanwhile.
        duplicates: Attempts of this launcher that ended after another process had recorded the run.
        problems: Problems beyond single runs (disk full), one sentence each.
        seconds: Wall time.
        failures: Why runs of the plan have no result, each reason once.
        notes: What runs were made without, and what is not kept with them, a sentence each.
        left: Runs that are not made because the time was over, or too short for them.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    executed: int = 0
    elsewhere: int = 0
    duplicates: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: int = 0

    def __str__(self) -> str:
        return "\n".join([self._counted(), *map(str, self.failures)])

    def _repr_markdown_(self) -> str:
        failures = (failure.markdown() for failure in self.failures)
        return "\n".join([markdown_safe(self._counted()), "", *failures]).strip()

    def _counted(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())) or "no runs"
        trained = f"{self.executed} trained here" if self.executed else "nothing to train"
        if self.duplicates:
            trained += f", {self.duplicates} of them after another process had recorded the run, whose record stays"
        left = f"{self.left} run{'s' * (self.left > 1)} left for want of time. Run the command again to continue"
        return ". ".join([f"{counts}; {trained}", *[left] * bool(self.left), *self.problems, *self.notes]) + "."

    def then(self, later: "Summary") -> "Summary":
        """This execution and the one after it, of the same grid."""
        return Summary(
            later.outcomes,
            self.executed + later.executed,
            self.elsewhere + later.elsewhere,
            self.duplicates + later.duplicates,
            [*self.problems, *later.problems],
            self.seconds + later.seconds,
            later.failures,
            list(dict.fromkeys([*self.notes, *later.notes])),
            later.left,
        )

    @property
    def complete(self) -> bool:
        """Whether every run of the plan has a final outcome."""
        return not self.problems and set(self.outcomes) <= {"done", "diverged", "invalid", "orphaned"}
