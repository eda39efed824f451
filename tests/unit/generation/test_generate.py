"""Generated text: greedy tokens are the most probable, draws follow their closed forms, a carry changes no token."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.draws import Draws
from lightning_modules.generation import generate as module
from lightning_modules.generation.generate import GREEDY, Sampling, drawn, generate, probabilities
from lightning_modules.generation.scoring import hits
from tests.language_models import model
from tests.messages import names, naming

FORMS = {
    "learned": {},
    "learned, a table as long as a row": {"model.max_positions": 32},
    "sinusoidal": {"model.positions": "sinusoidal"},
    "rotary, pre-norm": {"model.positions": "rotary", "model.norm": "pre"},
    "sided bias": {"model.positions": "sided_linear_bias"},
    "linear bias, shared": {"model.positions": "linear_bias", "model.sharing": "all"},
}
CHANCES = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = CHANCES.log()[None]


def prompts_of(lm, *lengths):
    noise = np.random.default_rng(1)
    return [[*lm.start, *noise.integers(5, 64, length - 1).tolist()] for length in lengths]


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (Sampling(), [0.1, 0.4, 0.05, 0.25, 0.2]),
        (GREEDY, [0, 1, 0, 0, 0]),
        (Sampling(top_k=3), [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        (Sampling(top_p=0.7), [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        (Sampling(top_p=1e-9), [0, 1, 0, 0, 0]),
        (Sampling(top_k=3, top_p=0.7), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),  # 0.4 + 0.25 are 0.76 of the three
        (Sampling(temperature=0.5), [0.01, 0.16, 0.0025, 0.0625, 0.04]),
        (Sampling(temperature=0.5, top_k=2), [0, 0.16, 0, 0.0625, 0]),
    ],
)
def test_what_is_drawn_from(sampling, wanted):
    wanted = np.array(wanted) / np.sum(wanted)
    found = probabilities(LOGITS.expand(2, -1), sampling)
    assert found.dtype == torch.float64
    for row in found:
        assert row.numpy() == pytest.approx(wanted, abs=1e-7)


def test_equal_tokens_come_in_their_order():
    same = torch.zeros(1, 8)
    assert probabilities(same, Sampling(top_k=3))[0].tolist() == pytest.approx([1 / 3] * 3 + [0] * 5)
    assert probabilities(same, Sampling(top_p=0.3))[0].tolist() == pytest.approx([1 / 3] * 3 + [0] * 5)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=3), Sampling(top_p=0.6), Sampling(2.0, 4, 0.8)])
def test_draws_are_as_frequent_as_they_are_probable(sampling):
    count, chances = 40_000, probabilities(LOGITS, sampling)
    one = np.arange(count)
    noise = torch.from_numpy(Draws(3, one, one, one, "test").uniform("x", 1)[:, 0])
    frequencies = torch.bincount(drawn(chances.expand(count, -1), noise), minlength=5) / count
    for frequency, chance in zip(frequencies.tolist(), chances[0].tolist(), strict=True):
        assert abs(frequency - chance) <= 4 * math.sqrt(chance * (1 - chance) / count)


def test_nothing_improbable_is_drawn_at_the_edges():
    chances = torch.tensor([[0, 0.5, 0, 0.5, 0]], dtype=torch.float64)
    for noise, token in ((0.0, 1), (0.5 - 1e-12, 1), (0.5, 3), (1 - 2**-53, 3)):
        assert drawn(chances, torch.tensor([noise], dtype=torch.float64)).tolist() == [token]
    thirds = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    assert drawn(torch.cat([thirds, torch.zeros(1, 2)], 1), torch.tensor([1 - 2**-53])).tolist() == [2]


@pytest.mark.parametrize("form", FORMS)
def test_a_carry_changes_no_token(tmp_path, form):
    lm = dataclasses.replace(model(tmp_path, **FORMS[form]), end=None)
    prompts = prompts_of(lm, 7, 1, 19, 7, 30)
    for sampling in (GREEDY, Sampling(0.8, 20, 0.9)):
        fast, slow = (generate(lm, prompts, sampling, new_tokens=12, seed=2, cached=cached) for cached in (True, False))
        assert fast == slow
        assert [len(written.ids) for written in fast] == [12, 12, 12, 12, 2]
        assert [written.ended for written in fast] == ["tokens"] * 4 + ["positions"]


def test_noise_is_of_the_seed_and_the_prompt_alone(tmp_path, monkeypatch):
    lm, sampling = model(tmp_path, **{"model.init_std": 0.05}), Sampling()
    prompts = prompts_of(lm, 4, 9, 4, 9)
    found = generate(lm, prompts, sampling, new_tokens=8, seed=1)
    assert found == generate(lm, prompts, sampling, new_tokens=8, seed=1)
    assert found != generate(lm, prompts, sampling, new_tokens=8, seed=2)
    assert (
        generate(lm, [prompts[0]] * 2, sampling, new_tokens=8)[0]
        != generate(lm, [prompts[0]] * 2, sampling, new_tokens=8)[1]
    ), "equal prompts go on in different ways"
    longer = generate(lm, prompts, sampling, new_tokens=12, seed=1)
    assert [written.ids[:8] for written in longer] == [written.ids for written in found]
    monkeypatch.setattr(module, "_BATCH_TOKENS", 1)
    told = []
    assert generate(lm, prompts, sampling, new_tokens=8, seed=1, on_progress=lambda *at: told.append(at)) == found
    assert told[-1] == (32, 32)
    assert told == sorted(told)


def test_a_text_ends_with_the_token_of_the_end(tmp_path):
    lm = model(tmp_path)
    prompts = prompts_of(lm, 7, 3)
    first, second = (written.ids for written in generate(lm, prompts, new_tokens=10))
    end = first[4]
    for cached in (True, False):
        ended = dataclasses.replace(lm, end=end)
        one, other = generate(ended, prompts, new_tokens=10, cached=cached)
        assert one == (first[: first.index(end)], "end")
        assert other.ids == (second[: second.index(end)] if end in second else second)
    assert {written.ended for written in generate(dataclasses.replace(lm, end=None), prompts, new_tokens=10)} == {
        "tokens"
    }


def test_a_model_without_a_carry_writes_without_one(tmp_path):
    lm = model(tmp_path, **{"objectives.lm.direction": "two_way", "model.direction": "two_way", "model.num_layers": 4})
    prompts = prompts_of(lm, 7, 3)
    found = generate(lm, prompts, new_tokens=6)
    assert all(best.all() for best in hits(lm, prompts, [written.ids for written in found]))
    with pytest.raises(ValueError, match=naming("two_way", "no carry")):
        generate(lm, prompts, new_tokens=6, cached=True)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(top_p=0.0), ("top_p", "0.0")),
        (Sampling(top_p=float("nan")), ("top_p", "nan")),
        (Sampling(top_k=0), ("top_k", "0")),
        (Sampling(-1.0), ("temperature", "-1.0")),
        (Sampling(0.0, 5), ("temperature", "top_k")),
    ],
)
def test_impossible_choices_are_refused(tmp_path, sampling, words):
    lm = model(tmp_path)
    with pytest.raises(ConfigError, match=naming(*words)):
        generate(lm, prompts_of(lm, 3), sampling)


def test_prompts_without_room_are_refused_by_number(tmp_path):
    lm = model(tmp_path)
    with pytest.raises(ConfigError) as refused:
        generate(lm, [*prompts_of(lm, 3, 32, 40), []], new_tokens=0)
    said = "\n".join(map(str, refused.value.problems))
    assert names(said, "prompt 2", "32 tokens", "prompt 3", "40 tokens", "32 positions", "prompt 4", "new_tokens 0")
    assert "prompt 1" not in said
