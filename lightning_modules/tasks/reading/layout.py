"""Rows ``[CLS] a [SEP]`` and ``[CLS] a [SEP] b [SEP]``."""

from functools import cached_property

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.data.text.tokenizer import Vocabulary


class Segments:
    """Rows of one or two runs of pieces each, between special tokens.

    Segment numbers are 0 for [CLS], the first run and its [SEP], 1 for the second and its [SEP].

    Args:
        ids: Token ids ``[m]``.
        parts: Where each row's first run starts and ends in ``ids``, and its second ``[1 or 2, 2, n]``.
        vocabulary: The pieces.
    """

    def __init__(self, ids: np.ndarray, parts: np.ndarray, vocabulary: Vocabulary) -> None:
        self.ids, self.parts, self.vocabulary = ids, parts, vocabulary

    @cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each row, special tokens included ``[n]``."""
        return (self.parts[:, 1] - self.parts[:, 0]).sum(0) + len(self.parts) + 1

    def tokens(self, rows: np.ndarray) -> Tokens:
        """The rows with these numbers ``[b t]``, padded to the longest of them."""
        parts = self.parts[:, :, rows, None]
        start, end = parts[0]
        column = np.arange(self.lengths[rows].max())
        middle = 1 + end - start  # the first [SEP]
        source, last, second = start + column - 1, middle, np.zeros((len(rows), len(column)), dtype=bool)
        if len(parts) == 2:
            start, end = parts[1]
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
            special=torch.from_numpy(special),
            real=torch.from_numpy(real),
            sample=torch.from_numpy(rows),
            tables={"segment": torch.from_numpy((second & real).astype(np.int64))},
        )
