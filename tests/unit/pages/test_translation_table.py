"""Translations on the page of a grid: BLEU by length, the paired bootstrap, and what is shown of them."""

import numpy as np
import pytest

from ablations.measurements.measurements import Measurements
from ablations.pages import translation_table
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.data.baselines.translations import HeldOutText
from lightning_modules.measures.translated import measured
from lightning_modules.tasks.scores.kept import pack
from tests.unit.synthetic import make_record

WORDS = np.array(["ein", "der", "Mann", "Hund", "läuft", "über", "die", "Straße", "schläft", "Bank"])
RIGHT = {"no attention": 0.6, "dot": 0.8}  # share of right words
SENTENCES = 120


class Kept(dict):
    """Records by id, with the files that lie next to them."""

    def __init__(self):
        super().__init__()
        self.files = {}

    def sums(self, run):
        return self.files.get(run)


def text():
    noise = np.random.default_rng(0)
    targets = [" ".join(noise.choice(WORDS, noise.integers(4, 15))) for _ in range(SENTENCES)]
    return HeldOutText(targets, targets, {"copy": [line[::-1] for line in targets]})


def records(found, changed=RIGHT):
    made, heldout = Kept(), text()
    for cell in found.cells:
        right = changed.get(cell.values["attention"])
        for run in cell.runs if right else ():
            noise = np.random.default_rng([run.seed, len(cell.label)])
            lines = [
                " ".join(word if noise.random() < right else str(noise.choice(WORDS)) for word in line.split())
                for line in heldout.targets
            ]
            translated = measured(lines, np.arange(SENTENCES), heldout)
            counts = {name: pack(counted.T.ravel()) for name, counted in translated.kept["counts"].items()}
            made.files[run.id] = {"translations": translated.kept | {"counts": counts}}
            metrics = {f"heldout.{name}": value for name, value in translated.metrics.items()}
            made[run.id] = make_record(run, 3.0, metrics=metrics, curve={})
    return made


@pytest.fixture(scope="module")
def study():
    return plan(grids.read("seq2seq_attention"), "laptop", seeds=2)


def rows(sheet):
    return {row[0]: dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows}


def test_a_cell_has_its_bleu_by_length_and_its_difference_to_the_baseline(study):
    kept = records(study)
    reading, everything, trace = translation_table.scores(Measurements(study.grid, study.cells, kept))
    found = rows(everything)
    assert set(found) == set(RIGHT)
    dot, none = found["dot"], found["no attention"]
    assert dot["heldout.bleu"] > dot["heldout.bleu minus baseline"] > 0
    assert dot["heldout.bleu minus baseline"] == pytest.approx(dot["heldout.bleu"] - none["heldout.bleu"])
    assert 0 < dot["heldout.bleu minus baseline low"] < dot["heldout.bleu minus baseline"]
    assert dot["heldout.bleu minus baseline"] < dot["heldout.bleu minus baseline high"]
    assert none["heldout.bleu minus baseline"] is None
    assert rows(reading)["no attention"]["minus the baseline"] == ""
    assert rows(reading)["the source, copied"]["runs"] == ""
    assert sorted(run for one in trace["translations"] for run in one["runs"]) == sorted(kept)


def test_without_the_files_there_are_no_differences_and_nothing_to_read(study):
    kept = records(study)
    kept.files.clear()
    reading, _, _ = translation_table.scores(Measurements(study.grid, study.cells, kept))
    assert rows(reading)["dot"]["minus the baseline"] == ""
    assert translation_table.shown(Measurements(study.grid, study.cells, kept)) is None
    assert translation_table.scores(Measurements(study.grid, study.cells, Kept())) is None


def test_other_sentences_are_not_paired(study):
    kept = records(study)
    (run, *_) = [cell.runs[0].id for cell in study.cells if cell.values["attention"] == "dot"]
    counts = kept.files[run]["translations"]["counts"]
    other = measured(text().targets[::-1], np.arange(SENTENCES), text()).kept["counts"]["bleu"]
    other[:, 1] += 1
    counts["bleu"] = pack(other.T.ravel())
    reading, _, _ = translation_table.scores(Measurements(study.grid, study.cells, kept))
    assert rows(reading)["dot"]["minus the baseline"] == ""
