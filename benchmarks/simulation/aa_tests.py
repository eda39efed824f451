"""A/A tests: identical variants under different names, judged by the code that judges published claims."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablations.claims import judging
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, WITHIN
from ablations.core.power import detectable
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.record import Record
from ablations.schema.run import Run
from benchmarks.simulation.simulation import LOOKS, Row
from lightning_modules.config import identity
from lightning_modules.systems import SYSTEMS

GRIDS = 1_000
SEEDS = LOOKS.n[-1]
NOISE = 0.03  # nats, standard deviation of a run
_METRIC, _AXIS, _LOSS = "heldout.loss", "variant", 4.6
_DETECTABLE = detectable(NOISE * math.sqrt(2 / SEEDS), 2 * (SEEDS - 1))


@dataclass(frozen=True)
class Scenario:
    """Variants of a baseline, and the claim about each.

    Attributes:
        name: Shown to people.
        copies: Number of variants that are claimed to be better than the baseline (or equal to it).
        margin: Margin of claims of equality, in nats; None for claims of "better".
        effect: The true advantage of each variant, in nats.
        ratio: The variance of the baseline's runs, over that of the others.
    """

    name: str
    copies: int
    margin: float | None = None
    effect: float = 0.0
    ratio: float = 1.0

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The wrong verdicts; with an effect, "is better" is right."""
        if self.margin is not None or self.effect:
            return (AGAINST,)
        return AS_CLAIMED, AGAINST


SCENARIOS = (
    Scenario("the same twice", 1),
    Scenario("the same eight times, seven claims", 7),
    Scenario("the same eight times, the baseline noisier (variance 4 times)", 7, ratio=4.0),
    Scenario("the same eight times, the baseline noisier (variance 9 times)", 7, ratio=9.0),
    Scenario("the same twice, claimed to be equal within 0.1 nats", 1, margin=0.1),
    Scenario("better by what eight seeds detect", 1, effect=_DETECTABLE),
)


def verdict_rows(grids: int = GRIDS, scenarios: tuple[Scenario, ...] = SCENARIOS) -> list[Row]:
    """The verdicts on simulated grids, as shares of grids and of claims.

    A grid is ``wrong`` if at least one of its claims has a wrong verdict: at most one in twenty, as promised.
    """
    return [_row(scenario, grids, place) for place, scenario in enumerate(scenarios)]


def _row(scenario: Scenario, grids: int, place: int) -> Row:
    count: Counter[str] = Counter()
    wrong = 0
    for verdicts in outcomes(scenario, grids, place):
        count.update(verdicts)
        wrong += any(outcome in scenario.mistakes for outcome in verdicts)
    total = count.total()
    return {
        "scenario": scenario.name,
        "seeds": SEEDS,
        "grids": grids,
        "wrong grids": wrong,
        "share wrong": wrong / grids,
        "standard error": (wrong / grids * (1 - wrong / grids) / grids) ** 0.5,
        **{outcome: count[outcome] / total for outcome in (AS_CLAIMED, WITHIN, OPEN, AGAINST)},
    }


def outcomes(scenario: Scenario, grids: int, place: int = 0) -> Iterator[list[str]]:
    """The verdicts of each simulated grid, in the order of its claims."""
    names = ["baseline", *(f"copy {number}" for number in range(1, scenario.copies + 1))]
    grid, cells = _grid(scenario, names), [_cell(name) for name in names]
    runs = [[run.id for run in cell.runs] for cell in cells]
    draws = np.random.default_rng([*b"same twice", place])
    for _ in range(grids):
        losses = _LOSS + draws.normal(0, NOISE, (len(cells), SEEDS))
        losses[0] += (scenario.ratio**0.5 - 1) * (losses[0] - _LOSS)
        losses[1:] -= scenario.effect
        records = {
            run: _record(run, loss)
            for ids, values in zip(runs, losses.tolist(), strict=True)
            for run, loss in zip(ids, values, strict=True)
        }
        yield [verdict.outcome for verdict in judging.verdicts(Measurements(grid, cells, records))]


def _grid(scenario: Scenario, names: list[str]) -> Grid:
    relation: dict[str, Any] = {} if scenario.margin is None else {"relation": "~", "margin": scenario.margin}
    tested = [
        Claim(
            id=name.replace(" ", "_"),
            claim="simulated",
            statement=f"The {name} is better.",
            source="simulated",
            metric=_METRIC,
            a={_AXIS: name},
            b={_AXIS: names[0]},
            **relation,
        ).to_dict()
        for name in names[1:]
    ]
    return Grid.read(
        {
            "name": "same_twice",
            "question": "Is a variant better than itself?",
            "base": next(iter(SYSTEMS)),
            "axes": {_AXIS: names},
            "variants": {_AXIS: {name: {} for name in names}},
            "baseline": {_AXIS: names[0]},
            "seeds": SEEDS,
            "looks": list(LOOKS.n),
            "scales": {"simulated": {"description": "nothing is trained"}},
            "metrics": [{"name": _METRIC, "better": "lower"}],
            "claims": tested,
        }
    )


def _cell(name: str) -> Cell:
    system = next(iter(SYSTEMS.values()))
    text = dict.fromkeys(system.data.corpora, identity(name))
    runs = tuple(Run.pretraining(system, seed, text) for seed in range(SEEDS))
    return Cell(values={_AXIS: name}, label=name, system=system, runs=runs, looks=LOOKS.n)


def _record(run: str, loss: float) -> Record:
    return Record(id=run, kind="pretrain", config={}, outcome="done", metrics={_METRIC: loss})
