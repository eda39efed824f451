"""Spans whose ends depend on their starts: against the formula, against transformers, and a beam against all spans."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.tasks import TASKS, FineTuning
from lightning_modules.tasks.scores.decoding import decoded_beam, most_central
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.span_beam import SpanBeamHead, possible
from tests.toy_shapes import last_states, windows

WIDTH = 6


def head_of(starts=5, ends=5, seed=0):
    torch.manual_seed(seed)
    head = SpanBeamHead(WIDTH, starts, ends)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    return head.eval()


def states_of(example, seed=1):
    return torch.randn(*example.inputs.ids.shape, WIDTH, generator=torch.Generator().manual_seed(seed))


class _Given(nn.Module):
    """A network whose states are given."""

    def __init__(self, states):
        super().__init__()
        self.states = states

    def forward(self, *_, **__):
        return (self.states,)


@torch.no_grad()
def test_numbers_equal_those_of_transformers():
    """Its beam is of probabilities, which it calls logarithms; its mask is 1 where no answer may be."""
    head, length = head_of(starts=4, ends=3), 11
    config = transformers.XLNetConfig(
        vocab_size=10, d_model=WIDTH, n_layer=1, n_head=1, d_inner=4, start_n_top=4, end_n_top=3
    )
    theirs = transformers.XLNetForQuestionAnswering(config).eval()
    pairs = {
        "start_logits.dense": head.start, "end_logits.dense_0": head.joined, "end_logits.LayerNorm": head.norm,
        "end_logits.dense_1": head.end, "answer_class.dense_0": head.answer, "answer_class.dense_1": head.unanswered,
    }  # fmt: skip
    for name, ours in pairs.items():
        theirs.get_submodule(name).load_state_dict(ours.state_dict())
    states = torch.randn(3, length, WIDTH, generator=torch.Generator().manual_seed(4))
    theirs.transformer = _Given(states)
    segment = torch.tensor([0] * 7 + [1] * 3 + [2]).expand(3, -1).clone()
    segment = torch.where(segment == 2, 2, 1 - segment.clamp(max=1))  # a passage is the second text of our rows
    special = torch.tensor([False] * 6 + [True] + [False] * 2 + [True] * 2).expand(3, -1)
    cls, right = torch.tensor([length - 1] * 3), torch.tensor([[1, 3], [length - 1, length - 1], [4, 4]])
    tokens = Tokens(segment, special, torch.ones_like(special), torch.arange(3), {"segment": segment}, cls=cls)
    example = Example.of(tokens)
    example.targets = {name: Target(torch.arange(3), ids) for name, ids in zip(("start", "end"), right.T, strict=True)}
    outputs = head(last_states(states), example)
    masked = (~possible(tokens)).float()
    given = {"input_ids": torch.zeros(3, length, dtype=torch.long), "cls_index": cls, "return_dict": False}
    share, place, end_share, end_place, none = theirs(**given, p_mask=masked)
    places = outputs[:, :, 0].argsort(dim=1, descending=True, stable=True)[:, :4]
    assert torch.equal(places, place)
    assert torch.allclose(outputs[:, :, 0].softmax(1).gather(1, places), share, atol=1e-6)
    best = outputs[:, :, 3:].topk(3, dim=1)
    assert torch.equal(best.indices.flatten(1), end_place)
    assert torch.allclose(best.values.exp().flatten(1), end_share, atol=1e-6)
    assert torch.allclose(outputs[:, 0, 2], none, atol=1e-6)
    impossible = (right[:, 0] == cls).float()
    first, last = right.clone().T
    (loss, *_) = theirs(**given, p_mask=masked, start_positions=first, end_positions=last, is_impossible=impossible)
    # that there is no answer is asked of the right start there, which tells it, and of the expected one by Yang et al.
    told = theirs.answer_class(states, start_positions=first, cls_index=cls)
    asked = F.binary_cross_entropy_with_logits
    loss += 0.5 * (asked(none, impossible) - asked(told, impossible))
    assert float(head.loss(outputs, example)) / 3 == pytest.approx(float(loss), rel=1e-5)


@torch.no_grad()
def test_what_says_that_there_is_no_answer_is_not_told():
    """The right start is [CLS] where there is none."""
    inputs, head = windows(2), head_of().train()
    example = inputs.batch(np.arange(len(inputs)))
    states = states_of(example)
    before = head(last_states(states), example)
    start = example.targets["start"]
    example.targets["start"] = Target(start.where, torch.full_like(start.ids, 4))
    after = head(last_states(states), example)
    assert torch.equal(before[:, :, 2], after[:, :, 2])
    assert not torch.equal(before[:, :, 1], after[:, :, 1]), "ends are told the start"


def outputs_of(inputs, head, seed=1):
    example = inputs.batch(np.arange(len(inputs)))
    with torch.no_grad():
        return [row.numpy() for row in head.by_item(head(last_states(states_of(example, seed)), example), example)]


def exhaustive(inputs, outputs, most):
    """Each question's best span by all starts and ends of all its windows; columns hold every start's ends."""
    texts = []
    for number in range(len(inputs.examples)):
        own = range(*inputs.bounds[number : number + 2].tolist())
        central, found = most_central(inputs.begins[list(own)], inputs.ends[list(own)]), {}
        for window, is_central in zip(own, central, strict=True):
            columns, offset = torch.from_numpy(outputs[window]), int(inputs.offsets[window])
            log_start = columns[:, 0].log_softmax(0)
            order = columns[:, 0].argsort(descending=True, stable=True).tolist()
            for first in range(len(is_central)):
                for last in range(first, min(first + most, len(is_central))):
                    if is_central[first]:
                        ends = columns[:, 3 + order.index(first + offset)]
                        score = float(log_start[first + offset] + ends[last + offset])
                        found[score] = int(inputs.begins[window]) + first, int(inputs.begins[window]) + last
        texts.append(inputs.text(number, *found[max(found)]))
    return texts


@pytest.mark.parametrize("most", [1, 3, 30])
def test_a_beam_of_full_width_finds_the_best_of_all_spans(most):
    inputs, changed = windows(2), 0
    for seed in range(12):
        head = head_of(starts=64, ends=64, seed=seed)
        outputs = outputs_of(inputs, head, seed)
        found = decoded_beam(outputs, inputs, most)
        assert found.texts == exhaustive(inputs, outputs, most)
        narrow = head_of(starts=1, ends=1, seed=seed)
        changed += decoded_beam(outputs_of(inputs, narrow, seed), inputs, most).texts != found.texts
        for number in range(2):
            own = range(*inputs.bounds[number : number + 2].tolist())
            assert found.nulls[number] == pytest.approx(min(outputs[window][0, 2] for window in own))
    assert changed, "a narrow beam misses some"


def test_a_beam_is_of_spans_alone():
    plain, beam = FineTuning(), FineTuning().but(span_beam={"starts": 7, "ends": 2})
    assert "span_beam" not in plain.essence()
    assert not isinstance(Spans().head(WIDTH, plain), SpanBeamHead)
    made = Spans().head(WIDTH, beam)
    assert (made.starts, made.ends) == (7, 2)
    assert TASKS["rte"].shape.settled(beam).span_beam is None
