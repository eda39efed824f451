"""GPT and GPT-2, tiny: they learn more than word pairs tell, and what they leave goes through transformers and back."""

import pytest

from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS

KINDS = {"gpt": {"data.tokenizer.vocab_size": 90}, "gpt2": {"data.tokenizer.vocab_size": 300}}


@pytest.fixture
def small(tiny):
    """Either system in the size of `tiny`, on its text."""

    def made(name, **changes):
        shared = {
            path: tiny.get(path)
            for path in (
                "data.corpora", "format.sequence_length", "model.num_layers", "model.hidden_size", "model.num_heads",
                "model.max_positions", "optimizer.peak_lr", "training.batch_size", "training.precision",
                "evaluation.sequences", "evaluation.points",
            )
        }  # fmt: skip
        return SYSTEMS[name].but(**shared | KINDS[name] | {"schedule.warmup_fraction": 0.05} | changes)

    return made


@pytest.mark.parametrize("name", KINDS)
def test_it_learns_and_is_measured_as_language_models_are(small, name, tmp_path):
    system = small(name, **{"training.steps": 150, "model.hidden_size": 32})
    found = fit(system, 0, tmp_path)
    metrics = found.metrics
    assert metrics["heldout.next_loss"] < metrics["heldout.next_unigram_loss"]
    assert 0 < metrics["heldout.next_bigram_loss"] < metrics["heldout.next_unigram_loss"]
    assert "heldout.loss" not in metrics
    again = fit(system, 0, tmp_path / "again")
    assert again.metrics == metrics
