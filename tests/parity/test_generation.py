"""Generation and scores equal those of transformers, with the same weights."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertLMHeadModel

from lightning_modules.generation.generate import generate
from lightning_modules.generation.scoring import log_probabilities
from tests.language_models import model

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
