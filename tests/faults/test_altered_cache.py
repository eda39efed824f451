"""Files of the cache that were altered, at the same size or with garbage: made again, and no number moves."""

import json
import shutil
from pathlib import Path

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.data import TokenStore
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.weights import WEIGHTS
from tests import tiny
from tests.depth import NIGHTLY
from tests.faults.support import contents
from tests.toy import toy_task

# what a run of the grid below computes with; files of the same kind are altered together
KINDS = (
    "fingerprints/*.json", "tokenizers/*/tokenizer.json", "pieces/*.npz",
    "task-baselines/*.json", "features/*.f16", "word-vectors/*.npz", "stores/*/*/ids.bin",
    "stores/*/*/sentences.npy", "stores/*/*/documents.npy", "stores/*/*/vocabulary.json", "stores/*/*/meta.json",
    "stores/*/*/sequences-*.npy", "stores/*/*/pairs-*.npy", "stores/*/*/baseline-*.json",
    "stores/*/*/pair-methods-*.json",
)  # fmt: skip
TOGETHER = [(kind,) for kind in KINDS] if NIGHTLY else [KINDS]
KNOBS = """format.sequence_length: 32
  format.kind: segment_pairs
  evaluation.pairs: 8
  finetuning.steps: 2
  finetuning.max_length: 16
"""
GRID = """\
variants:
  start:
    tuned: {}
    frozen: {finetuning.features.layers: last, finetuning.features.bilstm_layers: 0}
    vectors: {finetuning.from_scratch: true, finetuning.word_vectors: {epochs: 1}}
tasks: [toy]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A grid that was executed once, and the contents of its records."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        patch.setitem(TASKS, "toy", toy_task("toy"))
        patch.setattr(pins.Pins, "pinned", lambda _: {})
        grid = tiny.grid(folder, steps=2, seeds=1, extra=GRID)
        tiny.text(folder / "text", documents=80)  # pairs need several held-out documents
        text = grid.read_text().replace("objectives.mlm.masking.rate: [0.15, 0.4]", "start: [tuned, frozen, vectors]")
        text = text.replace("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {start: tuned}")
        text = text.replace("format.sequence_length: 16\n", KNOBS)
        grid.write_text(text)
        expected = executed(grid, folder / "results")
        assert {run["outcome"] for run in expected.values()} == {"done"}
        yield folder, grid, expected


def executed(grid: Path, results: Path) -> dict[str, dict]:
    records = Records(results)
    execute(plan(grids.read(grid), "smoke", records=records), records, "inline", retries=0)
    return contents(records)


def other_content(path: Path) -> bytes:
    """As many bytes that a reader takes for the file: other digits or letters, other ids, offsets or weights."""
    held = path.read_bytes()
    if path.suffix == ".json":
        letters = (b"aou", b"oua") if path.name == "vocabulary.json" else (b"123456789", b"234567891")
        return held.translate(bytes.maketrans(*letters))
    head = {".npy": 128, ".npz": len(held) // 2, ".safetensors": len(held) // 4}.get(path.suffix, 0)
    return held[:head] + held[head + 2 :] + held[head : head + 2]


def garbage(path: Path) -> bytes:
    return bytes([255]) * path.stat().st_size


@pytest.fixture
def rerun(made, tmp_path, monkeypatch):
    """Executes the grid anew with a copy of the cache in which the files of some kinds were altered."""
    folder, grid, expected = made

    def again(damage, *kinds):
        cache = tmp_path / "cache"
        shutil.copytree(folder / "cache", cache)
        monkeypatch.setenv("ABLATIONS_CACHE", str(cache))
        for kind in kinds:
            found = list(cache.glob(kind))
            assert found, kind
            for path in found:
                damage(path)
        assert executed(grid, tmp_path / "results") == expected
        return cache

    return again


@pytest.mark.parametrize("kinds", TOGETHER, ids=lambda kinds: kinds[0])
def test_no_file_overwritten_at_its_size_moves_a_number(rerun, kinds):
    rerun(lambda path: path.write_bytes(other_content(path)), *kinds)


@pytest.mark.nightly
def test_files_in_each_others_places_move_no_number(made, tmp_path, monkeypatch):
    """Of each kind every file is in the place of the next one, and its digest with it."""
    folder, grid, expected = made
    cache = shutil.copytree(folder / "cache", tmp_path / "cache")
    monkeypatch.setenv("ABLATIONS_CACHE", str(cache))
    moved = [kind for kind in KINDS if len(turned(sorted(cache.glob(kind)))) > 1]
    assert {"stores/*/*/ids.bin", "stores/*/*/meta.json", "pieces/*.npz", "features/*.f16"} <= {*moved}
    assert executed(grid, tmp_path / "results") == expected


def turned(paths: list[Path]) -> list[Path]:
    """Moves each file, and its digest if it has one, to the place of the next."""
    for place in (lambda path: path, lambda path: path.with_name(f"{path.name}.sha256")):
        found = [place(path) for path in paths if place(path).exists()]
        held = [path.read_bytes() for path in found]
        for path, content in zip(found, held[1:] + held[:1], strict=True):
            path.write_bytes(content)
    return paths


@pytest.mark.nightly
def test_garbage_everywhere_moves_no_number(rerun, capfd):
    rerun(lambda path: path.write_bytes(garbage(path)), *KINDS)
    assert "tokenizer.json in the cache is not as it was written: it is made again" in capfd.readouterr().err


@pytest.mark.nightly
def test_folders_and_files_in_each_others_places_make_room(rerun):
    def exchange(path):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.mkdir() if path.suffix else path.write_text("a file")

    inside = ("stores", "tokenizers")
    rerun(exchange, *(kind for kind in KINDS if not kind.startswith(inside)), *(f"{name}/*" for name in inside))


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("executor", ["inline", "local"])
def test_folders_in_place_of_a_runs_own_files_make_room(tmp_path, monkeypatch, executor):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    records = Records(tmp_path / "results")
    found = plan(grids.read(tiny.grid(tmp_path, rates="[0.15]", steps=2, seeds=1)), "smoke", records=records)
    for name in ("run.json", "progress.json", "log.txt", "last.ckpt", WEIGHTS, f"{WEIGHTS}.sha256"):
        (records.work_folder(found.runs[0].id) / name).mkdir(parents=True)
    assert execute(found, records, executor, retries=0).outcomes == {"done": 1}


def test_files_without_digests_are_made_again(rerun, capfd):
    """As a version that kept none left them."""

    def without(path):
        path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
        if path.name == "meta.json":
            kept = json.loads(path.read_text())
            path.write_text(json.dumps({name: value for name, value in kept.items() if name != "digests"}))

    cache = rerun(without, *KINDS)
    assert "has no digest" in capfd.readouterr().err
    for folder in cache.glob("stores/*/*/meta.json"):
        TokenStore.open(folder.parent)


def test_altered_weights_of_a_parent_are_trained_again(made, monkeypatch):
    folder, grid, expected = made
    monkeypatch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
    records = Records(folder / "results")
    for parent in records.work_folders():
        (parent / WEIGHTS).write_bytes(other_content(parent / WEIGHTS))
    for run_id, run in expected.items():
        if run["kind"] == "finetune":
            records.path(run_id).unlink()
    assert executed(grid, records.folder) == expected
