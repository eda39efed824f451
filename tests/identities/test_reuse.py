"""Rows of which a part goes on: what is handed on knows that part alone, and is the memory of the next step."""

import dataclasses

import numpy as np
import pytest
import torch

from lightning_modules.batch import Encoded, Example, SegmentState, Unsupported, Visibility
from lightning_modules.objectives import PermutationLM
from lightning_modules.objectives.masking import Pieces
from lightning_modules.training.recurrent_state import RecurrentState
from tests.conftest import make_draws, make_vocabulary
from tests.identities.test_memory import POSITIONS, ROWS, batch, encoder, texts

LENGTH, REUSE = 12, 5
BACKWARD = torch.tensor([True, False, True])
WAYS = ["relative", "learned distances", "rotary", "sided bias, pre-norm"]


def example(ids, reuse=REUSE, backward=BACKWARD):
    """Rows as a step shows them, before any objective."""
    tokens = batch(ids).inputs
    tokens.segment_state = SegmentState(backward=backward, reuse=reuse)
    return Example.of(tokens)


def handed_on(ids, backward=BACKWARD, reuse=REUSE):
    return example(ids, reuse, backward).inputs.cached


def windows(text, step):
    """The windows of a step of rows that go on, to the left and to the right: what goes on has no gap."""
    size = text.shape[1]
    first = torch.where(BACKWARD, size - LENGTH - step * REUSE, step * REUSE)[:, None] + torch.arange(LENGTH)
    return text.gather(1, first), first


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("memory", [3, REUSE, 8])
def test_the_memory_holds_what_layers_read_of_the_part_that_goes_on_the_nearest_last(way, memory):
    model, ids = encoder(**POSITIONS[way], memory_length=memory, direction="both"), texts(LENGTH)
    encoded = model(example(ids), model.begin(ROWS))
    for kept, read in zip(encoded.carry.layers, encoded.layers, strict=False):
        wanted = torch.where(BACKWARD[:, None, None], read.flip(1), read)[:, :REUSE][:, -memory:]
        assert torch.equal(kept[:, -wanted.shape[1] :], wanted)
    assert encoded.carry.real.sum(1).tolist() == [min(memory, REUSE)] * ROWS
    assert not any(kept.requires_grad for kept in encoded.carry.layers)


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_what_is_handed_on_is_as_if_no_rest_had_been_read(way):
    """Over steps the parts that go on are a stream of shorter rows, and the rest changes none of them."""
    model, text = encoder(**POSITIONS[way], memory_length=7, direction="both"), texts(26)
    carry, alone, other = (model.begin(ROWS) for _ in range(3))
    for step in range(3):
        ids, _ = windows(text, step)
        handed = handed_on(ids)
        encoded = model(example(ids), carry)
        changed = model(example(torch.where(handed, ids, 5 + (ids + 1) % 35)), other)
        short = model(example(ids[handed].view(ROWS, REUSE), reuse=None), alone)
        states = encoded.last[handed]
        assert torch.allclose(states, short.last.flatten(0, 1), atol=1e-10)
        assert torch.allclose(states, changed.last[handed], atol=1e-10)
        carry, other, alone = encoded.carry, changed.carry, short.carry
        for one, two, three in zip(carry.layers, other.layers, alone.layers, strict=True):
            assert torch.allclose(one, two, atol=1e-10)
            assert torch.allclose(one, three, atol=1e-10)


@torch.no_grad()
def test_the_rest_reads_the_part_that_goes_on_and_what_is_remembered():
    model, text = encoder(**POSITIONS["relative"], memory_length=7, direction="both"), texts(26)
    ids, _ = windows(text, 1)
    rest = ~handed_on(ids)
    carry = model(example(windows(text, 0)[0]), model.begin(ROWS)).carry
    here = model(example(ids), carry).last[rest]
    for there in (
        model(example(torch.where(rest, ids, 5 + (ids + 1) % 35)), carry),
        model(example(ids), model.begin(ROWS)),
    ):
        assert (there.last[rest] - here).abs().amax(1).min() > 1e-6


def permuted(ids, one_in=3.0, units=None, backward=BACKWARD, reuse=REUSE):
    objective = PermutationLM(one_in=one_in, **({} if units is None else {"units": units}))
    return objective.mask_inputs(example(ids, reuse, backward), make_draws(ROWS), make_vocabulary())


@pytest.mark.parametrize("units", [None, Pieces()])
def test_each_part_has_its_share_of_targets_and_an_order_of_its_own(units):
    one = permuted(texts(LENGTH), units=units)
    handed, seen = one.inputs.cached, one.visible.pairs[:, 0]
    chosen = torch.zeros_like(handed).flatten()
    chosen[one.targets["permuted"].where] = True
    chosen = chosen.view_as(handed)
    assert chosen.sum(1).tolist() == [4] * ROWS, "as many as without parts"
    assert (chosen & ~handed).sum(1).tolist() == [(LENGTH - REUSE) // 3] * ROWS
    for row in range(ROWS):
        part, rest = handed[row], ~handed[row]
        assert not seen[row][part][:, rest].any()
        assert seen[row][rest][:, part].all(), "its targets too"
        for own in (part, rest):
            among = seen[row][chosen[row] & own][:, chosen[row] & own]
            assert (among ^ among.T | torch.eye(len(among), dtype=torch.bool)).all()
            assert not seen[row][own & ~chosen[row]][:, own & chosen[row]].any(), "context sees no target of its part"
    asked = one.queries.where
    assert torch.equal(asked.flatten()[one.targets["permuted"].queries], one.targets["permuted"].where)
    for row, column in np.argwhere((asked >= 0).numpy()):
        place = int(asked[row, column]) % LENGTH
        wanted = seen[row, place].clone()
        wanted[place] = False
        assert torch.equal(one.queries.visible[row, column], wanted)


@torch.no_grad()
def test_no_query_knows_its_answer_through_the_memory():
    """What a step asks for is changed in its window alone, and in all windows before it, where it was the rest."""
    model, text = encoder(**POSITIONS["relative"], memory_length=20, direction="both", query_stream=True), texts(26)
    ids, first = windows(text, 2)
    asked = permuted(ids)
    last = list(range(ROWS))
    rank = asked.queries.visible.sum(2).masked_fill(asked.queries.where < 0, -1).argmax(1)  # knows most of its row
    place = asked.queries.where[last, rank] % LENGTH
    ids, before = windows(text, 1)

    def changed(at):
        other = text.clone()
        other[last, at] = 5 + (text[last, at] + 1) % 35
        return other

    def answer(text):
        state, found = RecurrentState(), None
        for step in range(3):
            one = permuted(windows(text, step)[0])
            found = state.encode(model, one)
        assert isinstance(found, Encoded)
        return found.queries[last, rank]

    here = answer(text)
    assert torch.allclose(here, answer(changed(first[last, place])), atol=1e-12)
    remembered = before[last, handed_on(ids).int().argmax(1)]
    assert (here - answer(changed(remembered))).abs().amax(1).min() > 1e-6


def test_a_model_that_reads_one_side_refuses_such_rows():
    with pytest.raises(Unsupported, match="row of which a part"):
        encoder()(dataclasses.replace(example(texts(LENGTH), backward=None), visible=Visibility()))
