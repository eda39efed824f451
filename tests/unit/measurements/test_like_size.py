"""The noise that runs of other grids tell: of the same metric, kind and text, and of like size."""

import numpy as np
import pytest

from ablations.core.estimates import residual
from ablations.core.moderation import moderated
from ablations.measurements import like_size
from ablations.schema.run import Run
from lightning_modules.tasks import FineTuning
from tests.unit.synthetic import BASE, RATE, make_record

METRIC, SEEDS = "heldout.loss", 4
NOISE = {0.15: [0.01, -0.03, 0.02, 0.0], 0.4: [0.04, -0.01, -0.02, 0.03]}
START = {"training.steps": 50_000, RATE: 0.15}


def pretrainings(rate, **changes):
    system = BASE.but(**{RATE: rate, **changes})
    return [Run.pretraining(system, seed, dict.fromkeys(system.data.corpora, "0" * 64)) for seed in range(SEEDS)]


def recorded(runs, values, metric=METRIC, times=1.0, **changes):
    """Records of runs that took ``times`` as many FLOPs as they should."""
    flops = {run.id: (run.system.flops() if run.kind == "pretrain" else 1e12) * times for run in runs}
    return [
        make_record(
            run, 0.0, kind=run.kind, config=run.to_dict(), metrics={metric: value}, cost={"flops": flops[run.id]}
        ).but(**changes)
        for run, value in zip(runs, values, strict=True)
    ]


def cells(times=1.0, **changes):
    """Records of two cells whose losses differ much, and whose runs differ as `NOISE` says."""
    found = [recorded(pretrainings(rate, **changes), 4 + rate + np.array(NOISE[rate]), times=times) for rate in NOISE]
    return [record for cell in found for record in cell]


def asked(records, run=None, within=False):
    return like_size.noise(records, METRIC, run or pretrainings(0.3)[0], within=within)


def test_it_is_the_common_spread_of_runs_that_differ_in_their_seed_alone():
    found = asked(cells())
    assert found == like_size.Noise(pytest.approx(moderated(NOISE).common ** 0.5), 2)


@pytest.mark.parametrize("times", [0.4, 2.5])
def test_runs_of_another_size_do_not_count(times):
    assert asked(cells(times)) is None
    assert asked(cells() + cells(times, **{"optimizer.peak_lr": 7.7e-4})) == asked(cells())


def test_other_text_metrics_kinds_and_outcomes_do_not_count():
    records = cells()
    assert asked([record.but(metrics={"heldout.accuracy": 0.5}) for record in records]) is None
    assert asked([record.but(outcome="diverged") for record in records]) is None
    elsewhere = pretrainings(0.3, **{"data.corpora": ["wikipedia-mini"]})[0]
    assert asked(records, elsewhere) is None
    assert asked(cells(**{"training.start": START})) is None, "arms of trunks are another question"
    assert asked(records[:2]) is None, "one difference tells next to nothing"


def test_within_blocks_what_a_block_gives_to_all_does_not_count():
    trunks = np.array([0.5, -0.4, 0.3, -0.2])
    runs = {rate: pretrainings(rate, **{"training.start": START}) for rate in NOISE}
    records = [one for rate in NOISE for one in recorded(runs[rate], np.array(NOISE[rate]) + trunks)]
    found = asked(records, runs[0.15][0], within=True)
    assert found == like_size.Noise(pytest.approx(residual(list(NOISE.values())).value ** 0.5), 2)
    assert asked(records, runs[0.15][0]).sd > 5 * found.sd


def test_fine_tunings_are_blocks_by_seed():
    labels, records, runs = np.array([0.05, -0.04, 0.03, -0.02]), [], []
    for rate, noise in NOISE.items():
        runs = [Run.finetuning_of(run, "rte", "e" * 64, FineTuning()) for run in pretrainings(rate)]
        work = like_size.KINDS["finetune"].work(runs[0])[2]
        records += recorded(runs, 0.6 + labels + np.array(noise) / 10, "rte.accuracy", work / 1e12)
    found = like_size.noise(records, "rte.accuracy", runs[0], within=True)
    assert found == like_size.Noise(pytest.approx(residual(list(NOISE.values())).value ** 0.5 / 10), 2)
