"""Sizes of systems over the date, and told costs beside our own."""

import re

import pytest

from ablations.literature import published_values
from ablations.literature.configurations import read as configurations
from ablations.literature.systems import Hardware, released, told_of, training
from ablations.pages.systems_page import beside
from ablations.study import Study
from lightning_modules.systems import SYSTEMS

NAMES = ["ELMo", "GPT", "BERT", "GPT-2", "XLNet", "RoBERTa", "ALBERT", "DistilBERT", "GPT-3"]


def test_all_systems_are_there_in_the_order_of_their_dates():
    assert [system.name for system in released()] == NAMES
    assert [system.months for system in released()] == sorted(system.months for system in released())


def test_dates_are_those_of_the_first_versions():
    """The number of an arXiv paper begins with its year and month."""
    numbers = {
        row.paper: row.arxiv
        for file in published_values.files()
        for row in published_values.read(file)
        if re.match(r"\d{4}\.", row.arxiv)
    }
    checked = [system for system in released() if system.name in numbers]
    assert len(checked) >= 6
    for system in checked:
        assert system.date == f"20{numbers[system.name][:2]}-{numbers[system.name][2:4]}", system.name


def test_sizes_are_the_printed_ones():
    printed = {item.id: item.printed for item in configurations().configurations}
    sizes = {system.name: [size.millions for size in system.sizes] for system in released()}
    assert sizes["BERT"] == [float(printed["bert_base"]), float(printed["bert_large"])] == [110, 340]
    assert sizes["GPT-3"] == [175_000]
    assert sizes["GPT-2"] == [1_500]
    assert sizes["ELMo"] == [13.6, 28.0, 93.6]
    assert [system.name for system in released() if any(size.second_hand for size in system.sizes)] == ["XLNet"]


def test_hardware_and_days_are_read_from_the_words():
    assert training("bert_base")[1] == (Hardware(8, "V100", 12),)
    assert training("bert_large")[1] == (Hardware(64, "TPU chip", 4), Hardware(280, "V100", 1))
    assert training("roberta_large")[1] == (Hardware(1024, "V100", 1),)
    assert training("albert_base") is None


def test_days_that_are_not_printed_are_not_made_up():
    row, (hardware,) = training("xlm")
    assert (hardware.days, hardware.chip_days, hardware.speed(1e18)) == (None, None, None)
    assert str(hardware) == "64 x V100, days not printed"
    assert "days are not printed" in row.note
    (line,) = told_of([SYSTEMS["xlm"]])
    assert line.endswith("FLOPs, has no rate, for the days are not printed.")
    (listed,) = [row for row in beside().rows if row[0] == "xlm"]
    assert [listed[place] for place in (2, 5, 6)] == ["", "", ""]


def test_a_told_cost_stands_beside_the_same_training_alone():
    bert = SYSTEMS["bert_base"]
    (line,) = told_of([bert.but(**{"objectives.mlm.masking.rate": 0.4}), SYSTEMS["albert_base"]])
    rate = int(re.search(r"in 96 V100 days: (\d+) TFLOP/s", line)[1])
    assert rate == round(bert.but(**{"objectives.mlm.masking.rate": 0.4}).flops() / (96 * 86_400) / 1e12)
    assert told_of([bert.but(**{"training.steps": 1000}), bert.but(**{"model.num_layers": 6})]) == []


@pytest.mark.nightly
def test_a_plan_as_published_says_the_stated_cost(tmp_path):
    stated = "Stated cost of bert"
    assert stated in Study("directionality", "paper", results_dir=tmp_path).plan().text
    assert stated not in Study("directionality", "smoke", results_dir=tmp_path).plan().text
