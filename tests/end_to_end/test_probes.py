"""Probes from a grid to its page: planned, measured, recorded, judged; what is missing is said before anything runs."""

import pytest

from ablations.claims import judging
from ablations.core.store import Records
from ablations.measurements.example_scores import scores
from ablations.measurements.measurements import Measurements
from ablations.pages import report
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.config import ConfigError
from tests import tiny
from tests.messages import names, naming

CLAIMS = """\
  - {name: probes.word_order, label: word order}
  - {name: probes.mean_gain, label: mean gain}
claims:
  - id: order.learned
    statement: A tiny model learns word order
    metric: probes.word_order
    a: {objectives.mlm.masking.rate: 0.4}
    against: probes.word_order_random
"""


def probing(folder, probes="[word_order]", extra=CLAIMS):
    """A grid of tiny systems whose pretrainings are probed."""
    file = tiny.grid(folder, extra=extra)
    tiny.text(folder / "text", documents=240)
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace("  evaluation.points: 2\n", f"  evaluation.points: 2\n  evaluation.probes: {probes}\n")
    )
    return grids.read(file)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A grid that has been run."""
    folder = tmp_path_factory.mktemp("probed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        grid, records = probing(folder), Records(folder / "results")
        planned = plan(grid, "smoke")
        execute(planned, records, "inline")
        yield planned, Measurements(planned.grid, planned.cells, records), folder


def test_every_pretraining_has_scores_and_controls(done):
    planned, measured, _ = done
    for cell in planned.cells:
        for control in ("_random", "_words", "_majority"):
            assert len(measured.values(cell, f"probes.word_order{control}")) == 2
        score, chance, gain = (measured.values(cell, f"probes.word_order{end}") for end in ("", "_random", "_gain"))
        assert gain == {seed: pytest.approx(score[seed] - chance[seed]) for seed in (0, 1)}
        assert measured.values(cell, "probes.mean_gain") == gain
    first, second = planned.cells
    of = "probes.word_order_random"
    assert measured.values(first, of) == measured.values(second, of)  # the same initial weights
    assert measured.values(first, of)[0] != measured.values(first, of)[1]


def test_the_page_shows_gains_and_claims_are_judged_against_random_weights(done):
    planned, measured, folder = done
    written = report.publish(planned, measured, folder / "page")
    assert {"probes.md", "probes.csv", "probes.json"} <= written.keys()
    assert names((folder / "page" / "probes.md").read_text(), "Word order")
    (verdict,) = judging.verdicts(measured)
    assert verdict.n == 2


def test_scores_of_probes_by_example_are_known(done):
    planned, measured, _ = done
    sides = [[run.id for run in cell.runs] for cell in planned.cells]
    found = scores(sides, "probes.word_order", measured)
    assert len(found) == 2
    for cell, side in zip(planned.cells, found, strict=True):
        values = measured.values(cell, "probes.word_order").values()
        assert side.by_example.mean() == pytest.approx(sum(values) / 2)


def test_missing_data_are_named_before_anything_runs(tmp_path):
    found = plan(probing(tmp_path, "[word_order, sst2]", extra=""), "smoke")
    records = Records(tmp_path / "results")
    with pytest.raises(ConfigError, match=naming("ABLATIONS_DATA", "test_labelled.tsv")):
        execute(found, records, "inline")
    assert not list(records.folder.rglob("*.json"))


def test_probes_that_a_text_is_too_small_for_are_left_out_and_named(tmp_path, monkeypatch):
    """The tiny text has no conjunction."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    found, records = plan(probing(tmp_path, "[word_order, coordination]", extra=""), "smoke"), Records(tmp_path / "r")
    summary = execute(found, records, "inline")
    assert summary.complete
    assert summary.outcomes == {"done": 4}
    assert names(str(summary), "left out", "too small", "coordination")
    measured = Measurements(found.grid, found.cells, records)
    for cell in found.cells:
        assert len(measured.values(cell, "probes.word_order")) == 2
        assert not measured.values(cell, "probes.coordination")
        assert measured.values(cell, "probes.mean_gain") == measured.values(cell, "probes.word_order_gain")
    report.publish(found, measured, tmp_path / "page")
    assert names((tmp_path / "page/probes.md").read_text(), "Left out", "Coordination (all cells)")
