"""Words as vectors: the rows of the embedding table, and the states of a word in the layers of its sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from lightning_modules.batch import CHARACTERS, Tokens
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.model.embeddings import ClusteredTable, WordsByCharacters
from lightning_modules.training.module import Pretrain


class Neighbour(NamedTuple):
    """A word and the cosine of its vector with that of the query word."""

    word: str
    cosine: float


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The rows of an embedding table that are whole words.

    Attributes:
        words: The word of each row ``[w]``.
        vectors: ``[w e]``.
    """

    words: tuple[str, ...]
    vectors: np.ndarray

    @classmethod
    def of(cls, module: Pretrain, encoder: Encoder) -> Self:
        """The words of a pretrained model: pieces that start a word, or end one, and contain only letters.

        A model of characters makes their vectors from these.
        """
        if isinstance(module.backbone.get_submodule("embeddings.word"), ClusteredTable):
            raise ConfigError(["words as vectors need one word table. There are several with model.embedding_divisor."])
        vocabulary, words = encoder.vocabulary, module.backbone.embeddings.word
        marked = vocabulary.ends_word if vocabulary.ends_word.any() else vocabulary.begins_word
        kept = [
            number
            for number, text in enumerate(vocabulary.texts)
            if marked[number] and text.isalpha() and vocabulary.pieces[number] not in SPECIALS
        ]
        if isinstance(words, WordsByCharacters):
            vectors = _of_characters(words, kept, vocabulary)
        else:
            vectors = module.backbone.get_parameter("embeddings.word.weight").detach()[kept]
        return cls(tuple(vocabulary.texts[number] for number in kept), vectors.float().numpy())

    @cached_property
    def number(self) -> dict[str, int]:
        """Word -> row."""
        return {word: row for row, word in enumerate(self.words)}

    def take(self, words: Sequence[str]) -> np.ndarray:
        """The vectors of words ``[n e]``.

        Raises:
            ConfigError: With the words that are not single pieces of the vocabulary.
        """
        missing = [word for word in words if word not in self.number]
        if missing:
            near = did_you_mean(missing[0], self.words)
            raise ConfigError([f"not whole words of the vocabulary: {', '.join(missing[:12])}.{near}"])
        return self.vectors[[self.number[word] for word in words]]

    def neighbours(self, word: str, count: int = 5) -> list[Neighbour]:
        """The words whose vectors have the largest cosine with that of a word, largest first, without itself.

        The mean vector is subtracted first: it is a large common part of all rows without information on words (Mu
        and Viswanath 2018, who remove further directions too).

        Raises:
            ConfigError: For a word that is not a single piece of the vocabulary.
        """
        cosines = self._unit @ (unit(self.take([word]) - self.vectors.mean(0))[0])
        order = [row for row in np.argsort(-cosines, kind="stable").tolist() if row != self.number[word]]
        return [Neighbour(self.words[row], float(cosines[row])) for row in order[:count]]

    @cached_property
    def _unit(self) -> np.ndarray:
        return unit(self.vectors - self.vectors.mean(0))


@torch.no_grad()
def _of_characters(words: WordsByCharacters, pieces: Sequence[int], vocabulary: Vocabulary) -> Tensor:
    """The vectors of pieces that are words, by their characters ``[n e]``."""
    ids = torch.tensor(pieces)[:, None]
    none = torch.zeros_like(ids, dtype=torch.bool)
    characters = spelt(Tokens(ids, none, ~none, sample=torch.arange(len(ids))), vocabulary).characters
    assert characters is not None
    return words.of(characters.words, characters.spelt)[:, 0]


def _layers(module: Pretrain, encoder: Encoder, ids: Sequence[int]) -> list[Tensor]:
    example = as_example(ids, encoder.vocabulary, characters=CHARACTERS in module.backbone.supports)
    return module.backbone(example).layers


class Occurrence(NamedTuple):
    """A word in a sentence, and its cosine with another one."""

    word: str
    sentence: str
    cosine: float


def nearest_occurrences(
    module: Pretrain, encoder: Encoder, sentence: str, word: str, text: Sequence[str], layer: int = -1, count: int = 3
) -> list[Occurrence]:
    """The words of a text whose states are nearest to that of a word in a sentence (Peters et al. 2018, Table 4).

    By cosine of states less the mean of the text, the nearest first; of each sentence the nearest word alone. The state
    of a word of several pieces is their mean.

    Args:
        word: The word, case-insensitive.
        text: Sentences, their words separated by spaces. One that is ``sentence`` is left out.
        layer: Which states; by default those of the last layer.

    Raises:
        ConfigError: For a sentence without the word, or too long.
    """
    own = word_states(module, encoder, [sentence], word)[layer, 0]
    found = []
    for other in text:
        if other == sentence:
            continue
        encoded = encoder.fast.encode(other, add_special_tokens=False)
        with torch.no_grad():
            layers = _layers(module, encoder, encoded.ids)
        states = layers[layer][0, 1:-1].float().numpy()
        for other_word in re.finditer(r"\S+", other):
            pieces = [
                n
                for n, (start, end) in enumerate(encoded.offsets)
                if start < other_word.end() and end > other_word.start()
            ]
            if pieces:
                found.append((other_word.group(), other, states[pieces].mean(0)))
    mean = np.mean([state for _, _, state in found], axis=0)
    cosines = unit(np.stack([state for _, _, state in found]) - mean) @ unit((own - mean)[None])[0]
    best: dict[str, Occurrence] = {}
    for place in np.argsort(-cosines, kind="stable").tolist():
        name, other, _ = found[place]
        best.setdefault(other, Occurrence(name, other, float(cosines[place])))
    return list(best.values())[:count]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1; rows of zeros are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


@torch.no_grad()
def word_states(module: Pretrain, encoder: Encoder, sentences: Sequence[str], word: str) -> np.ndarray:
    """The states of a word in each sentence and layer ``[layer n d]``; layer 0 is the output of the embeddings.

    Each sentence is encoded alone, between [CLS] and [SEP]. The state of a word of several pieces is their mean.

    Args:
        sentences: Sentences with the word; the first occurrence counts.
        word: The word, case-insensitive.

    Raises:
        ConfigError: For a sentence without the word, or too long.
    """
    states = []
    for sentence in sentences:
        place = re.search(rf"\b{re.escape(word)}\b", sentence, re.IGNORECASE)
        if place is None:
            raise ConfigError([f"the word '{word}' is not in the sentence {sentence!r}"])
        encoded = encoder.fast.encode(sentence, add_special_tokens=False)
        where = [n for n, (start, end) in enumerate(encoded.offsets, 1) if start < place.end() and end > place.start()]
        try:
            layers = _layers(module, encoder, encoded.ids)
        except ValueError as error:  # the position table is too short
            raise ConfigError([f"the sentence is too long: {error}"]) from None
        states.append(torch.stack([layer[0, where].float().mean(0) for layer in layers]))
    return torch.stack(states, 1).numpy()


def nearest_alike(vectors: np.ndarray, groups: Sequence[str]) -> int | None:
    """How many vectors ``[n d]`` have a nearest neighbour of their own group, by cosine of centred vectors.

    Returns:
        The number; None if all vectors are equal.
    """
    if np.allclose(vectors, vectors[0], rtol=1e-4, atol=1e-6):
        return None
    rows = unit(vectors - vectors.mean(0))
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    return sum(groups[row] == groups[near] for row, near in enumerate(cosines.argmax(1).tolist()))
