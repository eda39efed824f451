"""What claims can show at each look, before they run."""

import pytest

from ablations import study
from ablations.claims import power
from ablations.core.estimates import NO_EXAMPLES, linear
from ablations.core.formatting import markdown
from ablations.core.looks import Looks, nominal_alpha
from ablations.core.moderation import Variance, moderated
from ablations.measurements.measurements import Measurements
from ablations.study import Study
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid

RATES = (0.15, 0.4, 0.8)
LOOKS = (4, 8)
CELLS = [make_cell({RATE: rate}, seeds=4).but(looks=LOOKS) for rate in RATES]
NOISE = (-0.03, -0.01, 0.01, 0.03)  # the same in every cell
SD = moderated(dict.fromkeys(RATES, NOISE)).variances[0.4].value ** 0.5


def records_of(means):
    return {
        id: record
        for cell, mean in zip(CELLS, means, strict=True)
        for id, record in losses(cell, [mean + x for x in NOISE]).items()
    }


def prospects(records, *claims, scale="laptop", cells=None):
    grid = make_grid(axes={RATE: list(RATES)}, claims=claims or [make_claim()])
    scales = cells or {"laptop": CELLS}
    measured = {name: Measurements(grid, of, records) for name, of in scales.items()}
    return power.prospects(grid, scale, measured), grid


def test_a_pilot_gives_the_noise_and_each_look_what_it_shows():
    (first, second), _ = prospects(records_of((4.5, 4.4, 5.0)))
    assert [(p.look, p.n, p.pilot) for p in (first, second)] == [(1, 4, "laptop"), (2, 8, "laptop")]
    assert first.sd == pytest.approx(SD)
    level = 1 - nominal_alpha(0.05, Looks(LOOKS))
    for prospect, n in ((first, 4), (second, 8)):
        known = dict.fromkeys("ab", Variance(SD**2, 3 * (n - 1), 3 * (n - 1)))
        estimate = linear([("a", 1.0), ("b", -1.0)], {"a": [0.0] * n, "b": [0.0] * n}, known, NO_EXAMPLES)
        assert prospect.visible == pytest.approx(estimate.detectable(level))
    assert second.visible < first.visible


def test_what_is_visible_grows_with_the_family():
    alone, _ = prospects(records_of((4.5, 4.4, 5.0)))
    others = [make_claim(id=f"c{n}", a={RATE: rate}) for n, rate in enumerate((0.8, 0.6, 0.7))]
    several, _ = prospects(records_of((4.5, 4.4, 5.0)), make_claim(), *others)
    assert several[0].visible > alone[0].visible
    assert next(p.untestable for p in several if p.claim.id == "c1").startswith("side a (masking rate 60 %)")


def test_equality_that_cannot_be_shown_is_told_before():
    wide, narrow = make_claim(relation="~", margin=0.1), make_claim(id="narrow", relation="~", margin=0.02)
    told, grid = prospects(records_of((4.5, 4.4, 5.0)), wide, narrow)
    assert told[1].equality > told[0].equality > 0.8
    assert told[3].equality < 0.05
    page = markdown(power.sheet(told, grid))
    assert "cannot be shown with these seeds and margins: narrow" in page
    assert "mask15.40_gt_15" not in page.partition("cannot be shown with these")[2].partition("\n")[0]


def test_without_a_pilot_the_noise_is_assumed_and_said_to_be():
    (first, second), grid = prospects({})
    assert (first.pilot, first.sd) == ("", power.ASSUMED["nats"])
    assert second.visible < first.visible
    sheet = power.sheet([first, second], grid)
    assert "(assumed)" in markdown(sheet)
    known, _ = prospects(records_of((4.5, 4.4, 5.0)))
    assert [explains_guesses(sheet), explains_guesses(power.sheet(known, grid))] == [True, False]


def explains_guesses(sheet):
    return any(note.startswith("Assumed:") for note in sheet.notes)


def test_runs_of_like_size_tell_the_noise_before_it_is_assumed():
    grid = make_grid(axes={RATE: list(RATES)})
    flops = CELLS[0].system.flops()
    elsewhere = [make_cell({RATE: rate}, seeds=4) for rate in (0.2, 0.3, 0.5)]
    records = [
        record.but(config=run.to_dict(), cost={"flops": flops})
        for cell in elsewhere
        for run, record in zip(cell.runs, losses(cell, [5.0 + x for x in NOISE]).values(), strict=True)
    ]
    told = power.prospects(grid, "laptop", {"laptop": Measurements(grid, CELLS, {})}, records)
    assert (told[0].pilot, told[0].like) == ("", 3)
    assert told[0].sd == pytest.approx(SD)
    assert "(3 cells of like size)" in markdown(power.sheet(told, grid))
    small = [record.but(cost={"flops": flops / 9}) for record in records]
    assumed = power.prospects(grid, "laptop", {"laptop": Measurements(grid, CELLS, {})}, small)
    assert (assumed[0].like, assumed[0].sd) == (0, power.ASSUMED["nats"])


def test_a_pilot_may_come_from_another_scale():
    there = [make_cell({RATE: rate}, seeds=4, label=f"there {rate}") for rate in RATES]
    records = {id: r for cell in there for id, r in losses(cell, [4 + x for x in NOISE]).items()}
    (first, _), grid = prospects(records, cells={"laptop": CELLS, "demo": there})
    assert (first.pilot, first.sd) == ("demo", pytest.approx(SD))
    assert "comes from the finished runs at demo" in markdown(power.sheet([first], grid))
    assert "(demo)" in markdown(power.sheet([first], grid))


@pytest.mark.parametrize(
    "claim",
    [
        make_claim(relation="ratio", ratio=1.02),
        make_claim(relation="spread", published={}),
        make_claim(relation="ordering", a={}, b={}, sides=[{RATE: 0.4}, {RATE: 0.15}, {RATE: 0.8}], published={}),
    ],
    ids=lambda claim: claim.relation,
)
def test_every_relation_says_what_it_can_show(claim):
    (first, second), grid = prospects(records_of((4.5, 4.4, 5.0)), claim)
    assert second.visible > 0
    assert (first.visible is None) == (claim.relation == "spread")  # four seeds are too few for a spread
    assert markdown(power.sheet([first, second], grid))


def test_what_has_no_noise_needs_one_run():
    (first, _), grid = prospects({}, make_claim(metric="cost.parameters"))
    assert first.exact
    assert "no noise" in markdown(power.sheet([first], grid))


def test_a_scale_that_cannot_be_planned_is_no_pilot(tmp_path, monkeypatch):
    planned = study.plan

    def plan(grid, scale, **request):
        if scale == "paper":
            raise study.ConfigError(["no data"])
        return planned(grid, scale, **request)

    monkeypatch.setattr(study, "plan", plan)
    assert "'paper' gave no pilot" in Study("masking_ratio", "smoke", results_dir=tmp_path).power().text
