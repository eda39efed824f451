"""Families of runs, really trained: warm starts, fine-tunings, and what becomes of them without a parent."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.schema.record import Record
from lightning_modules import pretraining as fitting
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple
from tests.toy import toy_task

LAYERS, WARM = "model.num_layers", "training.warm_start"

# --- stacking


def layers_of(encoder):
    """What each layer computes with: its sub-layers' parameters, wherever they are held."""
    found = []
    for owners in encoder.owners:
        parts = [encoder.blocks[owner][kind] for kind, owner in owners.items()]
        found.append(torch.cat([p.detach().flatten() for part in parts for p in part.parameters()]))
    return found


def started(system, start, folder, monkeypatch):
    """The module that `fit` would train, at step 0."""

    class Seen(Exception):
        pass

    class Trainer:
        def fit(self, module, data, ckpt_path):
            raise Seen(module)

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "trainer", lambda *_, **__: Trainer())
        with pytest.raises(Seen) as seen:
            fit(system, 0, folder, start=start)
    return seen.value.args[0]


@pytest.mark.parametrize(
    ("shallow", "deep", "changes", "sources"),
    [
        (1, 2, {}, [0, 0]),
        (2, 4, {}, [0, 1, 0, 1]),
        (2, 5, {"model.norm": "pre"}, [0, 1, 0, 1, 0]),
        (2, 4, {"model.sharing": "all"}, [0, 0, 0, 0]),
        (1, 2, {"model.sharing": "all", "model.embedding_size": 8}, [0, 0]),
        (2, 4, {"model.sharing": "all", "model.sharing_groups": 2}, [0, 0, 1, 1]),
        (3, 5, {"model.sharing": "all", "model.sharing_groups": 2}, [0, 0, 0, 2, 2]),
    ],
)
def test_layers_start_from_those_of_the_shallower_network(tiny, tmp_path, monkeypatch, shallow, deep, changes, sources):
    system = tiny.but(**{LAYERS: deep, WARM: [shallow], **changes})
    parent = system.ancestor().build(7)
    save_file({n: t.contiguous() for n, t in parent.state_dict().items()}, tmp_path / WEIGHTS)
    child = started(system, tmp_path / WEIGHTS, tmp_path, monkeypatch)
    before = layers_of(parent.backbone)
    assert len(layers_of(child.backbone)) == deep
    for layer, source in zip(layers_of(child.backbone), sources, strict=True):
        assert torch.equal(layer, before[source])
    rest = {n: t for n, t in parent.state_dict().items() if ".blocks." not in n}
    assert any(name.startswith("heads.") for name in rest)
    assert any("embeddings" in name for name in rest)
    for name, tensor in rest.items():
        assert torch.equal(child.state_dict()[name], tensor), name
    scratch = system.build(0)
    assert not torch.equal(layers_of(scratch.backbone)[0], layers_of(child.backbone)[0])


@pytest.mark.parametrize("shared", ["attention", "ffn"])
def test_a_kind_that_is_shared_stays_shared_and_the_other_is_stacked(tiny, tmp_path, monkeypatch, shared):
    system = tiny.but(**{LAYERS: 4, WARM: [2], "model.sharing": shared})
    parent = system.ancestor().build(7)
    save_file({n: t.contiguous() for n, t in parent.state_dict().items()}, tmp_path / WEIGHTS)
    child = started(system, tmp_path / WEIGHTS, tmp_path, monkeypatch)
    for layer in range(4):
        for kind in ("attention", "ffn"):
            source = 0 if kind == shared else layer % 2
            assert child.backbone.owners[layer][kind] == (0 if kind == shared else layer)
            here = child.backbone.blocks[child.backbone.owners[layer][kind]][kind].state_dict()
            for name, tensor in parent.backbone.blocks[source][kind].state_dict().items():
                assert torch.equal(here[name], tensor), (layer, kind, name)


# --- made by executors


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a cache of its own, and a task ``toy`` that a tiny model learns."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return tmp_path


START = "variants:\n  start:\n    scratch: {}\n    warm: {training.warm_start: [1]}\n"


def grid(folder, *, knobs="", axes="  start: [scratch, warm]\n", extra=START, **options):
    """The tiny grid, two layers deep, from scratch and from one layer."""
    file = simple.grid(folder, **{"rates": "[0.15]", "seeds": 1, "steps": 6, "extra": extra, **options})
    text = file.read_text().replace("num_layers: 1", "num_layers: 2").replace("axes:\n", f"axes:\n{axes}")
    file.write_text(text.replace("set:\n", f"set:\n{knobs}", 1))
    return grids.read(file)


TUNED = (
    "  finetuning.epochs: 1\n  finetuning.batch_size: 16\n  finetuning.max_length: 16\n  finetuning.precision: fp32\n"
)


