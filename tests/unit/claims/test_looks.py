"""Two looks: what the first decides is final, what is open gets more seeds, and no look sees later ones."""

import numpy as np
import pytest

from ablations.claims import judging
from ablations.claims.outcomes import AS_CLAIMED, OPEN, Reason
from ablations.core.looks import Looks, nominal_alpha
from ablations.core.store import Records
from ablations.measurements.measurements import Measurements
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests.depth import depth
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid, make_record

RATES = (0.15, 0.3, 0.4, 0.8)
CLEAR, CLOSE = 4.0, 4.195  # nats at 30 % and at 40 %, against 4.2 at 15 %
NOISE = np.random.default_rng(12).normal(0, 0.02, (4, 8))
CLAIMS = [
    make_claim(id="clear", a={RATE: 0.3}, b={RATE: 0.15}),
    make_claim(id="close", a={RATE: 0.4}, b={RATE: 0.15}),
]
MEANS = (4.2, CLEAR, CLOSE, 4.2)


def cells(seeds=8):
    return [make_cell({RATE: rate}, seeds=seeds).but(looks=[4, 8]) for rate in RATES]


def records_of(planned, noise=NOISE, means=MEANS, shift=0.0):
    """Losses; ``shift`` moves the later seeds of every cell but the first."""
    found = {}
    for n, cell in enumerate(planned):
        values = [means[n] + noise[n][s] + shift * (s >= 4 and n > 0) for s in range(len(cell.runs))]
        found |= losses(cell, values)
    return found


def verdicts(planned, records, claims=CLAIMS):
    grid = make_grid(axes={RATE: list(RATES)}, claims=claims, seeds=4, looks=[4, 8])
    return judging.verdicts(Measurements(grid, planned, records))


def test_what_the_first_look_decides_is_final_whatever_later_seeds_say():
    first = verdicts(cells(4), records_of(cells(4)))
    assert [v.outcome for v in first] == [AS_CLAIMED, OPEN]
    assert [(v.look, v.n) for v in first] == [(1, 4), (1, 4)]
    later = verdicts(cells(8), records_of(cells(8), shift=0.6))  # the later seeds turn everything round
    assert (later[0].outcome, later[0].look, later[0].n) == (AS_CLAIMED, 1, 4)
    assert (later[0].effect, later[0].adjusted, later[0].p) == (first[0].effect, first[0].adjusted, first[0].p)
    assert (later[1].look, later[1].n) == (2, 8)
    assert later[1].effect < -0.2


def test_more_seeds_than_the_look_never_enter_a_verdict():
    planned = [make_cell({RATE: rate}, seeds=12).but(looks=[4, 8]) for rate in RATES]
    wild = np.concatenate([NOISE, np.full((4, 4), 50.0)], axis=1)
    assert verdicts(planned, records_of(planned, wild)) == verdicts(cells(8), records_of(cells(8)))


def test_a_look_is_judged_when_all_its_runs_have_ended():
    planned = cells(8)
    records = records_of(planned)
    del records[planned[2].runs[6].id]
    close = verdicts(planned, records)[1]
    assert (close.look, close.n, close.reason) == (1, 4, Reason.POWER)
    del records[planned[2].runs[3].id]
    assert verdicts(planned, records)[1].reason is Reason.UNFINISHED


def test_levels_are_those_of_the_looks_and_a_rejection_frees_its_share():
    alone = verdicts(cells(4), records_of(cells(4)), CLAIMS[1:])[0]
    both = verdicts(cells(4), records_of(cells(4)))
    looks = Looks((4, 8))
    assert 1 - alone.adjusted.level == pytest.approx(nominal_alpha(0.05, looks))
    assert 1 - both[0].adjusted.level == pytest.approx(nominal_alpha(0.025, looks))
    assert both[1].adjusted.level == pytest.approx(alone.adjusted.level)  # the clear claim left its share


def test_first_look_names_the_cells_of_open_claims_alone():
    grid = make_grid(axes={RATE: list(RATES)}, claims=CLAIMS, seeds=4, looks=[4, 8])
    planned = cells(4)
    found = judging.first_look(Measurements(grid, planned, records_of(planned)))
    assert found.open == {planned[0].label, planned[2].label}
    assert found.missing == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_identical_cells_are_silent_over_two_looks():
    """Families of five claims about equal cells, with variance ratios up to 9: at most 5 % of grids say anything."""
    draws, spoken, trials = np.random.default_rng(5), 0, depth(30, 80)
    claims = [make_claim(id=f"c{n}", a={RATE: a}, b={RATE: b})
              for n, (a, b) in enumerate([(0.3, 0.15), (0.4, 0.15), (0.8, 0.15), (0.3, 0.4), (0.4, 0.8)])]  # fmt: skip
    planned, scale = cells(8), np.array([1, 1, 2, 3])[:, None] * 0.02
    for _ in range(trials):
        records = records_of(planned, draws.normal(0, 1, (4, 8)) * scale, (4.2,) * 4)
        spoken += any(v.outcome != OPEN for v in verdicts(planned, records, claims))
    assert spoken <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5


