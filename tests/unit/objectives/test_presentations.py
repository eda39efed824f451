"""More predictions than hidden words: each sequence is presented several times, and that is counted."""

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from tests.messages import naming

RATE, PREDICTED = "objectives.mlm.masking.rate", "objectives.mlm.masking.predicted"


def system(rate, predicted, **more):
    changes = {RATE: rate, PREDICTED: predicted, "objectives.mlm.masking.count": "round", **more}
    return System().but(**changes)


def test_twice_the_passes_are_twice_the_tokens_and_the_work():
    once, twice = system(0.2, None), system(0.2, 0.4)
    assert twice.tokens_per_step() == 2 * once.tokens_per_step()
    assert twice.flops_per_step() == 2 * once.flops_per_step()
    assert twice.parameters() == once.parameters()


def test_fewer_predictions_spare_the_head_alone():
    hidden, some, few = system(0.4, None), system(0.4, 0.15), system(0.15, None)
    assert some.tokens_per_step() == hidden.tokens_per_step()
    assert some.flops_per_step() == few.flops_per_step() < hidden.flops_per_step()


@pytest.mark.parametrize(("rate", "predicted", "near"), [(0.2, 0.3, "0.4"), (0.15, 0.4, "0.45"), (0.3, 0.32, "0.3")])
def test_what_is_no_multiple_is_refused_with_the_nearest(rate, predicted, near):
    with pytest.raises(ConfigError, match=naming("predicted", str(predicted), str(rate), near)):
        system(rate, predicted)


def test_a_training_sees_each_sequence_as_often_and_says_so(tiny, tmp_path):
    changes = {RATE: 0.2, "objectives.mlm.masking.count": "round"}
    once = fit(tiny.but(**changes), 0, tmp_path / "once")
    twice = fit(tiny.but(**changes, **{PREDICTED: 0.4}), 0, tmp_path / "twice")
    parts = fit(tiny.but(**changes, **{PREDICTED: 0.4, "training.micro_batch_size": 4, "model.dropout": 0.0,
                                       "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0}), 0,
                tmp_path / "parts")  # fmt: skip
    assert twice.cost["tokens"] == 2 * once.cost["tokens"] == parts.cost["tokens"]
    assert twice.cost["flops"] == 2 * once.cost["flops"]
    assert twice.curve["tokens"] == [2 * tokens for tokens in once.curve["tokens"]]
    assert twice.metrics["heldout.loss"] != once.metrics["heldout.loss"]
