"""Generation and scores equal those of transformers, with the same weights."""

import json

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ablations.core.store import Records
from ablations.inspection.models import opened
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.generation.generate import Sampling, generate, probabilities
from lightning_modules.generation.scoring import log_probabilities
from lightning_modules.interop.families import FAMILIES
from tests.language_models import SENTENCES


@pytest.fixture
def folder(tmp_path):
    """A folder of GPT-2 with random weights and a tokenizer of its two files, and the model itself."""
    made = json.loads(train(Tokenizer(kind="byte_bpe", vocab_size=290, lowercase=False), SENTENCES).to_str())["model"]
    kept = [piece for piece, number in sorted(made["vocab"].items(), key=lambda item: item[1]) if number >= 5]
    vocabulary = {piece: number for number, piece in enumerate([*kept, "<|endoftext|>"])}
    end = vocabulary["<|endoftext|>"]
    tokenizer = GPT2Tokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in made["merges"]])
    tokenizer.save_pretrained(tmp_path / "gpt2")
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48, "initializer_range": 0.3}
    config = GPT2Config(vocab_size=len(vocabulary), bos_token_id=end, eos_token_id=end, **sizes)
    decoder = GPT2LMHeadModel(config).eval()
    decoder.save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2", decoder, tokenizer


@pytest.mark.skipif("gpt2" not in FAMILIES, reason="folders of GPT-2 are not read")
def test_a_folder_of_gpt2_writes_and_scores_what_transformers_does(folder, tmp_path):
    path, decoder, tokenizer = folder
    lm = opened(str(path), Records(tmp_path), scale="smoke").language_model()
    assert lm.max_positions == 48
    texts = ["The winds tonight", "A van waits\nnear the  water", ""]
    rows = [lm.prompt(text) for text in texts]
    for row, text in zip(rows, texts, strict=True):  # every first word has a space before it here
        assert row == [lm.end, *tokenizer(f" {text}" if text else "")["input_ids"]]
    found = generate(lm, rows, new_tokens=12)
    for row, written, nats in zip(rows, found, log_probabilities(lm, rows), strict=True):
        ids = torch.tensor([row])
        with torch.no_grad():
            wanted = decoder.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12, pad_token_id=lm.end
            )[0, len(row) :].tolist()
            logits = torch.log_softmax(decoder(ids).logits[0, :-1], -1)
        assert written.ids == (wanted[: wanted.index(lm.end)] if lm.end in wanted else wanted)
        assert nats == pytest.approx(logits.gather(1, ids[0, 1:, None])[:, 0].numpy(), rel=1e-4, abs=1e-5)
    assert len({tuple(written.ids) for written in found}) == len(texts)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.7), Sampling(top_k=40), Sampling(top_p=0.9), Sampling(0.8, 20, 0.9), Sampling(1.3, 5, 0.5)],
)
def test_draws_are_from_the_distribution_of_transformers(sampling):
    logits = 3 * torch.randn(50, 290, generator=torch.Generator().manual_seed(0))
    warped = TemperatureLogitsWarper(sampling.temperature)(None, logits.clone())
    if sampling.top_k is not None:
        warped = TopKLogitsWarper(sampling.top_k)(None, warped)
    if sampling.top_p != 1:
        warped = TopPLogitsWarper(sampling.top_p)(None, warped)
    wanted, found = torch.softmax(warped, 1).double(), probabilities(logits, sampling)
    assert torch.equal(found > 0, wanted > 0)
    assert (found - wanted).abs().max() <= 1e-6
