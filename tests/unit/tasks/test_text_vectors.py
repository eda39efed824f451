"""What stands for a text: exact values, what padding and neighbours may not change, and where gradients go."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Tokens
from lightning_modules.tasks.reading.text_vectors import READERS

CLS, SEP, PAD = 2, 3, 0


def rows(*lengths, longest=0):
    """Rows ``[CLS] a [SEP] b [SEP]`` of texts of these lengths; of a single text without a second length."""
    ids, segments = [], []
    for first, *second in lengths:
        ids.append([CLS, *[9] * first, SEP] + ([*[9] * second[0], SEP] if second else []))
        segments.append([0] * (first + 2) + ([1] * (second[0] + 1) if second else []))
    longest = max(longest, *map(len, ids))
    real = torch.tensor([[n < len(row) for n in range(longest)] for row in ids])
    padded = torch.tensor([row + [PAD] * (longest - len(row)) for row in ids])
    segment = torch.tensor([row + [0] * (longest - len(row)) for row in segments])
    special = (padded == CLS) | (padded == SEP) | (padded == PAD)
    return Tokens(padded, special, real, torch.arange(len(ids)), {"segment": segment})


def states(tokens, width=4, seed=0):
    """Random states; those of padding are no numbers, so that none may enter."""
    hidden = torch.randn(*tokens.ids.shape, width, generator=torch.Generator().manual_seed(seed))
    return hidden.masked_fill(~tokens.real[..., None], torch.nan)


#                            [CLS]    a        b        [SEP]   c         [SEP]   padding
HIDDEN = torch.tensor([[[1.0, 8.0], [2.0, 6.0], [4.0, -2.0], [6.0, 2.0], [0.0, 2.0], [2.0, 5.0], [99.0, 99.0]]])


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ("first", [1, 8]),
        ("last", [2, 5]),
        ("ends", [2, 8]),
        ("mean", [15 / 6, 21 / 6]),
        ("max", [6, 8]),
        ("concat", [2, 5, 6, 8, 15 / 6, 21 / 6]),
        ("mean_per_text", [4, 2, 1, 3.5, 3, 1.5, 4, 7]),  # means of a, b, [SEP] and of c, [SEP]
    ],
)
def test_values_are_those_by_hand(reader, expected):
    found = READERS[reader].read(HIDDEN, rows((2, 1), longest=7))
    assert found[0].tolist() == pytest.approx(expected)
    assert found.shape == (1, 2 * READERS[reader].widths)


LENGTHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)


@given(LENGTHS, st.integers(0, 5), st.sampled_from(sorted(READERS)))
def test_a_vector_follows_from_the_row_alone(lengths, more, reader):
    """Neither longer padding nor other rows change it; states of padding may be anything."""
    tokens = rows(*lengths, longest=more)
    hidden = states(tokens)
    together = READERS[reader].read(hidden, tokens)
    for number, pair in enumerate(lengths):
        alone = rows(pair)
        size = alone.ids.shape[1]
        found = READERS[reader].read(hidden[number : number + 1, :size], alone)
        assert torch.allclose(found[0], together[number], atol=1e-6)
    assert torch.isfinite(together).all()


@pytest.mark.parametrize("reader", sorted(READERS))
def test_gradients_reach_what_is_read_and_no_padding(reader):
    tokens = rows((3, 2), (1, 1))
    hidden = states(tokens).requires_grad_()
    READERS[reader].read(hidden, tokens).square().sum().backward()
    reached = hidden.grad.abs().sum(-1) > 0
    assert torch.isfinite(hidden.grad).all()
    assert not (reached & ~tokens.real).any()


def test_a_text_cut_to_nothing_is_read_by_its_separator():
    tokens = rows((0, 3))
    hidden = states(tokens)
    found = READERS["mean_per_text"].read(hidden, tokens)
    assert torch.allclose(found[0, :4], hidden[0, 1])


def test_means_of_half_precision_states_are_taken_in_full_precision():
    tokens = rows((200, 100))
    hidden = torch.full((*tokens.ids.shape, 2), 1.0, dtype=torch.bfloat16)
    hidden[:, 1:101] = 1.0078125  # the next number of that format
    found = READERS["mean_per_text"].read(hidden, tokens)
    assert found.dtype == torch.float32
    assert found[0, 0].item() == pytest.approx(1 + 100 / 201 / 128, abs=1e-6)
    assert found[0, 4].item() == pytest.approx(100 / 201 / 128, abs=1e-6), "a difference far below its rounding"
