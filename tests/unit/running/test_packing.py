"""What a pack of a grid holds, and which code it refuses to carry."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from ablations.core import provenance
from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import packing
from ablations.running.packing import of_grid
from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.places import cache, project
from lightning_modules.training.recorder import CHECKPOINT
from tests import tiny
from tests.unit.core.test_sync import environment, losses
from tests.unit.synthetic import make_record


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A plan of four runs, of which one has a record and one a checkpoint, and its store."""
    monkeypatch.setattr(packing, "_source", lambda: ({"ablations/__main__.py": b""}, "0" * 40))
    records, file = Records(tmp_path / "results"), tiny.grid(tmp_path / "grid")
    done, begun, *_ = plan(grids.read(file), "smoke").runs
    entry = {"environment": environment(records, "torch"), "heldout": records.put_sums(done.id, losses(0))}
    records.put(make_record(done, 4.0, config=done.to_dict(), provenance=entry))
    for run in (done, begun):
        (records.make_work_folder(run.id) / CHECKPOINT).write_bytes(b"moments")
    made = cache() / "stores" / f"{'0' * 24}.bin"
    cached.write(made, lambda file: file.write(b"ids"))
    return plan(grids.read(file), "smoke", records=records), records, file, made, (done, begun)


def test_a_pack_holds_what_is_prepared_known_and_unfinished(planned):
    found, records, file, made, (done, begun) = planned
    packed = of_grid(found, records, lambda: [made], [str(file), "--scale", "smoke", "--seeds", "2"])
    assert packed.files[f"cache/stores/{made.name}"] == made
    assert f"cache/{cached.TAG}" in packed.files
    assert [name for name in packed.files if name.startswith("runs/")] == [f"runs/{begun.id}/{CHECKPOINT}"]
    known = {name.removeprefix("source/results/") for name in packed.files if "/results/" in name}
    (listed,) = (records.folder / "environments").iterdir()
    assert known == {f"records/{done.id[:2]}/{done.id}.{end}" for end in ("json", "heldout")} | {
        f"environments/{listed.name}"
    }
    assert packed.files["source/tiny.yaml"] == file  # a grid of nobody's source tree
    assert packed.told["run"] == ["tiny.yaml", "--scale", "smoke", "--seeds", "2"]


def test_a_grid_of_the_project_is_named_as_usual(planned):
    _, records, *_ = planned
    named = plan(grids.read("masking_ratio"), "smoke")
    packed = of_grid(named, records, list, ["masking_ratio", "--scale", "smoke"])
    assert packed.told["run"][0] == "masking_ratio"
    assert {"source/ablations/grids/masking_ratio.yaml", "source/ablations/scales/smoke.yaml"} <= packed.files.keys()


def test_weights_that_pending_runs_start_from_travel(planned, tmp_path):
    _, records, *_ = planned
    grid = grids.read("pretraining_gain")
    (first, *_) = (run for run in plan(grid, "smoke").runs if run.start)
    weights = records.make_work_folder(first.start.id) / kept_weights.WEIGHTS
    cached.write(weights, lambda file: file.write(b"tensors"), weights.parents[1])
    packed = of_grid(plan(grid, "smoke", records=records), records, list, ["pretraining_gain", "--scale", "smoke"])
    names = {f"runs/{first.start.id}/{kept_weights.WEIGHTS}{end}" for end in ("", ".sha256")}
    assert names <= packed.files.keys()


def test_code_that_differs_from_its_commit_is_refused_by_name(monkeypatch):
    said = {"rev-parse": "0" * 40, "--no-optional-locks": " M ablations/study.py"}
    monkeypatch.setattr(provenance, "git", lambda *words: said[words[0]])
    with pytest.raises(ConfigError, match=r"ablations/study\.py"):
        packing._source()


def test_the_source_tree_is_the_commits_without_results():
    if provenance.git("rev-parse", "HEAD") is None:
        pytest.skip("no git here")
    files = packing._at("HEAD")
    assert {"pyproject.toml", "ablations/core/packs/unpack.py", "ablations/grids/masking_ratio.yaml"} <= files.keys()
    assert not [name for name in files if name.startswith("results/")]


def test_a_tree_without_git_is_packed_as_it_is(monkeypatch):
    monkeypatch.setattr(provenance, "git", lambda *words: None)
    monkeypatch.setattr(provenance, "archived", lambda: {"node": "ab" * 20})
    files, commit = packing._source()
    assert commit == "ab" * 20
    assert files[provenance.ARCHIVED] == f"node: {commit}\ncode: {provenance.fingerprint()}\n".encode()
    assert {"pyproject.toml", "ablations/scales/smoke.yaml", "lightning_modules/data/pins.json"} <= files.keys()
    assert not [name for name in files if "__pycache__" in name]


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (f"node: {'ab' * 20}\ncode: {provenance.fingerprint()}\n", {"commit": "ab" * 20, "dirty": False}),
        (f"node: {'ab' * 20}\ncode: {'0' * 16}\n", {"commit": "ab" * 20, "dirty": True}),
        (f"node: {'ab' * 20}\n", {"commit": "ab" * 20, "dirty": None}),
        ("node: $Format:%H$\n", {"commit": None, "dirty": None}),
    ],
)
def test_code_that_came_in_an_archive_says_its_commit_and_whether_it_was_changed(monkeypatch, tmp_path, said, known):
    monkeypatch.setattr(provenance, "checkout", lambda: tmp_path)
    (tmp_path / provenance.ARCHIVED).write_text(said)
    assert provenance.code.__wrapped__() == known
    (tmp_path / ".git").mkdir()
    assert provenance.archived() == {}


def test_a_pack_needs_what_the_project_says(tmp_path):
    needs = packing._needs(None)
    listed = tomllib.loads((project() / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, listed):
        if requirement.name not in packing._SPARED:
            assert sorted(needs[requirement.name].split(",")) == sorted(str(requirement.specifier).split(","))
    assert needs["python"] == ">=3.11"
    (tmp_path / "numpy-2.4.0-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    (tmp_path / "safetensors-0.7-cp38-abi3-manylinux_2_17_x86_64.whl").touch()
    (tmp_path / "rich-14.0-py3-none-any.whl").touch()
    limits = packing._needs(tmp_path)["python"].split(",")
    assert {">=3.11", ">=3.12", "<3.13", ">=3.8"} == set(limits)
    assert not re.search("<3.9", ",".join(limits))


def test_a_folder_without_wheels_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no wheels"):
        packing._needs(tmp_path)
