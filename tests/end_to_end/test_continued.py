"""Pretrainings that continue another one, really trained: weights, order, resumption, lost weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.estimate import retrained
from ablations.running.execute import execute
from ablations.schema.record import Record
from lightning_modules.config import ConfigError
from lightning_modules.data.store import pieces
from lightning_modules.pretraining import fit
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple
from tests.end_to_end.test_families import started

START = "training.start"
PAIRS = {
    "format.kind": "segment_pairs", "format.sequence_length": 48, "model.max_positions": 48, "model.segment_types": 2,
    "objectives.sentence.weight": 1.0,
}  # fmt: skip
RUNNING_TEXT = {"format.kind": "full_sentences", "objectives.sentence": None, "training.steps": 4}


def weights_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def kept(module, folder):
    """The weights of a module, as a training leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in weights_of(module).items()}, folder / WEIGHTS)
    return folder / WEIGHTS


def test_backbone_and_common_heads_are_the_trunks_and_new_heads_fresh(tiny, tmp_path, monkeypatch):
    arm = tiny.but(**PAIRS, **{START: RUNNING_TEXT})
    trunk = arm.ancestor().build(7)
    child = weights_of(started(arm, kept(trunk, tmp_path / "trunk"), tmp_path, monkeypatch))
    assert set(child) > set(weights_of(trunk))
    for name, tensor in weights_of(trunk).items():
        assert torch.equal(child[name], tensor), name
    fresh = weights_of(arm.build(0))
    new = set(child) - set(weights_of(trunk))
    assert new
    assert all(name.startswith("heads.sentence.") for name in new)
    assert all(torch.equal(child[name], fresh[name]) for name in new)


def test_a_new_table_of_segments_starts_fresh(tiny, tmp_path, monkeypatch):
    arm = tiny.but(**PAIRS, **{START: RUNNING_TEXT | {"model.segment_types": 0}})
    trunk = arm.ancestor().build(7)
    child = weights_of(started(arm, kept(trunk, tmp_path / "trunk"), tmp_path, monkeypatch))
    table = "backbone.embeddings.tables.segment.weight"
    assert table not in weights_of(trunk)
    assert torch.equal(child[table], weights_of(arm.build(0))[table])
    assert all(torch.equal(child[name], tensor) for name, tensor in weights_of(trunk).items())
    with pytest.raises(ConfigError, match="segment_types"):  # a trained one is not thrown away
        tiny.but(**PAIRS | {"model.segment_types": 0, START: RUNNING_TEXT | {"model.segment_types": 2}})


def test_heads_that_an_arm_lacks_are_left_behind(tiny, tmp_path, monkeypatch):
    arm = tiny.but(**PAIRS, **{START: {"training.steps": 4}}).but(**{"objectives.sentence": None})
    arm = arm.but(**{START: {"objectives.sentence": {}, "training.steps": 4}})
    trunk = arm.ancestor().build(7)
    child = weights_of(started(arm, kept(trunk, tmp_path / "trunk"), tmp_path, monkeypatch))
    assert set(weights_of(trunk)) > set(child)
    assert all(torch.equal(tensor, weights_of(trunk)[name]) for name, tensor in child.items())


def test_weights_of_another_shape_are_refused_by_name(tiny, tmp_path):
    arm = tiny.but(**{START: {"training.steps": 4}})
    wider = kept(arm.but(**{"model.ffn_size": 24, START: {}}).build(0), tmp_path / "trunk")
    with pytest.raises(ConfigError, match=r"backbone\.blocks\.0\.ffn\S*: has shape 64 x 16, but 24 x 16 where"):
        fit(arm, 0, tmp_path / "arm", start=wider)


def test_a_start_without_weights_is_refused(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"training\.start needs the weights"):
        fit(tiny.but(**{START: {"training.steps": 4}}), 0, tmp_path)


def first_batches(system, seed=0, count=3):
    data = system.data_module(seed)
    batches = iter(data.train_dataloader())
    return [next(batches) for _ in range(count)], data


def test_an_arm_sees_the_text_of_its_trunk_in_another_order_under_other_masks(tiny):
    """The same settings and seed: without a seed of its own the arm would repeat the trunk's first steps."""
    arm = tiny.but(**{START: {"training.steps": 12}})
    (ours, data), (theirs, before) = first_batches(arm), first_batches(arm.ancestor())
    assert arm.ancestor() == tiny
    for mine, its in zip(ours, theirs, strict=True):
        assert not torch.equal(mine.inputs.ids, its.inputs.ids)
    long = [{row for batch in batches for row in map(tuple, batch.inputs.ids.tolist()) if 0 not in row}
            for batches in (ours, theirs)]  # fmt: skip
    assert min(map(len, long)) > 5
    assert not long[0] & long[1]  # a short sequence with one mask may look the same by chance
    for mine, its in zip(data.heldout, before.heldout, strict=True):
        assert torch.equal(mine.inputs.ids, its.inputs.ids)
    again, _ = first_batches(arm)
    other, _ = first_batches(arm, seed=1)
    assert all(torch.equal(a.inputs.ids, b.inputs.ids) for a, b in zip(ours, again, strict=True))
    assert not torch.equal(ours[0].inputs.ids, other[0].inputs.ids)


def test_a_warm_start_keeps_the_order_of_its_seed(tiny):
    """Warm-started runs that were trained before keep their numbers."""
    deeper = tiny.but(**{"model.num_layers": 2})
    (ours, _), (theirs, _) = first_batches(deeper.but(**{"training.warm_start": [1]})), first_batches(deeper)
    assert all(torch.equal(a.inputs.ids, b.inputs.ids) for a, b in zip(ours, theirs, strict=True))


