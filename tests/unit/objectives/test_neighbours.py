"""Two neighbours are hidden in each row, any two alike, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.objectives import neighbours
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming


def test_two_neighbours_of_each_row_are_hidden_and_asked_for():
    tokens = make_tokens(2000, 8, padding=2)
    example = neighbours.asked("both").corrupt(Example.of(tokens), make_draws(2000), make_vocabulary())
    target = example.targets["mlm"]
    first, second = target.where.view(-1, 2).unbind(1)
    assert (second - first == 1).all()
    assert (first // 8).tolist() == list(range(2000)), "one pair a row, none of them across rows"
    assert torch.equal(target.ids, tokens.ids.flatten()[target.where])
    hidden = torch.zeros(2000 * 8, dtype=torch.bool)
    hidden[target.where] = True
    assert (example.inputs.ids.flatten()[hidden] == make_vocabulary().mask).all()
    assert torch.equal(example.inputs.ids.flatten()[~hidden], tokens.ids.flatten()[~hidden])
    assert not (tokens.special | ~tokens.real).flatten()[target.where].any()
    places = np.bincount((first % 8)[::2], minlength=8)  # of full rows, whose words stand at 1 to 6
    assert places[[0, 6, 7]].sum() == 0
    assert abs(places[1:6] / 1000 - 0.2).max() < 0.06


def test_a_row_without_neighbours_is_asked_nothing():
    tokens = make_tokens(2, 8)
    tokens = replace(tokens, special=tokens.special | (torch.arange(8) % 2 == torch.tensor([[0], [9]])))
    example = neighbours.asked("both").corrupt(Example.of(tokens), make_draws(2), make_vocabulary())
    assert (example.targets["mlm"].where >= 8).all()


def chosen(hidden, vocabulary):
    tokens = make_tokens(64, 24, padding=4)
    return neighbours.asked(hidden).masking.choose(tokens, make_draws(64), vocabulary) >= 0, tokens


def test_one_of_two_is_one_of_the_same_two():
    both, left, right = (chosen(hidden, make_vocabulary())[0] for hidden in ("both", "left", "right"))
    assert (both.sum(1) == 2).all()
    assert (left.sum(1) == 1).all()
    assert np.array_equal(left | right, both)
    assert not (left & right).any()
    assert np.array_equal(np.argmax(left, 1) + 1, np.argmax(right, 1))


def test_two_neighbours_are_of_different_words():
    begins = np.arange(50) % 3 == 0  # the other pieces go on
    pieces = replace(make_vocabulary(), begins_word=begins)
    hidden, tokens = chosen("right", pieces)
    assert hidden.any(1).sum() > 50
    assert begins[tokens.ids.numpy()[hidden]].all()
    assert not begins[tokens.ids.numpy()[chosen("left", pieces)[0]]].all(), "the first may be any piece"


def test_a_language_model_is_not_asked():
    with pytest.raises(ConfigError, match=naming("evaluation.neighbours", "language model")):
        SYSTEMS["gpt"].but(**{"evaluation.neighbours": 8})
