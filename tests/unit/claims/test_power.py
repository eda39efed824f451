"""How many seeds claims need, from a pilot or without one."""

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower
from typer.testing import CliRunner

from ablations import study
from ablations.claims import power
from ablations.commands.cli import app
from ablations.core.formatting import markdown
from ablations.core.statistics import minimum_detectable_effect, paired_power, seeds_needed
from ablations.core.store import Records
from ablations.measurements.measurements import Measurements
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid, make_record

RATES = (0.15, 0.4, 0.8)
CELLS = [make_cell({RATE: rate}, seeds=4) for rate in RATES]
NOISE = np.random.default_rng(5).normal(0, 0.03, (3, 4))


def records_of(means, noise=NOISE):
    rows = [[mean + x for x in row] for mean, row in zip(means, noise, strict=True)]
    return {id: record for cell, row in zip(CELLS, rows, strict=True) for id, record in losses(cell, row).items()}


def needs(records, *claims, scale="laptop", cells=None):
    grid = make_grid(axes={RATE: list(RATES)}, claims=claims or [make_claim()])
    scales = cells or {"laptop": CELLS}
    return power.needs(grid, scale, {name: Measurements(grid, of, records) for name, of in scales.items()}), grid


@pytest.mark.parametrize("effect", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("level", [0.95, 0.995])
@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_seeds_are_those_of_statsmodels(effect, level, wanted):
    solved = TTestPower().solve_power(effect_size=effect, alpha=1 - level, power=wanted, alternative="two-sided")
    found = seeds_needed(effect, 1.0, level, wanted)
    assert found == math.ceil(float(np.squeeze(solved)) - 1e-6)
    assert paired_power(effect, 1.0, found, level) >= wanted > paired_power(effect, 1.0, found - 1, level)
    assert minimum_detectable_effect(1.0, found, level, wanted) <= effect


def test_seeds_of_nothing_and_of_everything():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(0.0, 0.0) is None
    assert seeds_needed(1.0, 0.0) == 2
    assert seeds_needed(-1.0, 1.0) == seeds_needed(1.0, 1.0) == seeds_needed(5.0, 5.0) == 10


def test_a_pilot_gives_the_spread_and_the_effect():
    (need,), _ = needs(records_of((4.5, 4.4, 5.0)))
    differences = NOISE[0] - NOISE[1] + 0.1
    assert (need.pilot, need.n, need.planned) == ("laptop", 4, 4)
    assert need.sd == pytest.approx(differences.std(ddof=1))
    assert need.effect == pytest.approx(differences.mean())
    assert need.seeds == seeds_needed(differences.mean(), differences.std(ddof=1), 0.95)


def test_the_level_is_that_of_the_family():
    alone, _ = needs(records_of((4.5, 4.4, 5.0)))
    claims = [make_claim(), *(make_claim(id=f"c{n}", a={RATE: 0.8}, metric=m, better=b) for n, (m, b) in enumerate(
        [("heldout.loss", "lower"), ("heldout.accuracy", "higher")]))]  # fmt: skip
    many, grid = needs(records_of((4.5, 4.4, 5.0)), *claims)
    assert power.family_level(grid.claims) == pytest.approx(1 - 0.05 / 3)
    assert many[0].seeds > alone[0].seeds


def test_another_scale_lends_its_spread():
    empty = [make_cell({RATE: rate}, seeds=9, label=f"gpu {rate}") for rate in RATES]
    (need,), grid = needs(records_of((4.5, 4.4, 5.0)), scale="gpu", cells={"gpu": empty, "laptop": CELLS})
    assert (need.pilot, need.planned) == ("laptop", 9)
    assert "A pilot at another scale" in markdown(power.sheet([need], grid, "gpu"))


def test_without_a_pilot_there_are_standardised_effects():
    (need,), grid = needs({})
    assert (need.pilot, need.seeds, need.effect) == ("", None, None)
    text = markdown(power.sheet([need], grid, "laptop"))
    assert "| none |" in text
    assert "34 for 0.5, 10 for 1, 5 for 2" in text


def test_equality_needs_seeds_for_its_margin():
    (need,), _ = needs(records_of((4.5, 4.5, 5.0)), make_claim(relation="~", margin=0.05))
    sd = (NOISE[0] - NOISE[1]).std(ddof=1)
    assert need.seeds == seeds_needed(0.05, sd, 0.95, 0.9)
    draws = np.random.default_rng(0).normal(0, sd, (2000, need.seeds))  # and then equality is indeed shown so often
    half = 1.96 * draws.std(1, ddof=1) / math.sqrt(need.seeds)
    assert np.mean(np.abs(draws.mean(1)) + half < 0.05) > 0.8


def test_an_ordering_needs_seeds_for_its_smallest_step():
    sides = [{RATE: rate} for rate in (0.4, 0.15, 0.8)]
    ordering = make_claim(relation="ordering", sides=sides, a={}, b={}, published={})
    (need,), _ = needs(records_of((4.5, 4.4, 5.0)), ordering)
    step = NOISE[0] - NOISE[1] + 0.1
    assert need.seeds >= seeds_needed(step.mean(), step.std(ddof=1), 0.95, 0.9)
    (wrong,), grid = needs(records_of((4.5, 4.7, 5.0)), ordering)
    assert wrong.seeds is None
    assert "a step of the ordering goes the other way" in markdown(power.sheet([wrong], grid, "laptop"))


def test_a_pilot_on_the_plateau_says_so():
    (need,), grid = needs(records_of((6.5, 6.4, 6.6)))
    assert need.plateau
    assert "4 at laptop, on the plateau" in markdown(power.sheet([need], grid, "laptop"))


def test_what_has_no_noise_needs_no_seeds():
    (need,), grid = needs({}, make_claim(metric="cost.parameters"))
    assert need.exact
    assert "no noise" in markdown(power.sheet([need], grid, "laptop"))


@pytest.mark.parametrize(
    ("metric", "published_metric", "values", "effect"),
    [
        ("heldout.loss", "LM perplexity", (3.99, 5.84), math.log(5.84 / 3.99)),
        ("heldout.loss", "MNLI accuracy (%)", (84.5, 84.2), None),
        ("rte.accuracy", "RTE accuracy (%), large models", (86.6, 70.4), 0.162),
        ("rte.accuracy", "MNLI-m accuracy (%)", (84.4, 83.9), None),
        ("stsb.spearman", "STS-B Pearson correlation", (82.0, 30.9), None),
        ("sst2.accuracy", "IMDb error (%), the lower the better", (6.87, 9.93), None),
        ("race_middle.accuracy", "RACE accuracy (%)", (68.2, 64.0), None),
        ("heldout.sop_accuracy", "SOP accuracy (%)", (86.5, 52.0), 0.345),
    ],
)
def test_published_effects_transfer_by_task_and_measure_alone(metric, published_metric, values, effect):
    better = "lower" if metric == "heldout.loss" else "higher"
    published = dict(zip("ab", values, strict=True))
    claim = make_claim(metric=metric, better=better, published_metric=published_metric, published=published)
    assert power.published_effect(claim) == (None if effect is None else pytest.approx(effect))


def test_the_smallest_published_effect_of_the_grid_counts():
    texts = {"published_metric": "LM perplexity", "published": {"a": 4.0, "b": 5.0}}
    large, small = (
        make_claim(**texts),
        make_claim(id="c2", a={RATE: 0.8}, **texts | {"published": {"a": 4.9, "b": 5.0}}),
    )
    found, _ = needs(records_of((4.5, 4.4, 5.0)), large, small)
    assert [need.printed for need in found] == pytest.approx([math.log(5 / 4.9)] * 2)
    assert found[0].seeds_printed > 2


def test_a_pilot_is_all_that_has_finished_whatever_is_to_run(tmp_path):
    records = Records(tmp_path)
    cells = Study("masking_ratio", "smoke", results_dir=tmp_path).resolve().cells
    for n, cell in enumerate(cells):
        for run in cell.runs:
            records.put(make_record(run, 4.0 + n * (1 + 0.1 * run.seed)))
    wanted = {"seeds": 1, "filters": {RATE: 0.15}, "results_dir": tmp_path}
    (need, *_) = Study("masking_ratio", "smoke", **wanted).needs()
    assert (need.pilot, need.n, need.planned) == ("smoke", 2, 1)


def test_a_scale_that_cannot_be_planned_lends_no_pilot_and_stops_nothing(tmp_path, monkeypatch):
    real = study.plan

    def at_hand(grid, scale, **request):
        if scale == "paper":
            raise ConfigError(["The data set MNLI is not at hand"])
        return real(grid, scale, **request)

    monkeypatch.setattr(study, "plan", at_hand)
    shown = Study("masking_ratio", "smoke", results_dir=tmp_path).power().text
    assert "mask15.r.40_gt_15_mnli" in shown
    assert "Scale 'paper' gave no pilot" in shown


def test_the_command_answers_from_nothing(tmp_path):
    asked = ["plan", "masking_ratio", "--scale", "smoke", "--power", "--results-dir", str(tmp_path)]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0
    assert "mask15.r.40_gt_15_mnli" in ended.stdout
    assert "does not transfer" in ended.stdout
    assert '"planned": 2' in CliRunner().invoke(app, [*asked, "--format", "json"]).stdout
    read = CliRunner().invoke(
        app, ["read", "masking_ratio", "-s", "smoke", "--equal", "flops", "--results-dir", str(tmp_path)]
    )
    assert read.exit_code == 0
    assert "at equal FLOPs: no finished run" in read.stdout