def test_rows_of_common_words_are_taken_over_and_new_words_get_the_mean_row(tiny, tmp_path, monkeypatch):
    ours = tiny.but(**{"data.tokenizer.vocab_size": 70, "training.vocabulary": "remapped"} | {
        START: {"data.tokenizer.vocab_size": 64, "training.steps": 4}})  # fmt: skip
    trunk = ours.ancestor().build(7)
    with torch.no_grad():
        trunk.heads["mlm"]["vocabulary"].bias.normal_()
    before, after = (pieces(one.data) for one in (ours.ancestor(), ours))
    assert set(before) != set(after)
    child = weights_of(started(ours, kept(trunk, tmp_path / "trunk"), tmp_path, monkeypatch))
    old = weights_of(trunk)
    of_words = [name for name, tensor in child.items() if tensor.shape != old[name].shape]
    assert {tensor.ndim for name, tensor in child.items() if name in of_words} == {1, 2}  # biases and embeddings
    for name, tensor in child.items():
        if name not in of_words:
            assert torch.equal(tensor, old[name]), name
            continue
        for number, piece in enumerate(after):
            row = old[name][before.index(piece)] if piece in before else old[name].mean(0)
            assert torch.allclose(tensor[number], row, atol=1e-6), (name, piece)
    assert sorted(of_words) == sorted(ours.rows_of_words())


def test_a_chain_trains_each_link_from_the_one_behind_it_and_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    file = simple.grid(tmp_path, rates="[0.15, 0.4]", seeds=1, steps=4)
    middle = f"training.steps: 3, objectives.mlm.masking.rate: 0.15, training.vocabulary: remapped, {START}: " + (
        "{training.steps: 5, data.tokenizer.vocab_size: 280}")  # fmt: skip
    file.write_text(file.read_text().replace("set:\n", f"set:\n  {START}: {{{middle}}}\n", 1))
    grid, records = grids.read(file), Records(tmp_path / "results")
    found = plan(grid, "smoke", records=records)
    assert execute(found, records, "inline").outcomes == {"done": 4}
    first, second = found.trunks
    assert [records.get(run.id).curve["step"][-1] for run in (first, second)] == [5, 3]
    places = [records.work_folder(run.id) / WEIGHTS for run in (first, second)]
    assert all(place.exists() for place in places)
    measured = {run.id: records.get(run.id).metrics for cell in found.cells for run in cell.runs}
    before = load_file(places[1])
    for place in (*places, *(records.path(run_id) for run_id in measured)):
        place.unlink()
    again = execute(plan(grid, "smoke", records=records), records, "inline")
    assert again.outcomes == {"done": 4}
    assert all(np.array_equal(tensor, before[name]) for name, tensor in load_file(places[1]).items())
    assert measured == {run_id: records.get(run_id).metrics for run_id in measured}


def test_both_parents_of_a_student_are_charged_once_and_trained_again_where_they_are_lost(tmp_path, monkeypatch):
    """In a fresh clone: records are there, and no weights."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    file = simple.grid(tmp_path, rates="[0.15, 0.3]", seeds=2, steps=4)
    parent = "model.num_layers: 2, training.steps: 6, objectives.mlm.masking.rate: 0.15"
    knobs = f"  {START}: {{{parent}}}\n  training.start_layers: [1]\n"
    knobs += f"  objectives.distillation.teacher: {{{parent}, seed: 9}}\n"
    file.write_text(file.read_text().replace("set:\n", f"set:\n{knobs}", 1))
    grid, records = grids.read(file), Records(tmp_path / "results")
    found = plan(grid, "smoke", records=records)
    assert sorted(run.seed for run in found.trunks) == [0, 1, 9]
    child = found.cells[1].runs[0]
    assert child.roles == ("start", "teacher")
    assert {run.id for run in found.trunks} > set(child.parents)
    assert len(found.runs) == len(found.costs) == 3 + 4
    assert found.runs.index(child) > max(map(found.runs.index, child.by_role.values()))
    summary = execute(found, records, "inline")
    assert (summary.executed, summary.outcomes) == (7, {"done": 7})
    measured = records.get(child.id).metrics
    for path in (*(records.work_folder(run.id) / WEIGHTS for run in found.trunks), records.path(child.id)):
        path.unlink()
    left = plan(grid, "smoke", records=records)
    assert {run.id for run in retrained(left, records)} == set(child.parents)
    again = execute(left, records, "inline")
    assert (again.executed, again.outcomes) == (1, {"done": 7})
    assert records.get(child.id).metrics == measured


def test_a_student_whose_teacher_diverged_is_an_orphan(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    file = simple.grid(tmp_path, rates="[0.15]", seeds=1, steps=4)
    knobs = "  objectives.distillation.teacher: {training.steps: 6, seed: 9}\n"
    file.write_text(file.read_text().replace("set:\n", f"set:\n{knobs}", 1))
    grid, records = grids.read(file), Records(tmp_path / "results")
    (teacher,), child = (found := plan(grid, "smoke", records=records)).trunks, found.cells[0].runs[0]
    assert child.by_role == {"teacher": teacher}
    records.put(Record(id=teacher.id, kind="pretrain", config=teacher.to_dict(), outcome="diverged"))
    assert plan(grid, "smoke", records=records).states[child.id] == "orphaned"
    assert execute(found, records, "inline").outcomes == {"diverged": 1, "orphaned": 1}
