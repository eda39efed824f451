"""Probabilities of rows and continuations: parts sum to the whole; padding, batches and windows change no number."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.generation import scoring
from lightning_modules.generation.scoring import (
    SCORES,
    Windows,
    check_predicts_next,
    continuations,
    hits,
    log_probabilities,
    scored,
    split,
)
from lightning_modules.systems import SYSTEMS
from tests.language_models import model, system
from tests.messages import naming

TEXT = "The strong winds tonight are near the old van, and the water is transparent."
BYTES = Tokenizer(kind="byte_bpe", vocab_size=270)
KINDS = {
    "wordpiece": {},
    "byte_bpe": {"data.tokenizer.kind": "byte_bpe", "data.tokenizer.vocab_size": 300},
    "unigram": {"data.tokenizer.kind": "unigram", "data.tokenizer.vocab_size": 64},
}


@pytest.fixture(params=KINDS)
def any_model(request, tmp_path):
    return model(tmp_path, **KINDS[request.param], **{"format.sequence_length": 64})


@pytest.fixture
def tiny_model(tmp_path):
    return model(tmp_path)


def rows_of(lm, *lengths):
    noise = np.random.default_rng(0)
    return [[*lm.start, *noise.integers(5, 64, length - 1).tolist()] for length in lengths]


def alone(lm, row):
    """The log-probabilities of one row from the softmax of all its logits, without batches."""
    ids = torch.tensor([row])
    with torch.no_grad():
        encoded = lm.backbone(lm.example(ids, torch.ones_like(ids, dtype=torch.bool)))
        logits = lm.logits(encoded, torch.arange(len(row) - 1)).double()
    return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].numpy()


def test_rows_in_batches_are_as_each_alone(tiny_model):
    rows = rows_of(tiny_model, 9, 2, 32, 5, 17, 17)
    for batch_tokens in (1, 40, 4096):
        found = log_probabilities(tiny_model, rows, batch_tokens=batch_tokens)
        for row, own in zip(rows, found, strict=True):
            assert own.dtype == np.float64
            assert own == pytest.approx(alone(tiny_model, row), rel=1e-5, abs=1e-6)
    assert [len(own) for own in log_probabilities(tiny_model, [rows[0], list(tiny_model.start)])] == [8, 0]
    assert log_probabilities(tiny_model, []) == []


def test_logits_in_parts_are_those_at_once(tiny_model, monkeypatch):
    rows = rows_of(tiny_model, 9, 30)
    whole = log_probabilities(tiny_model, rows)
    monkeypatch.setattr(scoring, "_LOGITS", 200)
    for one, other in zip(whole, log_probabilities(tiny_model, rows), strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_the_parts_of_a_text_sum_to_the_whole(any_model):
    """Wherever a text is cut between tokens, its parts' conditional log-probabilities sum to its log-likelihood."""
    ids = [*any_model.start, *any_model.encode(TEXT)]
    assert len(ids) <= any_model.max_positions
    (whole,) = log_probabilities(any_model, [ids])
    for cuts in itertools.combinations(range(2, len(ids), 3), 2):
        edges = [1, *cuts, len(ids)]
        parts = list(itertools.pairwise(edges))
        found = continuations(any_model, [ids[:a] for a, _ in parts], [ids[a:b] for a, b in parts])
        assert sum(float(own.sum()) for own in found) == pytest.approx(float(whole.sum()), rel=1e-5)


def test_prompt_and_option_are_the_pieces_of_the_text(any_model):
    for prompt, option, joined in (
        ("The water is", "transparent", "The water is transparent"),
        ("The water is", " transparent", "The water is transparent"),
        ("The water is\n", "\n transparent", "The water is transparent"),
        ("The water is", ", and", "The water is, and"),
        ("", "The water", "The water"),
    ):
        before, after = split(any_model, prompt, option)
        assert [*before, *after] == [*any_model.start, *any_model.encode(joined)]
        assert before == [*any_model.start, *any_model.encode(prompt)]
        assert any_model.decode(after) == option.strip().lower()


def test_a_token_of_both_belongs_to_the_option(tmp_path):
    """A piece that holds the end of the prompt is predicted with the option, and nothing is predicted twice."""
    lm = model(tmp_path, **KINDS["byte_bpe"])
    (tmp_path / "dots.json").write_text(train(BYTES, ["wait... there... so..."] * 40).to_str())
    lm = dataclasses.replace(lm, encoder=Encoder(tmp_path / "dots.json", "byte_bpe"))
    (start,), whole = lm.start, lm.encode("so wait...")
    assert lm.encode("so wait.") != whole[:-1], "the dots are one piece"
    assert split(lm, "so wait.", "..") == ([start, *whole[:-1]], whole[-1:])
    assert split(lm, "so wait", "...") == ([start, *whole[:-1]], whole[-1:])


def test_scores_are_what_they_say(tiny_model):
    prompts, options = (
        ["The water is", "Strong winds"],
        [["transparent", "a van"], ["tonight", "are transparent water"]],
    )
    found = scored(tiny_model, prompts, options, neutral="The")
    for prompt, own, given in zip(prompts, found, options, strict=True):
        for option, text in zip(own, given, strict=True):
            before, after = split(tiny_model, prompt, text)
            nats = alone(tiny_model, [*before, *after])[-len(after) :]
            neutral, same = split(tiny_model, "The", text)
            by_itself = alone(tiny_model, [*neutral, *same])[-len(same) :].sum()
            assert option.tokens == pytest.approx(nats, rel=1e-5)
            assert SCORES["sum"](option) == pytest.approx(nats.sum(), rel=1e-5)
            assert SCORES["mean"](option) == pytest.approx(nats.mean(), rel=1e-5)
            assert SCORES["per_byte"](option) == pytest.approx(nats.sum() / len(text), rel=1e-5)
            assert SCORES["gain"](option) == pytest.approx(nats.sum() - by_itself, abs=1e-5)
    same = scored(tiny_model, ["The"], [["van"]], neutral="The")[0][0]
    assert SCORES["gain"](same) == pytest.approx(0, abs=1e-5)


