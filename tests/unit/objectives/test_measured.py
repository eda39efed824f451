"""Loss and accuracy on held-out text: a few rows of logits at a time give what all at once do."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import Target
from lightning_modules.objectives import vocabulary_head
from lightning_modules.objectives.vocabulary_head import measured

WORDS = 50


@pytest.mark.parametrize("count", [0, 1, 7, 8, 61])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_rows_at_a_time_are_all_of_them(monkeypatch, count, dtype):
    """In half precision several words are often equally probable: the first of them counts as the guess."""
    noise = torch.Generator().manual_seed(count)
    states, table = torch.randn(count, 6, generator=noise), torch.randn(WORDS, 6, generator=noise)
    logits = (4 * states @ table.T).round().to(dtype)
    best = logits.argmax(1)
    ties = (logits == logits.amax(1, keepdim=True)) & (torch.arange(WORDS) > best[:, None])
    ids = torch.where(torch.arange(count) % 2 == 0, best, ties.int().argmax(1))
    monkeypatch.setattr(vocabulary_head, "_CACHED", 8 * WORDS)
    sizes, target = [], Target(torch.arange(count), ids)

    def head(some):
        sizes.append(len(some))
        return (4 * some @ table.T).round().to(dtype)

    found = measured(head, states, target, WORDS, "next_")
    assert found["next_loss"][0] == pytest.approx(
        float(F.cross_entropy(logits.float(), ids, reduction="sum")), rel=1e-5
    )
    assert found["next_accuracy"][0] == (best == ids).sum()
    assert found["next_loss"][1] == found["next_accuracy"][1] == count
    assert max(sizes, default=0) <= 8
    if count == 61:
        assert ties.any()