# --- what is planned


@pytest.fixture
def grid():
    read = grids.read("masking_ratio")
    scale = read.scales["smoke"].model_copy(update={"seeds": 2, "looks": (2, 4), "first_seed": 10})
    return read.model_copy(update={"scales": {**read.scales, "smoke": scale}})


def store(grid, folder, look=None, values=None):
    records = Records(folder)
    for cell in plan(grid, "smoke", look=look, records=records).cells:
        rate = cell.values[RATE]
        for run in cell.runs:
            loss = (values or {}).get(rate, 4.0) + 0.004 * (run.seed % 2) + 0.001 * (run.seed % 3)
            records.put(make_record(run, loss, config=run.to_dict()))
    return records


SPREAD = {0.05: 6.0, 0.15: 4.5, 0.4: 4.5, 0.6: 4.9, 0.8: 5.5}  # 15 and 40 % are alike, the rest is far apart


def test_the_second_look_trains_only_cells_of_open_claims(grid, tmp_path):
    first = plan(grid, "smoke")
    assert {run.seed for run in first.runs} == {10, 11}
    records = store(grid, tmp_path, values=SPREAD)
    assert plan(grid, "smoke", records=records).is_finished
    second = plan(grid, "smoke", look=2, records=records)
    assert second.look == 2
    assert {run.seed for run in second.pending} == {12, 13}
    assert {cell.values[RATE] for cell in second.cells if len(cell.runs) == 4} == {0.15, 0.4}
    assert second.folder_name == "smoke"  # no study of its own


def test_a_second_look_that_was_begun_is_planned_without_asking(grid, tmp_path):
    records = store(grid, tmp_path, values=SPREAD)
    run = plan(grid, "smoke", look=2, records=records).pending[0]
    records.put(make_record(run, 4.5, config=run.to_dict()))
    begun = plan(grid, "smoke", records=records)
    assert (begun.look, len(begun.pending)) == (2, 3)
    assert plan(grid, "smoke", look=1, records=records).is_finished


def test_a_second_look_waits_for_the_first(grid, tmp_path):
    with pytest.raises(ConfigError, match="first look is not finished"):
        plan(grid, "smoke", look=2, records=Records(tmp_path))
    with pytest.raises(ConfigError, match="has looks 1 to 2"):
        plan(grid, "smoke", look=3)
    with pytest.raises(ConfigError, match="has one look"):
        plan(grids.read("masking_ratio"), "smoke", look=2)


EQUAL = "id: x, statement: s, source: o, relation: '~', a: {model.dropout: 0.0}, b: {model.dropout: 0.1}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("seeds: 4\nlooks: [4, 8]", ""),
        ("seeds: 3\nlooks: [4, 8]", "looks: the first look has 4 seeds, 'seeds' says 3"),
        ("seeds: 8\nlooks: [8, 4]", "looks: numbers of seeds must grow"),
        ("seeds: 2\nlooks: [2, 4, 6]", "looks: 3 looks. At most 2"),
        ("seeds: 4\nlooks: [4, 8]\nfirst_seed: 995", "first_seed: the last seed at scale"),
        ("variance_groups: [{model.dropout: [0.0, 0.1]}]", ""),
        ("variance_groups: [{model.dropout: 0.1}]", "variance_groups: the cell dropout=0.0 of scale 'smoke' is in 0"),
        ("variance_groups: [{model.dropout: 0.1}, {model.dropout: [0.0, 0.1]}]", "is in 2 groups"),
        ("variance_groups: [{model.dropot: 0.1}]", "is not an axis"),
        (f"claims: [{{{EQUAL}, metric: heldout.loss}}]", ""),
        (f"claims: [{{{EQUAL}, metric: cost.seconds}}]", "claims.0: needs a 'margin'"),
    ],
)
def test_looks_seeds_and_groups_are_checked_when_a_grid_is_read(tmp_path, changes, message):
    text = "question: What if?\nbase: bert_base\naxes: {model.dropout: [0.0, 0.1]}\nscales: {smoke: {}}\n"
    file = tmp_path / "what_if.yaml"
    metrics = "metrics: [{name: heldout.loss}, {name: cost.seconds}]\n"
    file.write_text(text + metrics + changes + "\n")
    if not message:
        assert grids.read(file).looks_at("smoke")
        return
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    assert message in str(raised.value)
