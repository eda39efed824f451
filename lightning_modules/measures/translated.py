"""Translations of held-out sources: their scores in a training, and at its end also lengths, copies and repetitions."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from lightning_modules.data.baselines.translations import HeldOutText, heldout_text, words
from lightning_modules.data.formats.seq2seq import Translations
from lightning_modules.data.loader import PretrainingData
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.generation.translate import Beam, Translator
from lightning_modules.measures import bleu
from lightning_modules.system import System
from lightning_modules.training.module import Pretrain

_SCORES = {"bleu": bleu.bleu, "chrf": bleu.chrf}
_SHOWN = 5


@dataclass(frozen=True)
class Translated:
    """What was measured of translations.

    Attributes:
        by_sentence: Name of a score -> what each sentence adds to it, in the order of the corpus ``[n]``.
        kept: The counts of each sentence, signatures and a few translations, for a file next to the record.
    """

    metrics: dict[str, float]
    by_sentence: dict[str, np.ndarray]
    kept: dict[str, Any]


def translated(module: Pretrain, data: PretrainingData, system: System) -> Translated:
    """Translates held-out sources, `evaluation.translations` at most, and scores what was written.

    Sources and references are those of the corpus, with its spaces and case; translations are detokenised by the
    tokenizer that made their pieces.
    """
    asked, numbers, text = _asked(data, system)
    return measured(_written(asked, module, data, system), numbers, text)


class AtPoints(pl.Callback):
    """Adds BLEU and chrF to the held-out measures of each point of a training but the last.

    Those of the last point are measured at the end of the training. Every rank translates all sources, so that none
    waits for another longer than for a batch. Nothing random is drawn.
    """

    def __init__(self, data: PretrainingData, system: System) -> None:
        self.data, self.system = data, system

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Translates with the weights that the losses were measured with, before means are put back."""
        if trainer.global_step >= self.system.training.last_step:
            return
        assert isinstance(pl_module, Pretrain)
        asked, numbers, text = _asked(self.data, self.system)
        written = _written(asked, pl_module, self.data, self.system)
        counted = bleu.counts(written, [text.targets[int(n)] for n in numbers])
        for name, score in _SCORES.items():
            value = float(score(getattr(counted, name).sum(axis=0)))
            pl_module.log(f"heldout.{name}", value, on_epoch=True, batch_size=len(written), sync_dist=True)


def at_end(curve: dict[str, list[float]], metrics: Mapping[str, float | bool]) -> None:
    """Makes the scores at the end of a training the last ones of a curve that has those of the points before."""
    before = len(curve["step"]) - 1
    for name in (f"heldout.{score}" for score in _SCORES):
        curve[name] = [*curve.get(name, [])[:before], float(metrics[name])]


def _written(asked: list[list[int]], module: Pretrain, data: PretrainingData, system: System) -> list[str]:
    """The translations of some sources, detokenised."""
    encoder = Encoder(tokenizer_file(data.data), data.data.tokenizer.kind)
    evaluation = system.evaluation
    translator = Translator.of(module, system, encoder.vocabulary)
    with torch.autocast(module.device.type, torch.bfloat16, enabled=system.training.precision == "bf16"):
        found = translator.translate(asked, Beam(evaluation.beam, evaluation.length_penalty))
    return [encoder.fast.decode(best.ids, skip_special_tokens=False).strip() for best in found]


def prepare(data: PretrainingData, system: System) -> None:
    """Makes what `translated` reads from the cache."""
    _asked(data, system)


def _asked(data: PretrainingData, system: System) -> tuple[list[list[int]], np.ndarray, HeldOutText]:
    """The pieces of each source, the number of its pair in the corpus, and the text; in the order of the corpus."""
    heldout = data.some_heldout(system.evaluation.translations)
    sequences = heldout.sequences
    assert isinstance(sequences, Translations), "`translation.check` refuses others"
    store = sequences.store
    bounds = sequences.bounds[np.sort(heldout.chosen)]
    numbers = np.searchsorted(store.document_starts, bounds[:, 0], side="right") - 1
    return [store.ids[start:end].tolist() for start, end, _ in bounds], numbers, heldout_text(data.data, store)


