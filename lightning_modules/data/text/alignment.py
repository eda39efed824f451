"""The bytes of the original text behind each piece, so that losses of different encodings have one unit."""

from collections.abc import Sequence

import numpy as np

from lightning_modules.data.text.encode import Encoder


def piece_starts(encoder: Encoder, words: Sequence[str]) -> list[list[int]]:
    """Where each piece of each word starts in it, in bytes; 0 for the first, which holds the space before the word."""
    found = []
    for word, encoding in zip(words, encoder.fast.encode_batch(list(words), add_special_tokens=False), strict=True):
        letters = [len(letter.encode()) for letter in word]
        at = np.concatenate([[0], np.cumsum(letters, dtype=np.int64)])
        starts = [int(at[start]) + 1 for start, _ in encoding.offsets]  # after the space
        found.append([0, *starts[1:]] if starts else [])
    return found


def piece_bytes(encoder: Encoder, sentences: Sequence[str]) -> np.ndarray:
    """The bytes (UTF-8) behind each piece of sentences whose words are separated by single spaces ``[m]``.

    A piece owns the text from where it starts to where the next one starts; of pieces that cut a letter the last owns
    it. A word owns the space before it, and the first word of a sentence the break between sentences. The sum over a
    text is therefore the same for every tokenizer: its bytes, and one for each sentence's beginning. A word that a
    tokenizer drops belongs to the piece before it, or after it at the beginning.
    """
    words = " ".join(sentences).split(" ")
    known = {word: place for place, word in enumerate(dict.fromkeys(words))}
    starts = piece_starts(encoder, list(known))
    ends = np.cumsum([len(word.encode()) + 1 for word in words], dtype=np.int64)
    beginnings = np.concatenate([[0], ends])
    absolute = [beginnings[n] + start for n, word in enumerate(words) for start in starts[known[word]]]
    if not absolute:
        return np.zeros(0, dtype=np.int64)
    return np.diff(np.array([0, *absolute[1:], ends[-1]], dtype=np.int64))
