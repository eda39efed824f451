"""LAMBADA: the last word of a passage, which only the whole passage gives away (Paperno et al. 2016).

A word is right if each of its tokens is the most probable one after those before it, so that greedy generation gives
it. Radford et al. (2019, section 3.3) add that a filter of stop words raises GPT-2 from 52.66 to 63.24: a model goes on
with the sentence where it should end it. Both are measured: with the filter, the first token is the most probable one
that is neither a whole function word nor of signs and digits alone. A space alone, or a part of a letter, may begin a
word and is not filtered out.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from lightning_modules.generation.language_model import LanguageModelOf
from lightning_modules.generation.scoring import continuations, hits, split
from lightning_modules.system import System
from lightning_modules.words import is_part
from lightning_modules.zero_shot.function_words import FUNCTION_WORDS, is_content, words_of
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.sources import OfSource
from lightning_modules.zero_shot.task import PIECES, Asking, Found, share

_RECIPE = 1  # raise when the same texts would be presented otherwise
_ROWS = 32  # prompts of a forward pass


@dataclass(frozen=True)
class LastWord(OfSource):
    """Passages whose last word is predicted.

    Attributes:
        own: Passages with their last words.
    """

    metrics = {
        "accuracy": "share of last words of which every token is the most probable one",
        "filtered_accuracy": "the same where the first token may be no whole function word, 0 to 1",
        "loss": "mean of minus the log-probability of a last word, nats per word",
        "cut": "share of passages of which the model reads the last part only",
    }
    methods = {
        "majority": "majority class",
        "frequent": "most frequent content word of the passage",
    }
    recipe = (_RECIPE,)
    recipes = {"byte_bpe": 2, "unigram": 2}  # which may cut a space or a letter off a word

    def positions(self, system: System, settings: Measurement) -> float:
        pin = self.own.pin()
        each = min(PIECES * pin.words / pin.texts, system.format.sequence_length)
        return 3.0 * each * pin.texts * share(settings, pin.texts)  # the words, whether they are hit, first tokens

    def ask(self, asking: Asking) -> Found:
        texts = self.own.texts()[: asking.settings.examples]
        pairs = [(passage, word) for passage, _, word in (asking.flat(text).rpartition(" ") for text in texts)]
        model, windows = asking.model, asking.windows
        prompts, words = zip(*(split(model, passage, word) for passage, word in pairs), strict=True)
        nats = [-found.sum() for found in continuations(model, prompts, words, windows=windows)]
        hit = hits(model, prompts, words, windows=windows)
        right = np.array([bool(found.all()) for found in hit])
        first = first_choices(model, prompts, words, barred(asking))
        filtered = np.array(
            [choice == word[0] and bool(found[1:].all()) for choice, word, found in zip(first, words, hit, strict=True)]
        )
        cut = [len(prompt) + len(word) > model.max_positions for prompt, word in zip(prompts, words, strict=True)]
        simple = {f"accuracy.{name}": value for name, value in _simple(pairs).items()}
        losses = np.array(nats)
        return Found(
            {
                "accuracy": float(right.mean()),
                "filtered_accuracy": float(filtered.mean()),
                "loss": float(losses.mean()),
                "cut": float(np.mean(cut)),
                **simple,
            },
            {"accuracy": right, "filtered_accuracy": filtered, "loss": losses},
        )


def _simple(pairs: list[tuple[str, str]]) -> dict[str, float]:
    """The accuracy of the most frequent answer, and of the most frequent content word of each passage."""
    answers = Counter(word for _, word in pairs)
    guesses = []
    for passage, _ in pairs:
        words = [word for word in words_of(passage) if is_content(word)]
        counts = Counter(words)
        guesses.append(max(reversed(words), key=counts.__getitem__, default=""))
    right = [guess.lower() == word.lower() for guess, (_, word) in zip(guesses, pairs, strict=True)]
    return {"majority": answers.most_common(1)[0][1] / len(pairs), "frequent": float(np.mean(right))}


def barred(asking: Asking) -> np.ndarray:
    """Which tokens are no first token of a last word: whole function words, and those of signs and digits ``[v]``."""
    vocabulary = asking.model.encoder.vocabulary
    texts = [text.lower() for text in vocabulary.texts]
    whole = vocabulary.ends_word if vocabulary.ends_word.any() else vocabulary.begins_word
    words = np.array([text in FUNCTION_WORDS for text in texts]) & whole
    special = ~np.isin(np.arange(vocabulary.size), vocabulary.ordinary)
    signs = [bool(text) and not any(letter.isalpha() or is_part(letter) for letter in text) for text in texts]
    return words | special | np.array(signs)


@torch.no_grad()
def first_choices(
    model: LanguageModelOf, prompts: tuple[list[int], ...], words: tuple[list[int], ...], barred: np.ndarray
) -> np.ndarray:
    """The most probable first token of each word that is not barred; prompts are cut as where words are scored."""
    rows, start = [], list(model.start)
    for prompt, word in zip(prompts, words, strict=True):
        most = model.max_positions - len(word)
        rows.append(prompt if len(prompt) <= most else [*start, *prompt[len(prompt) - most + len(start) :]])
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    chosen, mask = np.zeros(len(rows), dtype=np.int64), torch.from_numpy(barred).to(model.device)
    for begin in range(0, len(order), _ROWS):
        some = order[begin : begin + _ROWS]
        width = max(len(rows[n]) for n in some)
        ids = torch.full((len(some), width), model.encoder.vocabulary.pad)
        real = torch.zeros_like(ids, dtype=torch.bool)
        for place, n in enumerate(some):
            ids[place, : len(rows[n])] = torch.as_tensor(rows[n])
            real[place, : len(rows[n])] = True
        encoded = model.backbone(model.example(ids, real).to(model.device))
        last = torch.tensor([place * width + len(rows[n]) - 1 for place, n in enumerate(some)], device=model.device)
        chosen[some] = model.logits(encoded, last).masked_fill(mask, -torch.inf).argmax(-1).cpu().numpy()
    return chosen
