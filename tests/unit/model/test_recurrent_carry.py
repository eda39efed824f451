"""LSTM states carried from part to part of a text: as at once, however rows are padded; without gradient."""

import dataclasses

import numpy as np
import pytest
import torch

from lightning_modules.batch import BEGIN, Example, Unsupported
from lightning_modules.generation.generate import GREEDY, Sampling, generate
from lightning_modules.generation.language_model import of_training
from lightning_modules.generation.scoring import continuations, hits, log_probabilities
from lightning_modules.model import Recurrent
from lightning_modules.model.cache import filled, reset, tensors
from tests.language_models import encoder as encoder_of
from tests.language_models import system
from tests.messages import naming
from tests.unit.model.test_carry import assert_parts_are_the_whole, batch, texts

CPU = torch.device("cpu")
LSTM = {"model.kind": "lstm", "model.num_layers": 2, "model.hidden_size": 32, "model.init_std": 2.0}


def encoder(**changes):
    torch.manual_seed(0)
    return Recurrent(num_layers=2, hidden_size=12, embedding_size=8, init_std=0.5).but(**changes).build(50).eval()


def test_a_text_in_parts_is_the_text_at_once():
    for begin in (BEGIN, encoder().begin(4, CPU)):
        assert_parts_are_the_whole(encoder(), begin, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right", "both", "a row of padding"])
def test_padding_is_not_carried(side):
    """Rows of 1 to 9 tokens among padding: what follows them reads on from the last token of each."""
    model, ids, more = encoder(), texts(10), texts(5)
    real = torch.zeros(4, 10, dtype=torch.bool)
    for row, size in enumerate((9, 4, 7, 1)):
        start = {"left": 10 - size, "right": 0}.get(side, (10 - size) // 2)
        real[row, start : start + size] = True
    if side == "a row of padding":
        real[3] = False
    first = model(batch(ids, real), BEGIN)
    then = model(batch(more), first.carry)
    for row in range(4):
        alone = ids[row : row + 1, real[row]]
        whole = model(batch(torch.cat([alone, more[row : row + 1]], 1))).last[0]
        assert torch.allclose(first.last[row, real[row]], whole[: alone.shape[1]], atol=1e-6)
        assert torch.allclose(then.last[row], whole[alone.shape[1] :], atol=1e-6)
    assert torch.allclose(model(batch(ids, real)).last, first.last, atol=1e-6)


def test_no_gradient_goes_into_a_carry():
    model, ids = encoder(), texts()
    first = model(batch(ids[:, :10]), BEGIN)
    assert not any(held.requires_grad for held in tensors(first.carry))
    model(batch(ids[:, 10:]), first.carry).last.square().sum().backward()
    read = model.embeddings.word.weight.grad.abs().sum(1) > 0
    assert set(read.nonzero()[:, 0].tolist()) == set(ids[:, 10:].unique().tolist()), "earlier tokens have none"


@torch.no_grad()
def test_rows_that_start_anew_are_as_at_the_beginning():
    model, ids = encoder(), texts()
    carry = model(batch(ids[:, :10]), BEGIN).carry
    anew = torch.tensor([True, False, False, True])
    states, fresh = (model(batch(ids[:, 10:]), each).last for each in (reset(carry, anew), BEGIN))
    gone_on = model(batch(ids[:, 10:]), carry).last
    assert torch.equal(states[anew], fresh[anew])
    assert torch.equal(states[~anew], gone_on[~anew])
    assert not torch.allclose(fresh[~anew], gone_on[~anew], atol=1e-3)
    assert all(torch.equal(*pair) for pair in zip(tensors(filled(model.begin(4, CPU), tensors(carry))), tensors(carry)))


@pytest.mark.parametrize("direction", ["right_to_left", "two_way"])
def test_a_model_that_does_not_read_from_the_left_has_no_carry(direction):
    model = encoder(direction=direction)
    assert not model.carries
    assert model.begin(4, CPU) is None
    with pytest.raises(Unsupported, match=naming(direction, "no carry")):
        model(Example.of(batch(texts()).inputs), BEGIN)


def test_a_carry_of_other_rows_or_layers_is_refused():
    model, ids = encoder(), texts()
    for carry in (model.begin(3, CPU), encoder(num_layers=1).begin(4, CPU)):
        with pytest.raises(Unsupported, match=naming("rows", "layers")):
            model(batch(ids), carry)


def test_it_writes_and_scores_from_a_carry(tmp_path):
    """Prompts of a batch are padded on the left; tokens and log-probabilities are those of each text alone."""
    chosen = system().but(**LSTM)
    lm = of_training(chosen.build(0), chosen, encoder_of(tmp_path, chosen.data.tokenizer))
    assert lm.backbone.carries
    prompts = [lm.prompt("The water is transparent"), lm.prompt("Winds"), lm.prompt("Her brother plays chess with the")]
    lm = dataclasses.replace(lm, end=None)
    for sampling in (GREEDY, Sampling(0.8, 20, 0.9)):
        fast, slow = (generate(lm, prompts, sampling, new_tokens=8, seed=2, cached=cached) for cached in (True, False))
        assert fast == slow
    found = generate(lm, prompts, new_tokens=6)
    options = [written.ids for written in found]
    assert all(best.all() for best in hits(lm, prompts, options))
    together, alone = (continuations(lm, prompts, options, batch_tokens=size) for size in (4096, 1))  # batches
    for one, other, prompt, option in zip(together, alone, prompts, options, strict=True):
        assert np.allclose(one, other, atol=1e-4)
        assert np.allclose(log_probabilities(lm, [[*prompt, *option]])[0][len(prompt) - 1 :], one, atol=1e-4)
