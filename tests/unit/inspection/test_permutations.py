"""Pictures of orders show the masks of training; a trained pair says what its objectives can say."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from ablations.figures.style import svg
from ablations.inspection.permutations import Orders, TrainedPair
from lightning_modules.config import ConfigError

WORDS = ("New", "York", "is", "a", "city")
ORDERS = (("New", "York"), ("York", "New"))


def cells(axes):
    """(row, column) -> whether it is seen, and as what."""
    return {
        (round(patch.get_y() + 0.45), round(patch.get_x() + 0.45)): to_hex(patch.get_facecolor())
        for patch in axes.patches
    }


def test_pictures_show_the_context_to_all_and_a_hidden_word_to_those_after_it():
    figure = Orders(WORDS, ORDERS).picture()
    states, queries, _, others = (cells(axes) for axes in figure.axes)
    white = "#ffffff"
    assert len(states) == 25
    assert len(queries) == len(others) == 10, "only hidden words are asked"
    assert all(states[row, column] != white for row in range(5) for column in (2, 3, 4)), "context is seen by all"
    assert all(states[row, column] == white for row in (2, 3, 4) for column in (0, 1)), "and sees no hidden word"
    assert (states[0, 1], queries[0, 0], queries[0, 1], queries[1, 1]) == (white,) * 4
    assert white not in (states[1, 0], states[0, 0], queries[1, 0])
    assert (others[1, 0], others[1, 1]) == (white, white)
    assert others[0, 1] == queries[1, 0] != white, "the other order"
    assert svg(figure).startswith("<svg")


def test_formulas_say_what_each_objective_is_told():
    told = Orders(WORDS, ORDERS).conditions().data.set_index("objective")
    assert told.loc["masked", "formula"] == "p(New | is a city) p(York | is a city)"
    assert told.loc["permuted: New, York", "formula"] == "p(New | is a city) p(York | New is a city)"
    assert told.loc["permuted: York, New", "formula"] == "p(York | is a city) p(New | York is a city)"
    assert told.loc["next words", "formula"] == "p(New) p(York | New)"
    assert told["told"].to_dict() == {
        "masked": 0, "next words": 1, "permuted: New, York": 1, "permuted: York, New": 1,
    }  # fmt: skip
    assert told.loc["next words", "context"] == "left of it"


@pytest.mark.parametrize("orders", [(), (("New", "York"), ("New", "is")), (("New", "New"),), (("Paris",),)])
def test_orders_are_of_the_same_words_of_the_sentence(orders):
    with pytest.raises(ConfigError, match="New York is a city"):
        Orders(WORDS, orders)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_pair_says_what_it_can_say_and_the_best_is_known():
    pair = TrainedPair(steps=8)
    masked, permuted = (pair.joint(objective).to_numpy() for objective in ("masked", "permuted"))
    assert masked.shape == permuted.shape == (8, 8)
    assert np.linalg.matrix_rank(masked, tol=1e-12) == 1, "independent: a product"
    assert np.linalg.matrix_rank(permuted, tol=1e-12) > 1
    assert 0 < masked.sum() < 1 > permuted.sum() > 0
    numbers = pair.losses().data.set_index("objective")
    assert numbers.loc["masked", "together"] == numbers.loc["masked", "alone"]
    assert numbers.loc["permuted", "together"] != numbers.loc["permuted", "alone"]
    best = numbers.loc["the best possible"]
    assert best["alone"] - best["together"] == pytest.approx(4 / 19 * np.log(8))
    assert (numbers["together"] >= best["together"]).all()
    assert svg(pair.picture()).startswith("<svg")
