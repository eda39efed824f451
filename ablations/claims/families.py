"""The tests among the claims of a grid, and the families over which Holm's procedure corrects them.

Claims about one contrast of cells on one metric are one test, however they bracket it. A metric without noise, such as
a number of parameters, is compared directly and is no test, and neither is what the scale leaves out.

A claim is corrected for the tests that stood when it was stated, as far as these have runs: a family grows with later
arms. The *planned* tests, those of claims that were committed before their first record, are one family. *Post hoc*
claims have a family of their own: their tests and the planned ones. So no claim that is stated later moves a number of
a planned claim, and none is easier to show than if it had been planned. What else might have been stated after the
results no correction knows; the mark says so. A post hoc claim about a planned contrast is the planned test, with its
interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ablations.claims.contrasts import unmeasured
from ablations.claims.margins import margin
from ablations.claims.relations import RELATIONS
from ablations.core.estimates import summed
from ablations.measurements.selection import side_of
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.metrics import EXACT

Key = tuple[object, ...]  # what makes two claims one test


@dataclass(frozen=True)
class Families:
    """The distinct tests among the claims of a grid at a scale.

    Attributes:
        tests: The claims of each test: planned tests first, each kind in the order of the file.
        planned: The tests with a planned claim.
    """

    tests: dict[Key, list[Claim]]
    planned: tuple[Key, ...]

    def size(self, claim: Claim, key: Key) -> int:
        """The number of tests that a claim is corrected for; that of planned tests for what is no test."""
        return len(self.tests) if claim.post_hoc and key not in self.planned else len(self.planned)

    def deciding(self, key: Key) -> list[Claim]:
        """The claims whose p values a test has: the planned ones, if there are any."""
        members = self.tests[key]
        return [claim for claim in members if not claim.post_hoc] or members


def families(claims: Sequence[Claim], grid: Grid, cells: Sequence[Cell]) -> Families:
    """The tests of claims, without claims about tasks that the scale leaves out, measured or not."""
    by_test: dict[Key, list[Claim]] = {}
    for claim in claims:
        if claim.metric not in EXACT and not unmeasured(claim, cells):
            by_test.setdefault(test_of(claim, grid, cells), []).append(claim)
    planned = tuple(key for key, members in by_test.items() if not all(claim.post_hoc for claim in members))
    return Families({key: by_test[key] for key in sorted(by_test, key=lambda key: key not in planned)}, planned)


def test_of(claim: Claim, grid: Grid, cells: Sequence[Cell]) -> Key:
    """The same weights of the same cells, metric and question of size; up to their sign, so brackets do not count."""
    relation = RELATIONS[claim.relation]
    named = [_name(grid, cells, side) for side in claim.asked]
    rows = relation.weights(claim)
    if len(relation.tested(rows)) == 1:
        weights = sorted(summed(zip(named, rows[0], strict=True)).items())
        first = weights[0][1] if weights else 1.0
        contrast: object = tuple((name, round(weight / first, 9)) for name, weight in weights)
    else:
        contrast = tuple(named)  # each step in its order
    bound = {"~": margin(claim), "ratio": claim.ratio}.get(claim.relation)
    kind = claim.relation if claim.relation in ("ratio", "ordering", "trend", "spread") else claim.size
    return kind, contrast, claim.metric, claim.against, margin(claim) if claim.size else bound


def _name(grid: Grid, cells: Sequence[Cell], side: dict[str, object]) -> str:
    fitting = side_of(grid, cells, side)
    return fitting[0].label if len(fitting) == 1 else repr(sorted({**grid.baseline, **side}.items(), key=str))