def measured(written: Sequence[str], numbers: np.ndarray, text: HeldOutText) -> Translated:
    """What translations of some pairs of a text score, next to those of simple methods.

    Thirds of the sources are by their number of words, of equal ones in the order of the corpus. The source has a
    **copied** word, and the reference lacks it. The same translation has a **repeated** pair of neighbouring words
    before.

    Args:
        numbers: Of their pairs.
    """
    sources, references = ([side[int(n)] for n in numbers] for side in (text.sources, text.targets))
    counted = bleu.counts(written, references)
    own = {"bleu": counted.bleu, "chrf": counted.chrf}
    metrics = {name: float(score(own[name].sum(axis=0))) for name, score in _SCORES.items()}
    by_sentence = {name: bleu.influences(score, own[name]) for name, score in _SCORES.items()}
    if len(written) >= len(bleu.BY_LENGTH):
        thirds = np.array_split(np.argsort(text.source_words[numbers], kind="stable"), len(bleu.BY_LENGTH))
        for part, rows in zip(bleu.BY_LENGTH, thirds, strict=True):
            metrics[f"bleu_{part}"] = float(bleu.bleu(counted.bleu[rows].sum(axis=0)))
        metrics["bleu_long_minus_short"] = metrics["bleu_long"] - metrics["bleu_short"]
        by_sentence["bleu_long_minus_short"] = _of_difference(counted.bleu, thirds[-1], thirds[0])
    metrics |= {"translation_length": float(counted.bleu[:, 0].sum() / counted.bleu[:, 1].sum())}
    metrics |= _rates(written, sources, references) | {"translations": float(len(written))}
    for method, theirs in text.simple.items():
        simple = bleu.counts([theirs[int(n)] for n in numbers], references)
        for name, score in _SCORES.items():
            metrics[f"{name}_{method}"] = float(score(getattr(simple, name).sum(axis=0)))
    for name in _SCORES:
        metrics[f"{name}_best_simple"] = max(metrics[f"{name}_{method}"] for method in text.simple)
    shown = sorted({len(written) * n // _SHOWN for n in range(_SHOWN)})  # spread evenly over the corpus
    kept = {
        "signatures": counted.signatures,
        "counts": own,
        "shown": [{"source": sources[n], "reference": references[n], "translation": written[n]} for n in shown],
    }
    return Translated(metrics, by_sentence, kept)


def _of_difference(counted: np.ndarray, more: np.ndarray, fewer: np.ndarray) -> np.ndarray:
    """What each sentence adds to the BLEU of some sentences minus that of others ``[n]``."""
    found, value = np.zeros(len(counted)), 0.0
    for rows, sign in ((more, 1.0), (fewer, -1.0)):
        each = bleu.influences(bleu.bleu, counted[rows])
        value += sign * each.mean()
        found[rows] += sign * (each - each.mean()) * len(counted) / len(rows)
    return value + found


def _rates(written: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The shares of copied words, and of repeated pairs of words, there and in the references."""
    copied = total = 0
    for line, source, reference in zip(written, sources, references, strict=True):
        only = set(words(source)) - set(words(reference))
        own = words(line)
        copied, total = copied + sum(word in only for word in own), total + len(own)
    return {
        "copied_words": copied / max(1, total),
        "repeated_bigrams": _repeated(written),
        "repeated_bigrams_reference": _repeated(references),
    }


def _repeated(lines: Sequence[str]) -> float:
    again = total = 0
    for line in lines:
        own = words(line)
        pairs = Counter(itertools.pairwise(own))
        again, total = again + sum(pairs.values()) - len(pairs), total + sum(pairs.values())
    return again / max(1, total)
