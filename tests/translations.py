"""Parallel text and an encoder-decoder so small that tests of them take moments."""

from pathlib import Path

import numpy as np
import torch

from lightning_modules.batch import Example, Tokens
from lightning_modules.model import EncoderDecoder, RecurrentEncoderDecoder
from lightning_modules.objectives import LanguageModel
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_vocabulary

WORDS = 40
_ENGLISH = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "old", "young", "big", "red"]
_GERMAN = ["die", "eine", "Katze", "Hund", "Vogel", "sieht", "hört", "mag", "alte", "junge", "große", "rote"]


def parallel_text(folder: Path, pairs: int = 200) -> str:
    """Writes sentences and their translations, word by word in the reverse order, and returns the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    noise, lines = np.random.default_rng(0), []
    for _ in range(pairs):
        words = noise.integers(len(_ENGLISH), size=noise.integers(2, 9))
        lines.append((" ".join(_ENGLISH[n] for n in words), " ".join(_GERMAN[n] for n in words[::-1])))
    for language, side in (("en", 0), ("de", 1)):
        (folder / f"text.{language}").write_text("".join(f"{pair[side]}.\n" for pair in lines), encoding="utf-8")
    return f"lines:en-de:{folder}/*"


def tiny_system(corpus: str, **changes: object) -> System:
    """A system of two sequences that trains in a moment."""
    return SYSTEMS["transformer_base"].but(
        **{
            "data.corpora": [corpus],
            "data.tokenizer.vocab_size": 340,
            "model.num_layers": 1,
            "model.hidden_size": 16,
            "model.num_heads": 2,
            "model.ffn_size": 32,
            "model.max_positions": 32,
            "format.sequence_length": 24,
            "training.batch_size": 4,
            "training.bucket_steps": 1,
            "training.steps": 6,
            "training.averaged_checkpoints": 1,
            "schedule.warmup_fraction": 0.5,
            "evaluation.sequences": 8,
            "evaluation.points": 2,
            **changes,
        }
    )


RECURRENT = {
    "model": {
        "kind": "lstm_encoder_decoder",
        "num_layers": 2,
        "hidden_size": 16,
        "embedding_size": None,
        "embedding_norm": False,
        "init_std": 0.3,
    }
}


def settings(**knobs: object) -> EncoderDecoder:
    """A tiny encoder-decoder without dropout."""
    own = {
        "num_layers": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "ffn_size": 24,
        "max_positions": 32,
        "segment_types": 0,
        "embedding_dropout": 0.0,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "init_std": 0.3,
    }
    return EncoderDecoder(**(own | knobs))


def recurrent(**knobs: object) -> RecurrentEncoderDecoder:
    """Tiny LSTMs that translate, without dropout."""
    own = {
        "num_layers": 2,
        "hidden_size": 16,
        "embedding_size": None,
        "embedding_dropout": 0.0,
        "dropout": 0.0,
        "embedding_norm": False,
        "init_std": 0.3,
    }
    return RecurrentEncoderDecoder(**(own | knobs))


def side(ids: torch.Tensor, real: torch.Tensor) -> Tokens:
    """Rows whose last real piece is [SEP]."""
    last = real & (real.cumsum(1) == real.sum(1, keepdim=True))
    ids = ids.masked_fill(last, 3).masked_fill(~real, 0)
    return Tokens(ids, special=last | ~real, real=real, sample=torch.arange(len(ids)))


def pairs(sources: list[int], targets: list[int], seed: int = 0, more: int = 0) -> Tokens:
    """Pairs of so many pieces on each side, padding behind the shorter ones, with so many more columns of it."""
    noise, made = torch.Generator().manual_seed(seed), []
    for lengths in (sources, targets):
        ids = torch.full((len(lengths), max(lengths) + more), 0)
        for row, length in enumerate(lengths):
            ids[row, :length] = torch.randint(5, WORDS, (length,), generator=noise)
        made.append(side(ids, torch.arange(ids.shape[1])[None] < torch.tensor(lengths)[:, None]))
    source, target = made
    target.ids[:, 0], target.special[:, 0] = 2, True
    target.ends, target.source = target.ids == 3, source
    return target


def asked(tokens: Tokens, **knobs: object) -> Example:
    """The example of a decoder that predicts its target."""
    lm = LanguageModel(**({"transform": "none", "bias": False} | knobs))
    rows = len(tokens.ids)
    example = lm.mask_inputs(Example.of(tokens), make_draws(rows), make_vocabulary(WORDS))
    example.counts = lm.counts(example)
    return example
