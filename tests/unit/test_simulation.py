"""The simulation of `benchmarks` makes the numbers and the page that are published."""

import csv
import json

import pytest

from benchmarks.simulation import __main__ as simulate
from benchmarks.simulation import simulation
from lightning_modules.places import project

pytestmark = pytest.mark.slow

PUBLISHED = project() / "results" / simulate.FOLDER


def published(study):
    with (PUBLISHED / f"{study}.csv").open(encoding="utf-8", newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text):
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def test_the_page_is_made_of_the_published_numbers():
    page = simulate.page({study: published(study) for study in simulate.STUDIES})
    assert page == (PUBLISHED / "README.md").read_text(encoding="utf-8")


def test_what_is_published_can_be_simulated_again():
    """The same numbers with the pinned libraries; others may draw other noise, which moves shares a little."""
    for old, new in zip(published("power"), simulation.power(), strict=True):
        assert new == pytest.approx(old, abs=0.05)