def test_a_warm_start_is_another_training_and_lost_weights_are_made_again(folder):
    records = Records(folder / "results")
    asked = grid(folder, knobs=TUNED, extra=START + "tasks: [toy]\n")
    found = plan(asked, "smoke", records=records)
    summary = execute(found, records, "inline")
    assert summary.outcomes == {"done": 5}  # from scratch, one layer, two layers, and two fine-tunings
    scratch, warm = (records.get(cell.runs[0].id) for cell in found.cells)
    assert scratch.metrics["heldout.loss"] != warm.metrics["heldout.loss"]
    parent, child = found.cells[1].runs[0].start, found.cells[1].finetunings[0]
    assert [cost["parameters"] for cost in (scratch.cost, warm.cost)] == [scratch.cost["parameters"]] * 2
    assert records.get(parent.id).cost["parameters"] < warm.cost["parameters"]
    tuned = records.get(child.id)
    assert {"toy.accuracy", "toy.accuracy.majority", "toy.accuracy.tfidf", "toy.dev_loss"} <= set(tuned.metrics)
    assert not any(name.startswith("heldout.") for name in tuned.metrics)
    assert (records.work_folder(child.id) / WEIGHTS).exists()

    weights = [records.work_folder(id) / WEIGHTS for id in (parent.id, warm.id)]
    before = load_file(weights[1])
    for path in (*weights, records.path(child.id)):
        path.unlink()
    again = execute(plan(asked, "smoke", records=records), records, "inline")
    assert (again.executed, again.outcomes) == (1, {"done": 5})
    assert records.get(child.id).metrics == tuned.metrics
    assert all(torch.equal(tensor, before[name]) for name, tensor in load_file(weights[1]).items())


@pytest.mark.usefixtures("forking")
def test_in_processes_a_diverged_parent_leaves_orphans_and_the_rest_goes_on(folder):
    """And a parent whose record tells another loss than its second training is no parent."""
    records = Records(folder / "results")
    knobs = "  training.clip_norm: 0.0\n  schedule.warmup_fraction: 0.0\n  training.warm_start: [1]\n"
    asked = grid(folder, knobs=knobs, axes="  optimizer.peak_lr: [1e-2, 1e-3, 1e30]\n", extra="", steps=8)
    found = plan(asked, "smoke", records=records)
    tampered = found.cells[1].runs[0].start
    said = {"heldout.loss": 99.0}
    records.put(Record(id=tampered.id, kind="pretrain", config=tampered.to_dict(), outcome="done", metrics=said))
    summary = execute(plan(asked, "smoke", records=records), records, "local", retries=0, deadline=600)
    assert summary.outcomes == {"done": 3, "diverged": 1, "orphaned": 1, "failed": 1}
    assert not summary.problems
    refused = records.get(found.cells[1].runs[0].id)
    assert refused.outcome == "failed"
    first = refused.detail.splitlines()[0]
    assert first.startswith(f"NotReproducedError: run {tampered.id}, trained again for its weights, ended at a ")
    assert " but its record says 99.0000. Other processors" in first
    assert 1 < float(first.split("loss of ")[1].split()[0]) < 20
    assert records.get(found.cells[2].runs[0].id) is None
    states = plan(asked, "smoke", records=records)
    assert [states.states[cell.runs[0].id] for cell in states.cells] == ["done", "failed", "orphaned"]


# --- what is measured at the end

PAIRS = {
    "format.kind": "segment_pairs", "format.sequence_length": 48, "model.max_positions": 48, "model.segment_types": 2,
    "training.steps": 2, "evaluation.pairs": 16,
}  # fmt: skip
ANSWERS = {f"heldout.{kind}_accuracy" for kind in ("nsp", "sop")}
BASELINES = {f"heldout.{kind}_{name}" for kind in ("nsp", "sop") for name in ("majority", "bow", "overlap")}


@pytest.mark.parametrize(
    ("changes", "answers", "asked"),
    [
        ({"objectives.sentence.weight": 1.0}, True, True),
        ({}, False, True),
        ({"format.kind": "full_sentences"}, False, True),
        ({"objectives.sentence.weight": 1.0, "evaluation.pairs": 0}, False, False),
    ],
    ids=["sentence head", "pairs without a head", "one segment", "nothing asked"],
)
def test_pairs_are_measured_where_asked_and_answered_where_there_is_a_head(tiny, tmp_path, changes, answers, asked):
    system = tiny.but(**PAIRS | changes)
    fitted = fit(system, 0, tmp_path)
    measured = set(fitted.metrics)
    assert (measured >= ANSWERS, bool(ANSWERS & measured)) == (answers, answers)
    assert (measured >= BASELINES, bool(BASELINES & measured)) == (asked, asked)
    assert {"heldout.pairs_loss", "heldout.pairs_accuracy"} & measured == (
        {"heldout.pairs_loss", "heldout.pairs_accuracy"} if asked else set()
    )
    assert all(0 <= fitted.metrics[name] <= 1 for name in ANSWERS & measured)
    assert all(len(values) == system.model.num_layers for values in fitted.layers.values())
    assert set(fitted.layers) == {"distance", "angle"}
    assert all(math.isfinite(value) for value in fitted.metrics.values())
