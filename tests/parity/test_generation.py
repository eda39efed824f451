"""Generation and scores equal those of transformers, with the same weights."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ablations.core.store import Records
from ablations.inspection.language_models import opened
from lightning_modules import interop
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.generation.generate import Sampling, generate, probabilities
from lightning_modules.generation.scoring import log_probabilities
from lightning_modules.interop.families import FAMILIES
from lightning_modules.systems import SYSTEMS
from tests.language_models import SENTENCES, model

SIZE = {"model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.init_std": 0.3}
LENGTHS = (9, 4, 12, 4)


def theirs(lm):
    """BERT as a decoder with the weights of one of our language models, which has its form."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=80, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64, is_decoder=True, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    decoder = BertLMHeadModel(config).eval()
    renamed = {
        "bert.embeddings.word_embeddings.": "embeddings.word.",
        "bert.embeddings.position_embeddings.": "embeddings.position.",
        "bert.embeddings.token_type_embeddings.": "embeddings.tables.segment.",
        "bert.embeddings.LayerNorm.": "embeddings.norm.",
        "bert.encoder.layer.": "blocks.",
        ".attention.output.dense.": ".attention.function.output.",
        ".attention.output.LayerNorm.": ".attention.norm.",
        ".intermediate.dense.": ".ffn.function.expand.",
        ".output.dense.": ".ffn.function.contract.",
        ".output.LayerNorm.": ".ffn.norm.",
        "cls.predictions.transform.LayerNorm.": "vocabulary.norm.",
        "cls.predictions.transform.": "vocabulary.",
        "cls.predictions.": "vocabulary.",
    }
    ours = dict(lm.backbone.state_dict()) | dict(lm.heads.state_dict())
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            for old, new in renamed.items():
                name = name.replace(old, new)
            for place, part in enumerate(("query", "key", "value")):
                if f"attention.self.{part}." in name:
                    whole = ours[name.replace(f"attention.self.{part}.", "attention.function.qkv.")]
                    parameter.copy_(whole.chunk(3)[place])
                    break
            else:
                parameter.copy_(ours[name])
    return decoder


@pytest.fixture
def both(tmp_path):
    lm = model(tmp_path, **SIZE)
    return lm, theirs(lm)


def prompts(lm):
    noise = np.random.default_rng(2)
    return [[*lm.start, *noise.integers(5, 80, length - 1).tolist()] for length in LENGTHS]


def test_greedy_text_is_that_of_transformers(both):
    lm, decoder = both
    found = generate(lm, prompts(lm), new_tokens=16)
    for prompt, written in zip(prompts(lm), found, strict=True):
        with torch.no_grad():
            ids = decoder.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=16, use_cache=True)
        wanted = ids[0, len(prompt) :].tolist()
        assert written.ids == (wanted[: wanted.index(3)] if 3 in wanted else wanted)
    assert len({tuple(written.ids) for written in found}) == len(LENGTHS), "the prompts are told apart"


def test_log_probabilities_are_those_of_transformers(both):
    lm, decoder = both
    for row, found in zip(prompts(lm), log_probabilities(lm, prompts(lm)), strict=True):
        ids = torch.tensor([row])
        with torch.no_grad():
            nats = torch.log_softmax(decoder(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        assert found == pytest.approx(nats.numpy(), rel=1e-4, abs=1e-5)


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
    lm = opened(str(path), Records(tmp_path), scale="smoke").load()
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


def test_a_folder_that_we_write_writes_in_transformers_what_it_writes_here(tmp_path):
    settings, path = Tokenizer(kind="byte_bpe", vocab_size=290, lowercase=False), tmp_path / "tokenizer.json"
    path.write_text(train(settings, SENTENCES).to_str())
    system = SYSTEMS["gpt2"].but(
        **SIZE | {"model.max_positions": 48, "format.sequence_length": 48, "data.tokenizer": settings}
    )
    interop.write(interop.of_run(system, system.build(0).state_dict()), tmp_path / "out", path)
    decoder = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    lm = opened(str(tmp_path / "out"), Records(tmp_path), scale="smoke").load()
    rows = [lm.prompt(text) for text in ("The winds tonight", "A van waits near the water", "one")]
    found = generate(lm, rows, new_tokens=20)
    for row, written in zip(rows, found, strict=True):
        ids = torch.tensor([row])
        wanted = decoder.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, pad_token_id=0
        )[0, len(row) :].tolist()
        assert written.ids == (wanted[: wanted.index(lm.end)] if lm.end in wanted else wanted)
    assert len({tuple(written.ids) for written in found}) == len(rows)
    assert max(len(written.ids) for written in found) == 20


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
