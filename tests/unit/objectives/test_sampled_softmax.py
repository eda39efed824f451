"""A sampled softmax against the exact one."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.batch import Encoded, Size, Target
from lightning_modules.objectives.sampled_softmax import SampledSoftmax
from lightning_modules.objectives.vocabulary_head import VocabularyHead

WORDS, WIDTH, COUNT = 60, 8, 12


@pytest.fixture
def case():
    torch.manual_seed(0)
    states = torch.randn(COUNT, WIDTH, dtype=torch.double, requires_grad=True)
    table = torch.randn(WORDS, WIDTH, dtype=torch.double, requires_grad=True)
    bias, ids = torch.randn(WORDS, dtype=torch.double), torch.randint(WORDS, (COUNT,))
    return states, table, bias, ids


def exact(states, table, bias, ids):
    return F.cross_entropy(states @ table.T + bias, ids, reduction="sum")


def test_with_all_words_it_is_the_exact_softmax(case):
    states, table, bias, ids = case
    sampled = SampledSoftmax(WORDS, WORDS).summed_loss(states, table, bias, ids)
    full = exact(*case)
    assert torch.allclose(sampled.double(), full, rtol=1e-5)
    for one, other in zip(*(torch.autograd.grad(loss, [states, table]) for loss in (sampled, full)), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("negatives", [5, 20, 45])
def test_a_sample_has_the_expected_words_frequent_ones_more_often(negatives):
    chances = SampledSoftmax(WORDS, negatives).chances
    assert float(chances.sum()) == pytest.approx(negatives, rel=1e-4)
    assert (chances[1:] <= chances[:-1]).all()
    assert 0 < float(chances.min()) < float(chances.max()) <= 1


@torch.no_grad()
def test_the_expected_sum_over_words_is_the_exact_one(case):
    """exp(loss + right logit) is the sum over the sample, whose mean over many samples is that over all words."""
    states, table, bias, ids = case
    softmax = SampledSoftmax(WORDS, 30)
    one = [part[:1] for part in (states, ids)]
    right = float(states[0] @ table[ids[0]] + bias[ids[0]])
    sums = torch.tensor([float(softmax.summed_loss(one[0], table, bias, one[1])) + right for _ in range(4000)]).exp()
    full = (states[0] @ table.T + bias).exp().sum()
    spread = float(sums.std() / len(sums) ** 0.5)
    assert abs(float(sums.mean() - full)) < 4 * spread
    assert spread < 0.05 * float(full), "else the comparison says nothing"


def test_the_right_word_is_never_one_of_its_negatives(case, monkeypatch):
    """Every word is drawn; the right one still counts once, although its chance to be drawn is below 1."""
    states, table, bias, ids = case
    softmax = SampledSoftmax(WORDS, 40)
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    found = softmax.summed_loss(states, table, bias, ids)
    logits = states @ table.T + bias - softmax.chances.double().log()
    logits[torch.arange(COUNT), ids] += softmax.chances[ids].double().log()
    assert torch.allclose(found.double(), F.cross_entropy(logits, ids, reduction="sum"), rtol=1e-5)


def test_a_head_samples_while_it_trains_and_is_exact_otherwise(case):
    states, _, _, ids = case
    torch.manual_seed(0)
    head = VocabularyHead(Size(WIDTH, WIDTH, WORDS), "gelu", 1e-12, transform="none", negatives=5, tied=False)
    encoded = Encoded([], states.float()[None], torch.zeros(0, WIDTH))
    target = Target(torch.arange(COUNT), ids)
    losses = [float(head.summed_loss(states.float(), encoded, target).detach()) for _ in range(3)]
    assert len(set(losses)) == 3
    head.eval()
    with torch.no_grad():
        full = F.cross_entropy(head(states.float(), encoded), ids, reduction="sum")
        assert float(head.summed_loss(states.float(), encoded, target)) == pytest.approx(float(full), rel=1e-5)
