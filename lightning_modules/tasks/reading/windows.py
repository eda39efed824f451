"""Questions and passages as rows ``[CLS] question [SEP] window [SEP]``, or with [CLS] last: the inputs of ``Spans``.

A passage that is too long for a row is split into overlapping windows, as in BERT's ``run_squad.py``: one starts every
``doc_stride`` pieces until the end is covered. There are two differences, without effect at its settings (384
positions, 64 of them for the question, stride 128): a question has at most half of the positions, and a stride is at
most half a window. So an answer of up to half a window lies whole in one of them, in short rows too.

A longer answer may lie whole in no window. It is then trained on as no answer, and cannot be given as a whole. Of the
answers of 4,000 dev questions each of SQuAD 1.1 and 2.0 (own splits, WordPiece of 4,096) 81 and 85 % lie whole in a
window in rows of 24 positions, 90 and 92 % in rows of 32, 99 % in rows of 64, and all in rows of 256.
"""

from functools import cached_property

import numpy as np
import torch

from lightning_modules.batch import Target
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.tasks.reading.layout import Arranged, LayoutName, Segments
from lightning_modules.tasks.reading.passages import SpanExamples
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.spelling import Spelling

START, END = "start", "end"  # the names of the targets
_SPECIAL = 3  # positions of special tokens in a row


class SpanInputs(Arranged):
    """The windows of a split, grouped by question.

    Args:
        pieces: The pieces of `SpanExamples.texts`.
        max_length: Maximum positions of a row.
        max_query: Maximum pieces of a question.
        stride: Pieces from the start of a window to that of the next.
        layout: Where a row has its [CLS].

    Attributes:
        of: The question of each window ``[m]``.
        bounds: Where each question's windows start, and the end ``[n + 1]``.
        begins: Each window's first piece in ``pieces.ids`` ``[m]``.
        ends: The piece after its last one ``[m]``.
        offsets: The position of its first piece in its row ``[m]``.
        sizes: Positions of each row ``[m 1]``.
        nulls: The position that means no answer in each row, [CLS] ``[m]``.
    """

    def __init__(
        self,
        examples: SpanExamples,
        pieces: Pieces,
        vocabulary: Vocabulary,
        max_length: int,
        max_query: int,
        stride: int,
        layout: LayoutName = "cls_sep",
    ) -> None:
        self.examples, self.pieces, self.spelling = examples, pieces, Spelling(vocabulary)
        count, starts, sizes = len(examples), pieces.bounds[:-1], np.diff(pieces.bounds)
        question_sizes = np.minimum(sizes[:count], min(max_query, (max_length - _SPECIAL) // 2))
        context = count + examples.where
        room = max_length - _SPECIAL - question_sizes
        step = np.minimum(stride, np.maximum(1, room // 2))
        windows = 1 + np.maximum(0, -(-(sizes[context] - room) // step))
        self.of = np.repeat(np.arange(count), windows)
        self.bounds = np.concatenate([[0], np.cumsum(windows)])
        place = np.arange(len(self.of)) - self.bounds[self.of]
        self.begins = starts[context][self.of] + place * step[self.of]
        self.ends = np.minimum(self.begins + room[self.of], (starts + sizes)[context][self.of])
        self.offsets = question_sizes[self.of] + (1 if layout == "cls_last" else 2)
        question = starts[:count][self.of]
        parts = np.array([(question, question + question_sizes[self.of]), (self.begins, self.ends)])
        self.rows = Segments(pieces.ids, parts, vocabulary, layout)
        self.sizes = self.rows.lengths[:, None]
        self.nulls = self.rows.lengths - 1 if layout == "cls_last" else np.zeros(len(self.of), dtype=np.int64)

    @cached_property
    def answers(self) -> np.ndarray:
        """The first and last piece of the first marked answer of each question, -1 without one ``[n 2]``.

        These are the fewest pieces that contain the answer's characters. ``_improve_answer_span`` of BERT's
        ``run_squad.py`` searches the answer's pieces inside its words, with the same result; it keeps whole words if
        an answer is part of a piece or is split differently on its own, and takes the first of several matches.
        """
        spans = np.full((len(self.examples), 2), -1)
        for number, answers in enumerate(self.examples.answers):
            if answers:
                start, text = answers[0]
                spans[number] = self._pieces_of(int(self.examples.where[number]), start, start + len(text))
        return spans

    def _pieces_of(self, context: int, start: int, end: int) -> tuple[int, int]:
        """The first and last piece of some characters of a passage, (-1, -1) if they have none."""
        bounds, shift = self.examples.bounds, len(self.examples)
        words = bounds.covering(context, start, end)
        base = int(self.pieces.texts[shift + context] - bounds.texts[context])
        edges = [(int(self.pieces.words[base + word]), int(self.pieces.words[base + word + 1])) for word in words]
        first, last = edges[0][0], edges[1][1] - 1
        if start > bounds.starts[words[0]]:
            spelt = self._characters(context, words[0], *edges[0])
            within = start - bounds.starts[words[0]]
            first += sum(stop <= within for _, stop in spelt)
        if end < bounds.ends[words[1]]:
            spelt = self._characters(context, words[1], *edges[1])
            within = end - bounds.starts[words[1]]
            last -= sum(begin >= within for begin, _ in spelt)
        return (first, last) if last >= first else (-1, -1)

    def _characters(self, context: int, word: int, first: int, stop: int) -> list[tuple[int, int]]:
        bounds = self.examples.bounds
        text = self.examples.contexts[context][bounds.starts[word] : bounds.ends[word]]
        return self.spelling.characters(text, tuple(self.pieces.ids[first:stop].tolist()))

    def text(self, number: int, first: int, last: int) -> str:
        """The text of a question's passage from one piece to another, with its original characters and spaces."""
        context = int(self.examples.where[number])
        bounds, base = self.examples.bounds, self.pieces.texts[len(self.examples) + context]
        ends = []
        for place, side in ((first, 0), (last, 1)):
            word = int(np.searchsorted(self.pieces.words, place, side="right")) - 1
            begin, stop = int(self.pieces.words[word]), int(self.pieces.words[word + 1])
            local = int(word - base + bounds.texts[context])
            spelt = self._characters(context, local, begin, stop)
            ends.append(int(bounds.starts[local]) + spelt[place - begin][side])
        return self.examples.contexts[context][slice(*ends)]

    @cached_property
    def targets(self) -> np.ndarray:
        """Positions of the answer's first and last piece in each row, twice [CLS] if it lacks part of it ``[m 2]``.

        Windows without the answer are trained on too, in SQuAD 1.1 and 2.0. The released code does the same, although
        its comment says that it skips them.
        """
        first, last = self.answers[self.of].T
        inside = (first >= self.begins) & (last < self.ends)
        positions = np.stack([first, last], axis=1) - self.begins[:, None] + self.offsets[:, None]
        return np.where(inside[:, None], positions, self.nulls[:, None])

    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """The right position of each row for ``start`` and ``end``."""
        places = torch.from_numpy(self.targets[indices].T.copy())
        return {
            name: Target(torch.arange(rows) * length, right) for name, right in zip((START, END), places, strict=True)
        }
