"""Losses per byte: nothing else of a run changes, and an encoder that knows nothing pays for every piece."""

import numpy as np
import pytest
import torch

from ablations.measurements.sides import one_text
from ablations.schema.metrics import METRICS
from ablations.study import Study
from lightning_modules.config import ConfigError
from lightning_modules.measures import per_byte
from lightning_modules.pretraining import fit
from tests import tiny as tiny_text


@pytest.fixture
def system(tiny, tmp_path):
    """A system on simple sentences, whose words have letters alone."""
    return tiny.but(
        **{"data.corpora": [tiny_text.text(tmp_path / "text")], "data.tokenizer.vocab_size": 70, "training.steps": 3}
    )


@pytest.mark.slow
def test_they_are_extra(system, tmp_path):
    without = fit(system, 0, tmp_path / "without")
    found = fit(system.but(**{"evaluation.words": 20}), 0, tmp_path / "with")
    more = {name: value for name, value in found.metrics.items() if name not in without.metrics}
    assert {name: found.metrics[name] for name in without.metrics} == without.metrics
    assert more.keys() == {
        "heldout.nats_per_byte", "heldout.bigram_nats_per_byte", "heldout.word_nats_per_byte",
        "heldout.word_bigram_nats_per_byte", "heldout.word_length_nats_per_byte", "heldout.word_unknown",
        "heldout.word_first_loss", "heldout.words",
    }  # fmt: skip
    assert more.keys() <= METRICS.keys()
    ratio = found.metrics["heldout.nats_per_byte"] / found.metrics["heldout.loss"]
    assert found.metrics["heldout.bigram_nats_per_byte"] == pytest.approx(ratio * found.metrics["heldout.bigram_loss"])
    assert more["heldout.words"] >= 10
    assert more["heldout.word_unknown"] == 0
    assert 0 <= more["heldout.word_length_nats_per_byte"] < more["heldout.word_nats_per_byte"]
    assert 0.1 < ratio < 1, "a piece has one to ten bytes"


def test_a_model_that_knows_nothing_pays_for_each_piece_and_of_first_pieces_for_those_that_begin_a_word(system):
    data, module = system.data_module(0), system.build(0)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    hidden = data.whole_words(10)
    pieces = np.concatenate([example.targets["mlm"].ids.numpy() for example in hidden.examples])
    found = per_byte.of_words(module, data, 10, bf16=False)
    assert found["word_nats_per_byte"] == pytest.approx((len(pieces) * np.log(70) + hidden.length_nats) / hidden.bytes)
    assert found["word_length_nats_per_byte"] == pytest.approx(hidden.length_nats / hidden.bytes)
    assert found["word_bigram_nats_per_byte"] < found["word_nats_per_byte"]
    assert hidden.begins[pieces[: hidden.words]].all()
    assert not hidden.begins[pieces[hidden.words :]].any(), "the others continue words"
    assert 0 < hidden.begins.sum() < 70
    assert found["word_first_loss"] == pytest.approx(np.log(hidden.begins.sum()))


def test_language_models_hide_no_words(system):
    changes = {"objectives.mlm": None, "objectives.lm": {}, "model.direction": "left_to_right"}
    with pytest.raises(ConfigError, match=r"evaluation\.words hides words"):
        system.but(**changes, **{"evaluation.words": 4})


def test_losses_of_words_are_compared_across_tokenizers_and_those_of_pieces_are_not(tmp_path):
    file = tiny_text.grid(tmp_path, rates="[0.15]")
    text = file.read_text().replace("objectives.mlm.masking.rate: [0.15]", "data.tokenizer.lowercase: [true, false]")
    text = text.replace("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {data.tokenizer.lowercase: true}")
    file.write_text(text.replace("  evaluation.points: 2", "  evaluation.points: 2\n  evaluation.words: 8"))
    cells = Study(str(file), "smoke", results_dir=tmp_path / "results").resolve().cells
    assert len(cells) == 2
    assert one_text(cells, "heldout.word_nats_per_byte")
    assert not one_text(cells, "heldout.nats_per_byte")
    assert not one_text(cells, "heldout.loss")
