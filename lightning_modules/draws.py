"""Randomness as a function of position: the same noise for every variant, rank, micro-batch and worker.

A draw is a hash of (data seed, purpose, row key, column), never the next number of a stream. So the mask of the
thousandth presented sequence is the same with one worker or four, before or after a resume, at 15 % or 40 % masking:
variants of a grid are compared under common random numbers.

The hash is SplitMix64's finaliser (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"), applied twice; it passes the uniformity tests and costs microseconds per batch.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def _mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, elementwise; uint64 arithmetic wraps by design."""
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


def _key(*parts: object) -> np.uint64:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@dataclass(frozen=True)
class Draws:
    """The noise of one batch.

    Attributes:
        rows: One key per row ``[b]``: the presentation number (how many sequences were presented before this one
            since training began), so that the same sequence gets new noise in each epoch.
        sample: Number of each row's sequence in the store ``[b]``.
        epoch: How often each row's sequence was presented before ``[b]``.
    """

    seed: int
    rows: np.ndarray
    sample: np.ndarray
    epoch: np.ndarray
    stream: str = ""

    def of(self, which: np.ndarray) -> "Draws":
        """The noise of some rows, in this order."""
        return replace(self, rows=self.rows[which], sample=self.sample[which], epoch=self.epoch[which])

    def static(self, copies: int) -> "Draws":
        """The draws of ``copies`` fixed masks per sequence, used in turn: keyed by (sample, epoch mod copies)."""
        return replace(self, stream="static", rows=self.sample * copies + self.epoch % copies)

    def repeated(self, times: int) -> "Draws":
        """The draws of a batch that has each row so many times in turn: the same noise for each of them."""
        rows, sample, epoch = (np.repeat(values, times) for values in (self.rows, self.sample, self.epoch))
        return replace(self, rows=rows, sample=sample, epoch=epoch)

    def bits(self, purpose: str, columns: int) -> np.ndarray:
        """Independent 64-bit words ``[b columns]`` for one purpose."""
        with np.errstate(over="ignore"):
            row = _mixed(self.rows.astype(np.uint64) * _GOLDEN + _key(self.seed, self.stream, purpose))
            column = np.arange(1, columns + 1, dtype=np.uint64) * _GOLDEN
            return _mixed(row[:, None] + column[None, :])

    def uniform(self, purpose: str, columns: int) -> np.ndarray:
        """Uniform float64 numbers in [0, 1) ``[b columns]``: 53 random bits each."""
        return (self.bits(purpose, columns) >> _S11) * (1.0 / (1 << 53))

    def integers(self, purpose: str, columns: int, high: int) -> np.ndarray:
        """Uniform integers in [0, high) ``[b columns]``; the bias, below high / 2**53, is negligible."""
        return (self.uniform(purpose, columns) * high).astype(np.int64)


def continued(seed: int, ancestors: int) -> int:
    """The data seed of a training that starts where others of the same seed ended: new order, new noise.

    >>> continued(7, 0)
    7
    """
    return (
        int(_key(seed, "continued", ancestors) >> np.uint64(1)) if ancestors else seed
    )  # fits into 63 bits, as others


def of_rank(seed: int, rank: int) -> int:
    """The seed of dropout on a rank of a training: that of the training on the first, others on the others.

    >>> of_rank(7, 0)
    7
    """
    return int(_key(seed, "rank", rank) >> np.uint64(1)) if rank else seed


def text_digest(text: str) -> str:
    """SHA-256 of a text whose words are separated by single spaces."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def fraction(text: str) -> float:
    """A pseudo-random number in [0, 1) that is a function of the text."""
    return int(text_digest(text)[:12], 16) / 16**12


def permutation(seed: int, purpose: str, epoch: int, size: int) -> np.ndarray:
    """The order in which ``size`` items are visited in an epoch: a function of its arguments alone."""
    return np.random.Generator(np.random.Philox(key=int(_key(seed, purpose, epoch)))).permutation(size)
