"""Gradients by distance: as autograd gives them by hand, faded by gates and matrices, and where a copy was learned."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ablations.figures.style import svg
from ablations.inspection.fading_gradients import READERS, Fading, _Reader
from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.made import WORDS


@pytest.mark.parametrize("name", READERS)
def test_gradients_are_those_of_small_changes(name):
    torch.manual_seed(0)
    reader, rows = _Reader(name).double(), torch.randint(len(WORDS), (3, 9))
    lengths, nats = reader.gradients(rows)
    assert lengths.shape == (3, 8)
    assert torch.allclose(nats, F.cross_entropy(reader(rows[:, :-1])[:, -1], rows[:, -1], reduction="none"))
    changed, steps = torch.zeros(3, 8, dtype=torch.double), 1e-5
    for place in range(8):
        for unit in range(64):

            def moved(_, given, embedded, place=place, unit=unit):
                change = torch.zeros_like(embedded)
                change[:, place, unit] = steps
                return embedded + change

            hook = reader.embeddings.register_forward_hook(moved)
            with torch.no_grad():
                other = F.cross_entropy(reader(rows[:, :-1])[:, -1], rows[:, -1], reduction="none")
            hook.remove()
            changed[:, 7 - place] += ((other - nats) / steps).square()
    assert torch.allclose(lengths, changed.sqrt(), rtol=1e-2, atol=1e-6)


def test_at_the_start_a_recurrence_forgets_and_attention_does_not():
    table = Fading(steps=0, seeds=2).table().data.set_index("reader")["factor"]
    assert (table[["plain RNN", "GRU", "LSTM"]] < 0.8).all()
    assert table["attention"] == pytest.approx(1.0, abs=0.05)


def test_a_trained_reader_has_its_gradient_where_the_copy_is():
    fading = Fading(steps=150, seeds=1)
    part = fading._measured("attention", 0).query("moment == 'trained'")
    assert part["nats"].iloc[0] < 0.5 * math.log(16)
    assert part.set_index("distance")["share"].drop(1).idxmax() == 5


def test_rows_end_behind_the_mark_and_copies_are_in_the_text():
    fading, control = Fading(copies=10), Fading(copies=10, is_copied=False)
    again = WORDS.index(fading.language.vocabulary["mark"][1])
    for one, share in ((fading, 1.0), (control, 1 / 16)):
        rows = one._asked
        assert rows.shape[1] == 40
        assert (rows[:, -2] == again).all()
        assert np.isclose((rows[:, -1] == rows[:, -11]).float().mean(), share, atol=0.05)


@pytest.mark.nightly
def test_intervals_are_of_seeds_and_one_seed_has_none():
    few, one = Fading(steps=1, seeds=2), Fading(steps=1, seeds=1)
    assert all(point.low < point.mean < point.high for point in few.curve("GRU", "trained")[1:10])
    assert "±" in few.table().text
    assert "±" not in one.table().text
    assert svg(one.picture()).startswith("<svg")


def test_a_distance_that_is_no_number_of_sentences_is_refused():
    with pytest.raises(ConfigError, match="copies=7"):
        Fading(copies=7).picture()
