"""A scale may judge some claims of its grid alone: the others are no part of its correction, and have no verdict."""

import pytest

from ablations.claims import judging
from ablations.measurements.measurements import Measurements
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests import tiny
from tests.unit.synthetic import RATE, make_record

CLAIMS = """claims:
  - {id: less, statement: s, metric: heldout.loss, a: {RATE: 0.15}, b: {RATE: 0.4}}
  - {id: more, statement: s, metric: heldout.loss, a: {RATE: 0.4}, b: {RATE: 0.8}}
"""


def of(tmp_path, judged=""):
    file = tiny.grid(tmp_path, rates="[0.15, 0.4, 0.8]", extra=CLAIMS.replace("RATE", RATE))
    entry = f"smoke: {{description: seconds{f', claims: {judged}' * bool(judged)}}}"
    file.write_text(file.read_text().replace("smoke: {description: seconds}", entry))
    return file


def verdicts(file, losses):
    """Verdicts on runs with these losses of each cell, by seed."""
    found = plan(grids.read(file), "smoke", seeds=len(losses[0]))
    records = {
        run.id: make_record(run, loss)
        for cell, of_cell in zip(found.cells, losses, strict=True)
        for run, loss in zip(cell.runs, of_cell, strict=True)
    }
    return found, {v.claim.id: v for v in judging.verdicts(Measurements(found.grid, found.cells, records))}


def test_a_claim_that_is_judged_alone_pays_for_no_other(tmp_path):
    losses = [[4.00, 4.02], [4.05, 4.075], [4.06, 4.09]]
    _, both = verdicts(of(tmp_path), losses)
    found, alone = verdicts(of(tmp_path, "[less]"), losses)
    assert (list(both), list(alone), found.claims) == (["less", "more"], ["less"], ["less"])
    assert (both["less"].family, alone["less"].family) == (2, 1)
    assert alone["less"].raw == both["less"].raw, "what else is measured is counted in the noise as before"
    assert alone["less"].adjusted.level < both["less"].adjusted.level


def test_which_claims_are_judged_moves_no_run(tmp_path):
    every = [run.id for run in plan(grids.read(of(tmp_path)), "smoke").runs]
    assert [run.id for run in plan(grids.read(of(tmp_path, "[more]")), "smoke").runs] == every


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ("[les]", "scales.smoke.claims.0: 'les' is not a claim of this grid. Did you mean 'less'?"),
        ("[less, x.y]", "scales.smoke.claims.1: 'x.y' is not a claim of this grid."),
        ("[more, more]", "scales.smoke.claims.1: 'more' is named twice"),
    ],
)
def test_a_scale_names_claims_of_its_grid(tmp_path, judged, message):
    with pytest.raises(ConfigError) as failure:
        grids.read(of(tmp_path, judged))
    (line,) = str(failure.value).splitlines()
    assert message in line


def test_an_answer_rests_on_claims_that_are_judged(tmp_path):
    file = of(tmp_path, "[less], conclusion: [{say: So., given: {more: replicates}}]")
    with pytest.raises(ConfigError) as failure:
        grids.read(file)
    assert "given.more" in str(failure.value)
