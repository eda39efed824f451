"""Measured inference: what is measured, what is kept, and the part of a page it becomes."""

import json
from functools import partial

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.measurements.measurements import Measurements
from ablations.pages import inference_page
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import inference
from ablations.running.inference import Setting
from lightning_modules.config import ConfigError
from lightning_modules.finetuning import weight_pruning

QUICK = Setting(turns=2, seconds=0.0)


@pytest.fixture(scope="module")
def sizes():
    return plan(grids.read("bert_model_size"), "smoke")


@pytest.fixture(scope="module")
def measured(sizes):
    return inference.measure(sizes.cells, QUICK)


def made_up(sizes, device="A processor", threads=1, ms=2.0):
    rows = {}
    for n, cell in enumerate(sizes.cells):
        batches = {str(b): {"ms": ms * b * (n + 1), "low": b * 1.0, "high": ms * b * 9, "mb": 3.25} for b in (1, 32)}
        rows[cell.label] = {"parameters": 1000 * (9 - n), "flops": 1e6 * (n + 1), "file_mb": 0.5 * (9 - n), **batches}
    about = {"device": device, "threads": threads, "turns": 3, "clock": "wall", "torch": "2", "commit": None}
    return {**about, "measured": "2026-01-02T03:04:05+00:00", "length": 32, "cells": rows}


def test_every_cell_has_times_and_no_less_memory_than_its_weights(sizes, measured):
    assert list(measured["cells"]) == [cell.label for cell in sizes.cells]
    assert (measured["threads"], measured["length"]) == (1, 32)
    for cell in sizes.cells:
        row = measured["cells"][cell.label]
        encoder = cell.system.model.build(cell.system.data.tokenizer.vocab_size)
        assert row["parameters"] == sum(p.numel() for p in encoder.parameters())
        for batch in ("1", "32"):
            assert 0 < row[batch]["low"] <= row[batch]["ms"] <= row[batch]["high"]
            assert row[batch]["mb"] > 4e-6 * row["parameters"]
        stream = 4e-6 * 32 * 32 * cell.system.model.hidden_size  # one layer's output for 32 sequences of 32
        assert row["32"]["mb"] - row["1"]["mb"] > stream


def test_cells_with_one_encoder_are_measured_once():
    found = inference.measure(plan(grids.read("masking_strategy"), "smoke").cells, QUICK)
    assert len(found["cells"]) == 12
    assert len({json.dumps(row) for row in found["cells"].values()}) == 1


def test_models_without_heads_are_smaller_and_have_the_batches_that_were_asked(tmp_path):
    planned = plan(grids.read("head_pruning"), "smoke")
    found = inference.measure(planned.cells, Setting(turns=2, seconds=0.0, batches=(1, 4, 16)))
    counts = {}
    for cell in planned.cells:
        row = found["cells"][cell.label]
        assert row.keys() == {"parameters", "flops", "file_mb", "1", "4", "16"}
        share = cell.values["finetuning.head_pruning.share"]
        assert counts.setdefault(share, row["parameters"]) == row["parameters"]  # in whichever order
    assert len(set(counts.values())) == 9
    model = planned.cells[0].system.model
    attention = 2 * (4 * model.hidden_size**2 + 3 * model.hidden_size)  # of both layers, but for output biases
    assert counts[0.0] - counts[1.0] == attention
    assert counts[0.0] - counts[0.5] == attention / 2
    inference.keep(tmp_path, found)
    inference_page.publish(Measurements(planned.grid, planned.cells, {}), tmp_path)
    text = (tmp_path / "inference.md").read_text()
    assert "batch of 16" in text
    assert "batch of 32" not in text
    assert "Heads that a cell removes are missing" in text


def test_a_second_measurement_replaces_that_of_its_device_alone(sizes, tmp_path):
    for one in (made_up(sizes), made_up(sizes, "A card", None), made_up(sizes, ms=7.0)):
        inference.keep(tmp_path, one)
    found = inference.read(tmp_path)
    assert [(one["device"], one["threads"]) for one in found] == [("A card", None), ("A processor", 1)]
    assert found[1]["cells"][sizes.cells[0].label]["1"]["ms"] == 7.0


def test_the_page_has_a_row_a_cell_the_smallest_first_and_the_same_bytes(sizes, tmp_path):
    inference.keep(tmp_path, made_up(sizes))
    written = inference_page.publish(Measurements(sizes.grid, sizes.cells, {}), tmp_path)
    first = {name: path.read_bytes() for name, path in written.items()}
    assert set(first) == {"inference.md", "inference.csv", "inference.svg"}
    text = (tmp_path / "inference.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(sizes.cells)
    assert [row.split(" | ")[3] for row in rows] == ["6 k", "7 k", "8 k", "9 k"]
    assert "A processor, 1 thread" in text
    assert "verdict depends on them" in text
    inference_page.publish(Measurements(sizes.grid, sizes.cells, {}), tmp_path)
    assert {name: path.read_bytes() for name, path in written.items()} == first


def test_flops_are_those_of_the_matrix_products_that_are_made():
    for planned in (plan(grids.read("head_pruning"), "smoke"), plan(grids.read("small_models"), "smoke")):
        for cell in planned.cells:
            forward = inference._pass(cell, 1, "cpu")
            if not inference._quantized(cell):  # packed products are not counted by torch
                with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
                    forward()
                assert inference._flops(cell) == counted.get_total_flops()


def test_int8_has_as_many_flops_and_parameters_and_a_smaller_file(tmp_path):
    planned = plan(grids.read("small_models"), "smoke")
    rows = inference.measure(planned.cells, Setting(turns=2, seconds=0.0, batches=(1,)))["cells"]
    whole, rounded = rows["BERT"], rows["int8"]
    assert (rounded["flops"], rounded["parameters"]) == (whole["flops"], whole["parameters"])
    matrices = sum(w.numel() for w in weight_pruning.matrices(planned.cells[0].system.model.build(4)).values())
    saved = 1e6 * (whole["file_mb"] - rounded["file_mb"])
    assert saved == pytest.approx(3 * matrices, rel=0.15)  # three of four bytes, less what names each packed matrix
    assert rows["half of the weights"] == whole
    with pytest.raises(ConfigError, match=r"int8 multiplies in int8.*Allowed: cpu"):
        inference.measure(planned.cells, Setting(device="cuda"))


def test_processor_time_is_that_of_one_thread(sizes):
    with pytest.raises(ConfigError, match="one thread"):
        inference.measure(sizes.cells, Setting(threads=2, clock="cpu"))


def test_the_command_measures_and_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "Setting", partial(Setting, turns=1, seconds=0.0))
    words = [
        "benchmark",
        "inference",
        "bert_model_size",
        "--scale",
        "smoke",
        "--results-dir",
        str(tmp_path),
        "--device",
        "cpu",
    ]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "bert_model_size" / "smoke" / "inference.svg").is_file()
    for option, value, said in (("--device", "cdua", "Did you mean 'cuda'"), ("--clock", "sun", "Allowed: wall, cpu")):
        ended = CliRunner().invoke(app, [*words, option, value])
        assert ended.exit_code == 2
        assert said in " ".join(ended.output.split())
