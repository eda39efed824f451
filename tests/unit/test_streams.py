"""What a stream cannot be read by, and what only a stream has, is refused by name before anything is trained."""

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests.messages import naming

STREAM = {"format.kind": "stream", "format.frame": "document_ends"}
GPT = SYSTEMS["gpt"]
LSTM = {"model.kind": "lstm", "objectives.lm.transform": "bert"}


def test_a_stream_is_read_by_language_models_of_both_kinds():
    assert GPT.but(**STREAM).heldout_format.kind == "stream"
    assert GPT.but(**STREAM, **LSTM).model.kind == "lstm"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format.frame": "cls_sep"}, ("frame", "document_ends", "none")),
        ({"format.share": 0.5}, ("share 0.5", "full_sentences")),
        ({"training.batch_by": "tokens"}, ("training.batch_by", "sequences")),
        ({"objectives.lm": None, "objectives.mlm.weight": 1.0}, ("format.kind stream", "objectives.lm")),
        (
            {"objectives.lm.direction": "right_to_left", "model.direction": "right_to_left"},
            ("format.kind stream", "right_to_left", "left_to_right"),
        ),
        (
            {"objectives.lm.direction": "two_way", "model.direction": "two_way"},
            ("format.kind stream", "two_way", "left_to_right"),
        ),
        ({"objectives.sentence.weight": 1.0}, ("label 'sentence'", "format.kind stream", "segment_pairs")),
        ({"evaluation.context": 8}, ("evaluation.context 8", "512", "model.max_positions 512")),
        ({"evaluation.sequence_length": 513}, ("evaluation.sequence_length", "model.max_positions 512")),
        ({"evaluation.rows": 0}, ("evaluation.rows", "0")),
        ({**LSTM, "evaluation.memory_length": 8}, ("evaluation.memory_length", "lstm")),
        ({"evaluation.memory_length": 8, "evaluation.context": 8}, ("evaluation.memory_length", "evaluation.context")),
        (
            {"model.same_length": True, "model.memory_length": 8, "evaluation.memory_length": 0},
            ("same_length", "evaluation.memory_length", "itself alone"),
        ),
    ],
)
def test_what_a_stream_cannot_be_is_refused(changes, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        GPT.but(**{**STREAM, **changes})


def test_a_part_of_a_row_goes_on_in_models_that_read_both_sides_alone(tiny):
    reused = {"format.kind": "stream", "format.frame": "none", "format.reuse_length": 8}
    assert tiny.but(**reused, **{"model.memory_length": 8}).heldout_format.reuse_length is None
    for changes in ({}, LSTM):
        with pytest.raises(ConfigError, match=naming("format.reuse_length 8", "both sides")):
            GPT.but(**{**reused, **changes})
    pair = {**reused, "format.rest": "pair", "objectives.sentence": {}}
    assert tiny.but(**pair).cls_last
    with pytest.raises(ConfigError, match=naming("third segment", "model.segment_types")):
        tiny.but(**pair, **{"model.segment_types": 2})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.batch_size": 7}, ("format.both_ways", "training.batch_size 7", "odd", "6 or 8")),
        ({"training.batch_size": 1}, ("training.batch_size 1", "set it to 2")),
        ({"model.direction": "left_to_right"}, ("format.both_ways", "model.direction both")),
    ],
)
def test_rows_in_two_directions_are_as_many_and_of_models_that_read_both_sides(tiny, changes, words):
    both = tiny.but(**{"format.kind": "stream", "format.frame": "none", "format.both_ways": True})
    assert not both.heldout_format.both_ways
    with pytest.raises(ConfigError, match=naming(*words)):
        both.but(**changes)
    with pytest.raises(ConfigError, match=naming("format.both_ways", "both sides")):
        GPT.but(**{**STREAM, "format.both_ways": True})


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation.rows": 4},
        {"evaluation.sequence_length": 64},
        {"evaluation.context": 64},
        {"evaluation.memory_length": 64},
        {"model.memory_length": 64},
    ],
)
def test_what_only_a_stream_has_is_refused_elsewhere(changes):
    (path,) = changes
    with pytest.raises(ConfigError, match=naming(path, "format.kind full_sentences", "stream")):
        GPT.but(**changes)


def test_what_has_no_effect_on_a_stream_is_no_part_of_it():
    plain, other = GPT.but(**STREAM).format, GPT.but(**STREAM, **{"format.break_mode": "documents"}).format
    assert plain.essence() == other.essence()
    assert "both_ways" not in GPT.but(**{"format.both_ways": True}).format.essence()
    assert "sentence_order" not in GPT.but(**{"format.sentence_order": "shuffled"}).format.essence()


@pytest.mark.parametrize("scored", ["all", "second_half"])
def test_plans_count_every_prediction(scored):
    """All positions of a row predict, in training those of the second half alone; blocks lack the first token."""
    gpt = GPT.but(**{"objectives.lm.scored": scored})
    share = 1.0 if scored == "all" else 0.5
    assert gpt.but(**STREAM).predictions_per_token() == share
    assert gpt.predictions_per_token() == share - 1 / 512
    assert gpt.but(**STREAM).tokens() == gpt.tokens()
    assert (gpt.but(**STREAM).flops() < GPT.but(**STREAM).flops()) == (scored != "all")
