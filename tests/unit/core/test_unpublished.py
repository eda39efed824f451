"""Trials and a user's own grids leave their runs and pages beside the published results, and read these."""

import pytest

from ablations.core.disk import heldout, kept_weights
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.study import Study
from lightning_modules import places
from lightning_modules.places import UNPUBLISHED
from tests import finished, tiny
from tests.unit.synthetic import make_record

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder in the place of the checkout, which holds the results."""
    monkeypatch.setattr(places, "project", lambda: tmp_path)
    return tmp_path


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_published_runs_count_among_unpublished_ones_and_new_ones_are_written_there_alone(tmp_path):
    published, beside = Records(tmp_path), Records(tmp_path / UNPUBLISHED)
    first, second, *_ = plan(grids.read("masking_ratio"), "smoke").runs
    sums = {"text": "some", "sums": {}}
    record = make_record(first, 4.0, config=first.to_dict())
    record.provenance[heldout.ENTRY] = published.put_sums(first.id, sums)
    published.put(record)
    before = files(tmp_path)
    assert beside.get(first.id) == published.get(first.id)
    assert published.sums(first.id) is not None
    assert beside.sums(first.id) == beside.snapshot().sums(first.id) == published.sums(first.id)
    beside.put(make_record(first, 9.0, config=first.to_dict()))
    assert beside.get(first.id).metrics["heldout.loss"] == 4.0
    assert files(tmp_path) == before, "a published record stays, and has no other beside it"
    beside.put(make_record(second, 5.0, config=second.to_dict()))
    assert published.get(second.id) is None
    assert {run_id for run_id, _ in beside.survey()} == beside.snapshot().done == {first.id, second.id}
    assert not beside.verify()


def test_weights_that_are_published_are_found(tmp_path):
    (tmp_path / "weights").write_bytes(b"numbers")
    (tmp_path / "tokenizer").write_bytes(b"words")
    kept_weights.keep(tmp_path / "results", "0" * 16, tmp_path / "weights", tmp_path / "tokenizer")
    found = Records(tmp_path / "results" / UNPUBLISHED).weights("0" * 16)
    assert found == Records(tmp_path / "results").weights("0" * 16)
    assert found.read_bytes() == b"numbers"


def test_where_a_grid_writes_if_no_folder_is_named(root, tmp_path, monkeypatch):
    own = str(tiny.grid(tmp_path / "own"))
    results = root / "results"
    for scale in ("smoke", "demo", "demo-scratch"):
        assert grids.results_dir("masking_ratio", scale) == results / UNPUBLISHED
    for scale in ("laptop", "mechanism", "gpu", "paper", "lease"):
        assert grids.results_dir("masking_ratio", scale) == results
    assert grids.results_dir(own, "laptop") == results / UNPUBLISHED
    monkeypatch.setattr(grids, "checkout", lambda: None)
    assert grids.results_dir(own, "laptop") == results, "nothing else is published where a package is installed"


def test_a_trial_changes_nothing_that_is_published(root):
    finished.results(root / "results", "masking_ratio")
    before = files(root / "results")
    study = Study("masking_ratio", "smoke")
    finished.records(study.records.folder, "masking_ratio", scale="smoke")
    study.publish()
    after = files(root / "results")
    new = after.keys() - before.keys()
    assert {name: after[name] for name in before} == before
    assert all(name.startswith(f"{UNPUBLISHED}/") for name in new)
    assert f"{UNPUBLISHED}/masking_ratio/smoke/README.md" in new
    assert f"{UNPUBLISHED}/README.md" not in new
    again = Study("masking_ratio", "smoke")
    assert again.resolve().is_finished
    assert len(again.frame()) > 0
