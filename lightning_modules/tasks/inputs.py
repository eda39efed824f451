"""Labelled texts as a backbone sees them: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``.

Encoded as the text of pretraining was: by the same tokenizer, word by word, after the same cleaning. Segments are 0
for [CLS], the first text and its [SEP], 1 for the second and its [SEP] (Devlin et al. 2019, figure 2).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ..batch import Example, Target, Tokens
from ..data.encode import Encoder
from ..data.tokenizer import Vocabulary
from .task import Examples

LABEL = "label"  # the name of the target


def truncated(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens are left of two texts ``[n]`` that together may have ``room``.

    As BERT's ``_truncate_seq_pair``: while they are too long, the longer of the two loses its last token, the second
    when they are equal.

    >>> truncated(np.array([9, 3, 9]), np.array([4, 9, 9]), 7)
    (array([4, 3, 4]), array([3, 4, 3]))
    """
    left = np.minimum(first, np.maximum(room - second, room - room // 2))
    return left, np.minimum(second, room - left)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The encoded examples of a split.

    Attributes:
        ids: Token ids of all texts in a row, without special tokens ``[m]``.
        bounds: Where each example's first text starts and ends in ``ids``, and its second ``[4 n]``; a task of single
            texts has two rows.
        labels: Class numbers, or real numbers in regression ``[n]``.
        vocabulary: The pieces.
    """

    ids: np.ndarray
    bounds: np.ndarray
    labels: np.ndarray
    vocabulary: Vocabulary

    @classmethod
    def of(cls, examples: Examples, encoder: Encoder, max_length: int) -> "Inputs":
        """Encodes examples, each cut to ``max_length`` positions."""
        count = len(examples)
        ids, counts = encoder(examples.first + (examples.second or []))
        ends = np.cumsum(counts)
        starts = ends - counts
        if examples.second is None:
            bounds = [starts, starts + np.minimum(counts, max_length - 2)]
        else:
            left = truncated(counts[:count], counts[count:], max_length - 3)
            bounds = [starts[:count], starts[:count] + left[0], starts[count:], starts[count:] + left[1]]
        labels = examples.labels
        labels = labels.astype(np.float32) if labels.dtype.kind == "f" else labels
        return cls(ids, np.stack(bounds), labels, encoder.vocabulary)

    def __len__(self) -> int:
        return self.bounds.shape[1]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each example, special tokens included ``[n]``."""
        texts = len(self.bounds) // 2
        return (self.bounds[1::2] - self.bounds[::2]).sum(0) + texts + 1

    def batch(self, indices: np.ndarray) -> Example:
        """The examples with these numbers as rows ``[b t]``, padded to the longest of them.

        The target says where a model's answer is read: at the first position, which sees everything.
        """
        tokens = self._tokens(np.asarray(indices, dtype=np.int64))
        rows, length = tokens.ids.shape
        example = Example.of(tokens)
        where = torch.arange(rows) * length  # the last real position for backbones that look left only
        example.targets[LABEL] = Target(where, torch.from_numpy(self.labels[indices]))
        return example

    def _tokens(self, indices: np.ndarray) -> Tokens:
        bounds = self.bounds[:, indices, None]
        start, end = bounds[:2]
        column = np.arange(self.lengths[indices].max())
        middle = 1 + end - start  # the first [SEP]
        source, last, second = start + column - 1, middle, np.zeros((len(indices), len(column)), dtype=bool)
        if len(bounds) == 4:
            start, end = bounds[2:]
            last, second = middle + 1 + end - start, column > middle
            source = np.where(second, start + column - middle - 1, source)
        real, separator = column <= last, (column == middle) | (column == last)
        ids = self.ids[np.clip(source, 0, max(0, len(self.ids) - 1))].astype(np.int64)
        ids[~real] = self.vocabulary.pad
        ids[separator] = self.vocabulary.sep
        ids[:, 0] = self.vocabulary.cls
        special = separator | ~real
        special[:, 0] = True
        return Tokens(
            ids=torch.from_numpy(ids),
            begins_word=torch.from_numpy(self.vocabulary.begins_word[ids]),
            special=torch.from_numpy(special),
            real=torch.from_numpy(real),
            sample=torch.from_numpy(indices),
            tables={"segment": torch.from_numpy((second & real).astype(np.int64))},
        )
