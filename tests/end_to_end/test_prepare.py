"""What is prepared is all that runs read: with it alone, without texts and network, they make the same records."""

import dataclasses
import shutil
import socket

import numpy as np
import pytest
import yaml

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.running.prepare import prepared
from lightning_modules.data.corpora.registry import Corpus
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.probing.made import probe
from tests import tiny
from tests.faults.support import contents
from tests.translations import parallel_text, tiny_system

LM = """\
objectives.mlm: null
  objectives.lm.direction: left_to_right
  model.direction: left_to_right
  format.kind: full_sentences
  format.break_mode: none
  """
_WORDS = ["the", "and", "river", "garden", "winter", "letter", "window", "stone", "slowly", "quiet", "Anna", "Bruno"]
CASES = {
    "measured in every way": (
        "evaluation.pairs: 8\n  evaluation.words: 4\n  evaluation.neighbours: 4\n"
        "  evaluation.probes: [word_order, distance]\n  ",
        "",
    ),
    "search": ("", "search:\n  axes: {optimizer.peak_lr: [1.0e-3, 3.0e-3]}\n  metric: heldout.loss\n"),
    "fine-tuning": ("", "tasks: [bigram_shift]\n"),
    "from a trunk": ("training.start: {objectives.mlm.masking.rate: 0.2}\n  ", ""),
    "from a trunk that is trained": ("training.start: {objectives.mlm.masking.rate: 0.2}\n  ", ""),
    "zero-shot": (LM, "measure: [heldout_text, cloze]\n"),
}


def made(file, records, only=None):
    """What the records of a grid say, made in this process; or of some of its runs."""
    planned = plan(grids.read(file), "smoke", records=records)
    if only is not None:
        planned = dataclasses.replace(planned, runs=tuple(run for run in planned.runs if run.id in only))
    summary = execute(planned, records, "inline")
    assert not summary.problems
    assert {record.outcome for record in records.all()} == {"done"}, [record.detail for record in records.all()]
    return contents(records)


@pytest.fixture(params=CASES)
def grid(request, tmp_path):
    knobs, extra = CASES[request.param]
    file = tiny.grid(tmp_path, steps=4, seeds=1, extra=extra)
    noise = np.random.default_rng(0)
    lines = [" ".join(noise.choice(_WORDS, size=4)).capitalize() + "." for _ in range(100 * 60)]
    documents = ("\n".join(lines[start : start + 100]) for start in range(0, len(lines), 100))
    (tmp_path / "text" / "corpus.txt").write_text("\n\n".join(documents))
    text = file.read_text().replace("set:\n  ", f"set:\n  {knobs}")
    if "lm.direction" in knobs:
        text = text.replace("objectives.mlm.masking.rate: [0.15, 0.4]", "optimizer.peak_lr: [1.0e-3, 3.0e-3]")
        text = text.replace("{objectives.mlm.masking.rate: 0.15}", "{optimizer.peak_lr: 1.0e-3}")
    if "tasks" in extra:
        text = text.replace(
            "  smoke: {description: seconds}",
            "  smoke:\n    description: seconds\n    set: {finetuning.train_examples: 40, finetuning.epochs: 1}",
        )
    file.write_text(text)
    return file


def test_runs_need_no_text_where_their_cache_is_brought(grid, request, tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "usual"))
    reference = made(grid, Records(tmp_path / "reference"))

    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "prepared"))
    here = Records(tmp_path / "results")
    planned = plan(grids.read(grid), "smoke", records=here)
    if request.node.callspec.params["grid"].endswith("that is trained"):
        made(grid, here, only={run.start.id for run in planned.runs if run.start})
        planned = plan(grids.read(grid), "smoke", records=here)
        assert 0 < len(planned.pending) < len(planned.runs)
    prepared(planned, here)
    shutil.rmtree(tmp_path / "text")
    leave(tmp_path / "prepared", monkeypatch)
    assert made(grid, here) == reference


def test_translators_need_no_text_for_what_their_scores_are_compared_with(tmp_path, monkeypatch):
    """The held-out text and the simple methods are prepared: where the cache is brought there is no parallel text."""
    text = parallel_text(tmp_path / "text")
    own = tiny_system(text, **{"evaluation.translations": 4, "evaluation.beam": 2}).to_dict()
    parts = ("format", "training", "evaluation")
    shown = {f"{part}.{name}": value for part in parts for name, value in own[part].items()}
    vocabulary = {"data.tokenizer.vocab_size": own["data"]["tokenizer"]["vocab_size"]}
    grid = {
        "question": "Does attention help a tiny translator?",
        "base": "transformer_base",
        "set": shown | vocabulary | {"data.corpora": own["data"]["corpora"]},
        "axes": {"model": ["transformer", "LSTM"]},
        "variants": {
            "model": {
                "transformer": {"model.num_heads": 2, "model.ffn_size": 32, "model.max_positions": 32},
                "LSTM": {"model.kind": "lstm_encoder_decoder"},
            }
        },
        "baseline": {"model": "transformer"},
        "seeds": 1,
        "scales": {"smoke": {"description": "seconds"}},
        "metrics": [{"name": "heldout.bleu", "label": "BLEU"}],
    }
    grid["set"] |= {"model.num_layers": 1, "model.hidden_size": 16}
    file = tmp_path / "tongues.yaml"
    file.write_text(yaml.safe_dump(grid))
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "usual"))
    here = Records(tmp_path / "here")
    reference = made(file, here)
    assert all("heldout.bleu_word_by_word" in record.metrics for record in here.all())

    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "prepared"))
    there = Records(tmp_path / "there")
    prepared(plan(grids.read(file), "smoke", records=there), there)
    shutil.rmtree(tmp_path / "text")
    leave(tmp_path / "prepared", monkeypatch)
    assert made(file, there) == reference


def leave(cache, monkeypatch):
    """Brings the cache elsewhere, where there is neither a text nor a network."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(cache.rename(cache.with_name("brought"))))
    monkeypatch.setattr(Corpus, "documents", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    probe._sentences.cache_clear()


def refused(*_):
    raise AssertionError("a text or the network was read")


def test_files_of_a_task_are_found_where_the_folder_of_data_lacks_them(tmp_path, monkeypatch):
    home = tmp_path / "data"
    (home / "toy" / "parts").mkdir(parents=True)
    (home / "toy" / "train.txt").write_text("a\n")
    (home / "toy" / "parts" / "1.txt").write_text("b\n")
    origin = Origin("Toy", {"train": ("toy/*.txt",), "dev": ("toy/parts",)})
    assert origin.find("train") == []
    monkeypatch.setenv("ABLATIONS_DATA", str(home))
    assert len(origin.copy()) == 2
    assert origin.find("train") == [home / "toy" / "train.txt"]
    monkeypatch.delenv("ABLATIONS_DATA")
    (train,), (parts,) = origin.find("train"), origin.find("dev")
    assert (train.name, train.read_text(), (parts / "1.txt").read_text()) == ("train.txt", "a\n", "b\n")
    (parts / "1.txt").write_text("c\n")
    assert origin.find("dev") == [], "a copy that was altered is none"
    (home / "toy" / "train.txt").write_text("d\n")
    monkeypatch.setenv("ABLATIONS_DATA", str(home))
    origin.copy()
    assert train.read_text() == "d\n", "a newer file replaces its copy"
