"""GPT and GPT-2, tiny: they learn more than word pairs tell, and what they leave goes through transformers and back."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lightning_modules import interop
from lightning_modules.batch import Example
from lightning_modules.data.store import tokenizer_file
from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.weights import WEIGHTS, load_weights

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


def test_what_gpt2_leaves_is_loaded_by_transformers_with_its_tokenizer(small, tmp_path):
    system = small("gpt2", **{"training.steps": 20})
    fit(system, 0, tmp_path / "run")
    checkpoint = interop.of_run(system, load_weights(tmp_path / "run" / WEIGHTS))
    interop.write(checkpoint, tmp_path / "out", tokenizer_file(system.data))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    fast = AutoTokenizer.from_pretrained(tmp_path / "out")
    back = interop.read(tmp_path / "out")
    own, module = interop.own_encoder(tmp_path / "out", "gpt2", 300), back.build().eval()
    sequences = system.format.arrange(system.data_module(0).sequences.store)
    tokens = sequences.batch([0, 1, 2, 3])
    assert own.vocabulary.pieces[int(tokens.ids[0, 0])] == fast.convert_ids_to_tokens(int(tokens.ids[0, 0]))
    with torch.no_grad():
        encoded = module.backbone(Example.of(tokens))
        logits = module.heads["lm"]["vocabulary"](encoded.last.flatten(0, 1), encoded)
        wanted = theirs(input_ids=tokens.ids).logits.flatten(0, 1)
    assert (logits - wanted).abs().max() <= 1e-5
