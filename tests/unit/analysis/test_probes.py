"""Asking a pretrained model without fine-tuning it: hidden words, linear probes, nearest neighbours."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.schema.record import Record
from lightning_modules.analysis.probes import (
    fill_mask,
    linear_probe,
    nearest_neighbours,
    pretrained,
    probe_layers,
    states,
)
from lightning_modules.config import ConfigError
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.tasks.loader import TaskData
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple
from tests.messages import names
from tests.toy import toy_task


@pytest.fixture(scope="module")
def kept():
    """A model that was trained a little, made by the first test that needs it."""
    return {}


@pytest.fixture
def asked(tiny, tmp_path, kept):
    """A module of a few seconds of training, and its tokenizer."""
    system = tiny.but(**{"training.steps": 150, "training.batch_size": 32, "format.sequence_length": 16})
    if not kept:
        fit(system, 0, tmp_path)
        kept["module"] = pretrained(system, tmp_path / WEIGHTS)
    return kept["module"], Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)


@pytest.fixture
def toy(monkeypatch):
    for task in (toy_task("toy"), toy_task("toy_numbers", labels=())):
        monkeypatch.setitem(TASKS, task.name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def data(system, task="toy"):
    return TaskData(system.data, TASKS[task], FineTuning(max_length=16), 0)


def test_a_filling_is_what_the_model_says_of_the_same_ids(asked):
    module, encoder = asked
    (found,) = fill_mask(module, encoder, "w00 w03 [MASK]. w10", 3)
    vocabulary = encoder.vocabulary
    ids = [2, *encoder(["w00 w03"])[0].tolist(), 4, *encoder([". w10"])[0].tolist(), 3]
    assert encoder(["w00 w03 w00. w10"])[0].tolist()[-len(encoder([". w10"])[0]) :] == encoder([". w10"])[0].tolist()
    from lightning_modules.batch import Example, Tokens

    row = torch.tensor([ids])
    blank = torch.zeros_like(row, dtype=torch.bool)
    with torch.no_grad():
        encoded = module(Example.of(Tokens(row, blank, ~blank, torch.zeros(1, dtype=torch.int64))))
        logits = module.heads["mlm"]["vocabulary"](encoded.last[0, ids.index(4)][None], encoded)[0]
    best = torch.softmax(logits, 0).topk(3)
    assert [filling.piece for filling in found] == [vocabulary.pieces[n] for n in best.indices.tolist()]
    assert [filling.probability for filling in found] == pytest.approx(best.values.tolist(), rel=1e-5)
    assert len(fill_mask(module, encoder, "[MASK]", 1000)[0]) == vocabulary.size


@pytest.mark.parametrize(
    ("text", "said"), [("no mask here", r"has no \[MASK\]: 'no mask here'"), ("w01 " * 40 + "[MASK]", "too long.*16")]
)
def test_texts_that_cannot_be_asked(asked, text, said):
    with pytest.raises(ConfigError, match=said):
        fill_mask(*asked, text)


def test_states_are_those_of_each_text_alone(tiny, toy):
    backbone = tiny.build(3).backbone.train()
    inputs = data(tiny).dev
    found = states(backbone, inputs)
    assert backbone.training
    with torch.no_grad():
        layers = backbone.eval()(inputs.batch(np.array([5]))).layers
    for ours, layer in zip(found, layers, strict=True):
        assert ours.shape == (len(inputs), 16)
        assert np.allclose(ours[5], layer[0].mean(0), atol=1e-5)


def test_simple_classifiers():
    noise = np.random.default_rng(0)
    classes = np.arange(60) % 3
    x = np.eye(3)[classes] @ np.array([[9, 0, 1], [0, 9, 1], [-9, 0, 1]]) + noise.normal(size=(60, 3))
    train, dev = (x[:40], classes[:40]), (x[40:], classes[40:])
    assert linear_probe(train, dev) == 1.0
    assert nearest_neighbours(train, dev) == 1.0
    assert nearest_neighbours((x[:2], classes[:2]), dev) <= 0.75  # never a third class
    shuffled = (x[:40], noise.permutation(classes[:40]))
    assert linear_probe(shuffled, dev) < 0.9


def test_probes_of_all_layers_change_nothing(tiny, toy):
    backbone = tiny.but(**{"model.num_layers": 2}).build(3).backbone
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    found = probe_layers(backbone, data(tiny))
    assert {kind: len(scores) for kind, scores in found.items()} == {"linear": 3, "neighbours": 3}
    assert found["linear"][0] > 0.6  # of words that stand for themselves
    assert found == probe_layers(backbone, data(tiny))
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    with pytest.raises(ConfigError, match="'toy_numbers' cannot be probed"):
        probe_layers(backbone, data(tiny, "toy_numbers"))


def test_the_command_fills_masks_of_a_finished_run(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    records = Records(tmp_path / "results")
    found = plan(grids.read(simple.grid(tmp_path, rates="[0.15]", seeds=1, steps=3)), "smoke", records=records)
    execute(found, records, "inline")
    (run,) = found.runs

    def said(*words):
        options = [*words, "--results-dir", str(tmp_path / "results")]
        result = CliRunner().invoke(app, ["ask", *options], catch_exceptions=False)
        return result.exit_code, " ".join(result.output.split())

    text = "The [MASK] sees a [MASK]."
    code, output = said(run.id[:6], text, "--set", "top=3", "--format", "json")
    assert code == 0
    rows = json.loads(output)
    assert [row["mask"] for row in rows] == [1, 1, 1, 2, 2, 2]
    assert all(0 <= row[name] <= 1 for row in rows for name in ("probability", "its probability"))
    assert said(run.id, text)[0] == 0

    code, output = said("0" * 16, text)
    assert code == 2
    assert names(output, f"'{'0' * 16}'", "results/records")
    assert "fills [MASK]" in said(run.id, "nothing")[1]
    weights = records.work_folder(run.id) / WEIGHTS
    before = weights.read_bytes()
    weights.unlink()
    code, output = said(run.id, text)
    assert code == 2
    assert f"the weights of {run.id} are missing" in output
    assert "add --train" in output
    assert said(run.id, text, "--train")[0] == 0
    assert weights.read_bytes() == before

    other = run.id[0] + "e" * 15
    records.put(Record(id=other, kind="pretrain", config=run.to_dict(), outcome="diverged"))
    assert "left no weights: it ended as 'diverged'" in said(other, text)[1]
    assert f"2 runs start with '{run.id[0]}'" in said(run.id[0], text)[1]
