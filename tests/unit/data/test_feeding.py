"""What feeds a device: batches made ahead and in few sizes, equal to those that are made in their place."""

import itertools
import threading

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example, Target, mapped, moved_at_once
from lightning_modules.data.order.batches import Prefetch, made_ahead
from lightning_modules.tasks.loader import Batches, InOrder
from tests.conftest import make_tokens
from tests.end_to_end.test_training import RESUMED


def tensors(batch):
    found = []
    mapped(batch, lambda tensor: found.append(tensor) or tensor)
    return found


def equal(first, second):
    return all(torch.equal(*pair) for pair in zip(tensors(first), tensors(second), strict=True))


class Items:
    """Items of a task: rows of 2 to 37 positions."""

    examples = ()

    def __init__(self):
        self.sizes = 2 + np.random.default_rng(0).integers(36, size=(50, 1))

    def __len__(self):
        return len(self.sizes)

    def batch(self, indices):
        sizes = self.sizes[indices]
        tokens = make_tokens(rows=len(indices), length=int(sizes.max()))
        tokens.real = torch.from_numpy(np.arange(sizes.max()) < sizes)
        tokens.sample = torch.as_tensor(indices)
        example = Example.of(tokens)
        example.targets["label"] = Target(torch.arange(len(indices)) * int(sizes.max()), tokens.sample % 2)
        return example


def of_task(prefetch):
    return Batches(Items(), 0, 2, 8, prefetch=prefetch)


LOADED = RESUMED | {
    "steps that are sorted": RESUMED["steps by tokens"] | {"training.bucket_steps": 3},
    "a curriculum by tokens": RESUMED["a length curriculum"] | RESUMED["steps by tokens"],
    "drawn lengths": RESUMED["a stream that is carried"] | {"format.lengths": "drawn", "training.steps": 30},
    "a part of the text": {"format.share": 0.3, "training.batch_size": 5},
}


@pytest.fixture(params=["task", *LOADED])
def loader(request, tiny):
    """Makes the training batches of a fine-tuning or a pretraining, fed in some way."""
    if request.param == "task":
        return of_task
    data = tiny.but(**LOADED[request.param]).data_module(0)

    def made(prefetch):
        data.prefetch = prefetch
        return data.train_dataloader()

    return made


def test_batches_made_ahead_are_those_made_in_place_wherever_a_training_resumes(loader):
    plain = loader(Prefetch())
    states, expected = [plain.state_dict()], []
    for example in plain:
        expected.append(example)
        states.append(plain.state_dict())
    for position, state in enumerate(states[:-1]):
        resumed, told = loader(Prefetch(ahead=3)), []
        resumed.load_state_dict(state)
        for number, example in enumerate(resumed):
            assert equal(example, expected[position + number])
            told.append(resumed.state_dict())
        assert told == states[position + 1 :]


def test_what_is_scored_is_the_same_made_ahead_and_in_rounded_sizes():
    plain, ahead, rounded = (list(InOrder(Items(), 8, way)) for way in (Prefetch(), Prefetch(2), Prefetch(2, 16)))
    assert all(map(equal, plain, ahead))
    for first, second in zip(plain, rounded, strict=True):
        length = first.inputs.ids.shape[1]
        assert torch.equal(second.inputs.ids[:, :length], first.inputs.ids)
        assert torch.equal(second.inputs.real.sum(1), first.inputs.real.sum(1))


def test_one_copy_moves_all_that_a_batch_holds(loader):
    for example in loader(Prefetch()):
        moved = moved_at_once(example, "cpu")
        assert equal(moved, example)
        assert [tensor.dtype for tensor in tensors(moved)] == [tensor.dtype for tensor in tensors(example)]
        assert moved.counts == example.counts


def test_an_error_comes_in_the_place_of_its_item():
    def items():
        yield from range(5)
        raise ValueError("the sixth")

    found = []
    with pytest.raises(ValueError, match="the sixth"):
        found.extend(made_ahead(items(), 3))
    assert found == [0, 1, 2, 3, 4]


def test_no_more_is_made_than_was_asked_and_nothing_stays_when_it_is_left():
    made = []
    items = made_ahead((made.append(n) or n for n in itertools.count()), 3)
    before = threading.active_count()
    assert [next(items) for _ in range(4)] == [0, 1, 2, 3]
    items.close()
    assert 4 <= len(made) <= 8
    assert threading.active_count() == before


def shapes(loader):
    """Sizes of the rows, and of what is read of them, in a training."""
    read = ((each.inputs.ids.shape, each.output_positions) for each in loader)
    return {(*shape, *(() if positions is None else positions.shape)) for shape, positions in read}


def test_200_steps_of_a_fine_tuning_have_few_shapes():
    plain, few = (shapes(Batches(Items(), 0, 30, 8, 200, way)) for way in (Prefetch(), Prefetch(multiple=16)))
    assert len(few) <= 6 < len(plain)
    assert {length for _, length in few} <= {16, 32, int(Items().sizes.max())}


def test_200_steps_of_a_pretraining_have_few_shapes(tiny):
    long = {"format.sequence_length": 64, "model.max_positions": 64, "training.steps": 200, "training.batch_size": 2}
    data, found = tiny.but(**long).data_module(0), {}
    for multiple in (1, 16):
        data.prefetch = Prefetch(multiple=multiple)
        found[multiple] = shapes(data.train_dataloader())
    assert len(found[16]) <= 3 < len(found[1])


BY_TOKENS = {"training.batch_by": "tokens", "format.break_mode": "documents", "training.micro_batch_size": 2}
PERMUTED = {
    "model.positions": "relative", "model.query_stream": True, "model.segment_types": 0, "objectives.mlm": None,
    "objectives.plm.one_in": 4.0,
}  # fmt: skip


def terms(module, example):
    return module.objectives.loss(module.heads, module.backbone(example), example)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        PERMUTED,
        {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"},
    ],
)
def test_a_step_of_rounded_sizes_has_the_same_loss(tiny, changes):
    still = {f"model.{name}": 0.0 for name in ("dropout", "attention_dropout", "embedding_dropout")}
    system = tiny.but(**BY_TOKENS, **changes, **still, **{"format.sequence_length": 32, "model.max_positions": 32})
    module, data = system.build(0), system.data_module(0)
    wider, losses = 0, []
    for example in data.train_dataloader():
        rounded = example.widened(5, 32)
        wider += rounded.inputs.ids.shape[1] > example.inputs.ids.shape[1]
        losses.append([sum(term[0].item() for term in terms(module, each).values()) for each in (example, rounded)])
    assert wider, "nothing is widened, so nothing is tested"
    plain, found = zip(*losses, strict=True)
    assert found == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("name", [name for name in RESUMED if "stream" in name or "memory" in name])
def test_rows_that_go_on_keep_their_length(tiny, name):
    for example in tiny.but(**RESUMED[name]).data_module(0).train_dataloader():
        assert example.widened(7, 999).inputs.ids.shape == example.inputs.ids.shape


def test_rows_grow_no_longer_than_the_longest_of_all():
    example = Items().batch(np.arange(8))
    length = example.inputs.ids.shape[1]
    assert example.widened(16, length).inputs.ids.shape[1] == length
    assert example.widened(1, 99) is example
