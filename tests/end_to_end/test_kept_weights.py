"""Weights that are kept with the records serve a clone, whose cache is empty; damaged ones never do."""

import shutil

import pytest
import torch
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.planning import grids, scale_files
from ablations.planning.plan import plan
from ablations.running.estimate import notes
from ablations.running.execute import execute
from lightning_modules.config import ConfigError
from lightning_modules.data import open_store
from lightning_modules.data.corpora.registry import Corpus
from lightning_modules.data.text import tokenizer
from lightning_modules.measures.final_metrics import measures
from lightning_modules.places import cache
from lightning_modules.training.weights import WEIGHTS, load_into, load_weights
from tests import tiny
from tests.faults.support import contents

START = "training.start: {training.steps: 6, objectives.mlm.masking.rate: 0.15}"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A grid whose arm continues a trunk that is kept, in a clone: the cache is empty, the arm has no record."""
    file = tiny.grid(tmp_path, rates="[0.4]", seeds=1, steps=4, extra="claims: []\n")
    file.write_text(file.read_text().replace("set:\n", f"set:\n  {START}\n", 1))
    file.write_text(file.read_text().replace("baseline: {objectives.mlm.masking.rate: 0.15}\n", ""))
    records = Records(tmp_path / "results")
    grid = grids.read(file)
    found = plan(grid, "smoke", records=records)
    assert execute(found, records, "inline").outcomes == {"done": 2}
    (trunk,), arm = found.trunks, found.cells[0].runs[0]
    measured = records.get(arm.id).metrics
    assert command("keep", trunk.id[:8], records).exit_code == 0
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "elsewhere"))
    records.path(arm.id).unlink()
    return grid, records, trunk, arm, measured


def command(*words):
    *words, records = words
    return CliRunner().invoke(app, [*map(str, words), "--results-dir", str(records.folder)])


def said(result):
    return " ".join((result.output + result.stderr).split())


def test_what_starts_from_kept_weights_trains_nothing_again(clone):
    grid, records, trunk, arm, measured = clone
    found = plan(grid, "smoke", records=records)
    assert not any("trained again" in line for line in notes(found, records))
    assert execute(found, records, "inline").executed == 1
    assert records.get(arm.id).metrics == measured
    assert not (records.work_folder(trunk.id) / WEIGHTS).exists()


def test_what_is_fine_tuned_from_kept_weights_reads_no_text_of_their_pretraining(tmp_path, monkeypatch):
    small = "smoke:\n    description: seconds\n    set: {finetuning.train_examples: 40, finetuning.epochs: 1}"
    file = tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=4, extra="tasks: [bigram_shift]\n")
    file.write_text(file.read_text().replace("smoke: {description: seconds}", small))
    records = Records(tmp_path / "results")

    def made_again(*lost):
        for path in lost:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert execute(plan(grids.read(file), "smoke", records=records), records, "inline").executed
        return contents(records)

    reference = made_again()
    trunk, tuned = plan(grids.read(file), "smoke", records=records).runs
    assert command("keep", trunk.id[:8], records).exit_code == 0
    stores, kept = cache() / "stores", records.folder / "weights" / trunk.id
    again = records.path(tuned.id), records.work_folder(tuned.id)
    with monkeypatch.context() as patched:
        patched.setattr(Corpus, "documents", lambda corpus, split: pytest.fail(f"{corpus.name} is read"))
        assert made_again(stores, records.work_folder(trunk.id), *again) == reference
    assert made_again(cache() / "tokenizers", kept / "tokenizer.json", *again) == reference
    assert not stores.exists(), "a tokenizer needs none"
    assert made_again(kept, *again) == reference
    assert stores.exists(), "the trunk is trained again"


@pytest.fixture
def rounded(tmp_path, monkeypatch):
    """A grid whose arm continues a trunk that says it is kept as bf16, both done; and the same trunk in fp32."""
    file = tiny.grid(tmp_path, rates="[0.4]", seeds=1, steps=4, extra="claims: []\n")
    text = file.read_text().replace("baseline: {objectives.mlm.masking.rate: 0.15}\n", "")
    starts = START, START.replace("}", ", training.kept_as: bf16}")
    records, found = Records(tmp_path / "results"), []
    for start in starts:
        file.write_text(text.replace("set:\n", f"set:\n  {start}\n", 1))
        found.append(plan(grids.read(file), "smoke", records=records))
        assert execute(found[-1], records, "inline").outcomes == {"done": 2}
    return records, *found


def test_a_trunk_that_is_kept_as_bf16_is_rounded_before_anything_is_measured_or_starts_from_it(rounded, monkeypatch):
    records, *plans = rounded
    (full,), (half,) = (found.trunks for found in plans)
    assert (half.system.training.kept_as, full.system.training.kept_as) == ("bf16", "fp32")
    arms = [found.cells[0].runs[0] for found in plans]
    assert {arm.system.training.kept_as for arm in arms} == {"fp32"}
    weights = [load_weights(records.weights(run.id)) for run in (full, half)]
    assert all(torch.equal(weights[0][name].bfloat16().float(), tensor) for name, tensor in weights[1].items())
    assert not all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())
    sizes = [records.weights(run.id).stat().st_size for run in (full, half)]
    assert sizes[1] < 0.65 * sizes[0], "but for the header"
    before, after = (records.get(run.id) for run in (full, half))
    assert before.curve == after.curve, "the training is the same"
    assert before.metrics["heldout.loss"] == before.curve["heldout.loss"][-1]
    module, data = half.system.build(half.seed), half.system.data_module(half.seed)
    load_into(module, records.weights(half.id))
    found = measures(module, data.heldout, half.system.training.precision == "bf16")
    assert after.metrics["heldout.loss"] == pytest.approx(found["loss"], abs=1e-7)
    assert after.metrics["heldout.loss"] != before.metrics["heldout.loss"]
    assert records.get(arms[0].id).metrics != records.get(arms[1].id).metrics


def test_weights_kept_as_bf16_serve_a_clone_and_come_out_again(rounded, monkeypatch):
    records, _, found = rounded
    (trunk,), arm = found.trunks, found.cells[0].runs[0]
    measured = records.get(arm.id).metrics
    assert command("keep", trunk.id[:8], records).exit_code == 0
    assert command("verify", records).exit_code == 0
    for place, is_kept in (("elsewhere", True), ("again", False)):
        monkeypatch.setenv("ABLATIONS_CACHE", str(records.folder.parent / place))
        if not is_kept:
            shutil.rmtree(records.folder / "weights")
        records.path(arm.id).unlink()
        execute(found, records, "inline")
        assert records.get(arm.id).metrics == measured
        assert (records.work_folder(trunk.id) / WEIGHTS).exists() != is_kept


@pytest.fixture
def on_other_text(tmp_path, monkeypatch):
    """A clone whose arm continues a kept trunk on text that the trunk has not read; nothing was trained on it yet."""
    first = tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=6, extra="claims: []\n")
    corpus, other = tiny.text(tmp_path / "text"), tiny.text(tmp_path / "other", documents=11)
    records = Records(tmp_path / "results")
    plain = plan(grids.read(first), "smoke", records=records)
    assert execute(plain, records, "inline").outcomes == {"done": 1}
    trunk = plain.cells[0].runs[0]
    assert command("keep", trunk.id[:8], records).exit_code == 0
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "elsewhere"))
    file = tmp_path / "other.yaml"
    start = f'{{training.steps: 6, objectives.mlm.masking.rate: 0.15, data.corpora: ["{corpus}"]}}'
    knobs = f'set:\n  training.start: {start}\n  data.tokenizer.corpora: ["{corpus}"]\n'
    text = first.read_text().replace(f'data.corpora: ["{corpus}"]', f'data.corpora: ["{other}"]')
    file.write_text(text.replace("set:\n", knobs, 1).replace("rate: [0.15]", "rate: [0.15, 0.4]"))
    return grids.read(file), records, trunk


def test_a_clone_continues_on_other_text_by_the_kept_tokenizer(on_other_text, monkeypatch):
    grid, records, trunk = on_other_text
    found = plan(grid, "smoke", records=records)
    assert [run.id for run in found.trunks] == [trunk.id]  # the same run as that of a grid on its text
    monkeypatch.setattr(tokenizer, "train", lambda *_: pytest.fail("a tokenizer is trained"))
    assert execute(found, records, "inline").executed == 2
    arm = found.cells[0].runs[0]
    assert set(arm.fingerprints) == {*arm.system.data.corpora, *trunk.system.data.corpora}
    ours, theirs = (open_store(data, "heldout") for data in (arm.system.data, trunk.system.data))
    assert ours.vocabulary.pieces == theirs.vocabulary.pieces
    assert ours.words != theirs.words
    answer = command("ask", arm.id, "the [MASK] sees a dog", "--format", "json", records)
    assert answer.exit_code == 0, answer.output


def test_without_the_text_of_the_tokenizer_and_a_kept_one_it_is_named(on_other_text, monkeypatch):
    grid, records, trunk = on_other_text
    (records.folder / "weights" / trunk.id / "tokenizer.json").unlink()
    monkeypatch.setattr(tokenizer, "train", lambda *_: (_ for _ in ()).throw(ConfigError(["the corpus is gone"])))
    with pytest.raises(ConfigError, match=r"the tokenizer of text:\S+text/\*\.txt is neither in the cache nor kept"):
        execute(plan(grid, "smoke", records=records), records, "inline")


def test_a_scale_that_trains_no_trunk_names_another(on_other_text, tmp_path, monkeypatch):
    grid, records, trunk = on_other_text
    shutil.copytree(scale_files.FOLDER, tmp_path / "scales")
    smoke = tmp_path / "scales/smoke.yaml"
    smoke.write_text(f"{smoke.read_text()}\ninstead: gpu\n")
    monkeypatch.setattr(scale_files, "FOLDER", tmp_path / "scales")
    (records.folder / "weights" / trunk.id / WEIGHTS).unlink()
    with pytest.raises(ConfigError) as raised:
        execute(plan(grid, "smoke", records=records), records, "inline")
    assert len(raised.value.problems) == 3
    assert f"{records.folder} lacks the weights of seeds 0" in str(raised.value.problems[0])
    assert "--scale gpu" in str(raised.value.problems[2])
    assert list(records.files()) == [records.path(trunk.id)]
    with pytest.raises(ConfigError, match=r"has no entry for it.*'gpu'"):
        plan(grids.read("masking_scheme").model_copy(update={"scales": {}}), "smoke")


def test_altered_ones_are_named_and_the_run_is_trained_again(clone):
    grid, records, trunk, arm, measured = clone
    assert command("verify", records).exit_code == 0
    path = records.folder / "weights" / trunk.id / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    answer = command("verify", records)
    assert answer.exit_code == 1
    assert f"weights/{trunk.id}/{WEIGHTS}: is missing or not as it was written" in said(answer)
    assert "1 of 1 records are sound" in said(answer)
    assert any("trained again" in line for line in notes(plan(grid, "smoke", records=records), records))
    execute(plan(grid, "smoke", records=records), records, "inline")
    assert records.get(arm.id).metrics == measured
    assert (records.work_folder(trunk.id) / WEIGHTS).exists()


def test_what_belongs_to_no_finished_run_is_named(clone):
    _, records, trunk, _, _ = clone
    (records.folder / "weights" / "ffffffffffffffff").mkdir()
    (records.folder / "weights" / trunk.id / "tokenizer.json").unlink()
    answer = said(command("verify", records))
    assert "weights/ffffffffffffffff: holds weights of no finished run" in answer
    assert f"weights/{trunk.id}/tokenizer.json: is missing" in answer


def test_what_cannot_be_kept_is_refused(clone, monkeypatch):
    _, records, trunk, arm, _ = clone
    assert "no runs start with" in said(command("keep", arm.id, records))
    execute(plan(clone[0], "smoke", records=records), records, "inline")
    monkeypatch.setenv("ABLATIONS_CACHE", str(records.folder.parent / "third"))
    assert "add --train" in said(command("keep", arm.id, records))
    monkeypatch.setattr(kept_weights, "LARGEST", 10)
    assert "Weights are kept up to 0 MB" in said(command("keep", trunk.id, records))
    assert [path.name for path in (records.folder / "weights").iterdir()] == [trunk.id]