def test_hits_are_the_most_probable_tokens(tiny_model):
    (row,) = rows_of(tiny_model, 12)
    ids = torch.tensor([row])
    with torch.no_grad():
        encoded = tiny_model.backbone(tiny_model.example(ids, torch.ones_like(ids, dtype=torch.bool)))
        best = tiny_model.logits(encoded, torch.arange(11)).argmax(-1).tolist()
    other = 5 if best[10] != 5 else 6
    assert hits(tiny_model, [row[:11]] * 2, [[best[10]], [other]])[0].tolist() == [True]
    assert hits(tiny_model, [row[:4]], [row[4:]])[0].tolist() == [
        b == t for b, t in zip(best[3:], row[4:], strict=True)
    ]


def test_windows_predict_every_token_once_after_what_they_say(tiny_model):
    (row,) = rows_of(tiny_model, 75)
    for length, stride in ((32, 1), (32, 16), (20, 7), (None, 30)):
        (found,) = log_probabilities(tiny_model, [row], windows=Windows(stride, length))
        width = length or 32
        assert found[: width - 1] == pytest.approx(alone(tiny_model, row[:width]), rel=1e-5, abs=1e-6)
        end = width
        while end < len(row):
            begin, first, end = end, end, min(len(row), end + stride)
            begin = end - width + 1  # one place is the start token's
            wanted = alone(tiny_model, [row[0], *row[begin:end]])[first - begin :]
            assert found[first - 1 : end - 1] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    (short,) = log_probabilities(tiny_model, [row[:30]], windows=Windows(4))
    assert short == pytest.approx(log_probabilities(tiny_model, [row[:30]])[0])


def test_an_option_after_a_long_prompt_is_read_in_one_window(tiny_model):
    (row,) = rows_of(tiny_model, 75)
    (found,) = continuations(tiny_model, [row[:70]], [row[70:]], windows=Windows(8))
    assert found == pytest.approx(alone(tiny_model, [row[0], *row[75 - 31 :]])[-5:], rel=1e-5)


def test_a_bad_question_is_refused_by_name(tiny_model):
    (row,) = rows_of(tiny_model, 33)
    with pytest.raises(ConfigError, match=naming("row 2", "33", "32 positions", "windows")):
        log_probabilities(tiny_model, [row[:3], row])
    for windows in (Windows(0), Windows(31), Windows(4, 64)):
        with pytest.raises(ConfigError, match=naming("stride", "32 positions", str(windows.stride))):
            log_probabilities(tiny_model, [row * 3], windows=windows)
    with pytest.raises(ConfigError, match=naming("option 2")):
        continuations(tiny_model, [row[:3]] * 2, [row[3:5], []])
    with pytest.raises(ConfigError, match=naming("prompt 1", "start token")):
        continuations(tiny_model, [[]], [row[:3]])
    for empty in ("", "  "):
        with pytest.raises(ConfigError, match=r"the option '.*' has no token"):
            scored(tiny_model, ["The"], [[empty]])


def test_models_that_predict_no_next_token_are_refused():
    with pytest.raises(ConfigError, match=naming("a3", "'mlm'", "[MASK]")):
        check_predicts_next(SYSTEMS["roberta_base"], "a3")
    other = {"objectives.lm.direction": "right_to_left", "model.direction": "right_to_left"}
    with pytest.raises(ConfigError, match=naming("a3", "reads right to left", "left_to_right")):
        check_predicts_next(system(**other), "a3")
    for way in ("left_to_right", "two_way"):
        both = system(**{"objectives.lm.direction": way, "model.direction": way})
        assert check_predicts_next(both, "a3") is both.objectives.lm


def test_a_model_that_also_reads_back_predicts_what_is_on_its_left(tmp_path):
    lm = model(tmp_path, **{"objectives.lm.direction": "two_way", "model.direction": "two_way", "model.num_layers": 4})
    one, other = rows_of(lm, 12), rows_of(lm, 12)
    other[0][8:] = [6, 7, 8, 9]
    (a,), (b,) = log_probabilities(lm, one), log_probabilities(lm, other)
    assert a[:7] == pytest.approx(b[:7], rel=1e-6)
    assert not np.allclose(a[7:], b[7:])


@pytest.mark.parametrize(
    ("changes", "start", "positions"),
    [
        ({}, 1, 32),
        ({"model.positions": "relative", "model.memory_length": 48}, 1, 80),
        ({"model.positions": "sinusoidal", "model.memory_length": 48}, 1, 32),
        ({"format.frame": "none"}, 0, 32),
    ],
    ids=["no memory", "distances", "a table", "no start token"],
)
def test_a_row_is_as_long_as_training_has_shown(tmp_path, changes, start, positions):
    stream = {"format.kind": "stream", "format.frame": "document_ends"} if changes else {}
    lm = model(tmp_path, **{**stream, **changes})
    assert (len(lm.start), lm.max_positions) == (start, positions)
