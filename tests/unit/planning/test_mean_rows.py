"""Grids whose files name rows that are means of the probabilities of two cells."""

import pytest

from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests import tiny
from tests.unit.synthetic import RATE

MEAN = "{at: {RATE: both}, of: [{RATE: 0.15}, {RATE: 0.4}]}"
CLAIM = "{id: help, statement: s, metric: sst2.accuracy, a: {RATE: both}, b: {RATE: 0.15}}"


def of(folder, mean=MEAN, claim=CLAIM, task="sst2"):
    lines = ["  - {name: sst2.accuracy}"] if task == "sst2" else []
    lines += [f"tasks: [{task}]", f"means: [{mean}]", f"claims: [{claim}]"]
    return tiny.grid(folder, extra="\n".join(lines).replace("RATE", RATE) + "\n")


def test_a_mean_adds_no_run_and_its_claim_is_planned(tmp_path):
    found, alone = plan(grids.read(of(tmp_path)), "smoke"), plan(grids.read(of(tmp_path, mean="", claim="")), "smoke")
    assert [run.id for run in found.runs] == [run.id for run in alone.runs]
    assert [cell.label for cell in found.cells] == [cell.label for cell in alone.cells]
    assert found.claims == ["help"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean": MEAN.replace("0.4", "0.5")}, ["means.0.of.1", "no cell of any scale has rate=0.5", "0.15"]),
        ({"mean": MEAN.replace("0.4", "0.15")}, ["means.0.of", "one cell twice"]),
        ({"mean": MEAN.replace("both", "'0.4'"), "claim": ""}, ["means.0.at", "a row already"]),
        ({"mean": f"{MEAN}, {MEAN}"}, ["means.1.at", "a row already"]),
        ({"mean": MEAN.replace("at: {RATE", "at: {masking"), "claim": ""}, ["means.0.at", "not an axis"]),
        ({"claim": CLAIM.replace("sst2.accuracy", "heldout.loss")}, ["claims.0.metric"]),
        ({"claim": CLAIM.replace("RATE: both", "RATE: bth")}, ["claims.0.a", "no cell of any scale has"]),
        ({"task": "stsb", "claim": ""}, ["means", "stsb has not 2 classes"]),
    ],
    ids=["no cell", "one cell", "a value", "twice", "no axis", "no score", "no row", "no classes"],
)
def test_what_has_no_mean_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(ConfigError) as told:
        grids.read(of(tmp_path, **changes))
    assert all(word in str(told.value) for word in words)
