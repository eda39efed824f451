"""One number per example, packed for a record: answers for ensembles, scores for the noise of examples."""

import base64
import zlib
from collections.abc import Mapping

import numpy as np

from lightning_modules.config import ConfigError

MOST_FLOATS = 4_000  # examples; those of two metrics take 21,000 bytes, a third of what a record may have
PROBABILITY = "probability"
MOST_PROBABILITIES = 8_000  # they take 22,000 bytes
_STEPS = 65_535  # of a probability
_FLOATS = {"half": np.dtype("<f2"), "single": np.dtype("<f4")}


def pack(values: np.ndarray) -> str:
    """``kind:count:base64`` of compressed bits (bool), whole numbers below 65,536, shares, or floating-point numbers.

    Shares, from 0 to 1, are stored in steps of 1/255, which is precise enough for EM and F1 of one example. Values of
    NumPy's ``float16`` and ``float32`` are stored as they are.

    >>> unpack(pack(np.array([True, False, True]))).tolist()
    [True, False, True]

    Raises:
        ValueError: For any other values.
    """
    if values.dtype == bool:
        kind, data = "bits", np.packbits(values).tobytes()
    elif values.dtype.kind in "iu" and (not len(values) or 0 <= values.min() <= values.max() < 1 << 16):
        kind, data = "whole", values.astype("<u2").tobytes()
    elif values.dtype in _FLOATS.values():
        kind = next(name for name, dtype in _FLOATS.items() if values.dtype == dtype)
        data = values.astype(_FLOATS[kind]).tobytes()
    elif values.dtype.kind == "f" and (not len(values) or 0 <= values.min() <= values.max() <= 1):
        kind, data = "share", np.round(values * 255).astype(np.uint8).tobytes()
    else:
        raise ValueError(f"values of {values.dtype} out of range cannot be packed")
    return f"{kind}:{len(values)}:{base64.b64encode(zlib.compress(data, 9)).decode()}"


def packed(values: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Packs what a record has room for: floating-point numbers only of `MOST_FLOATS` examples or fewer.

    >>> list(packed({"right": np.ones(5_000, bool), "spearman": np.ones(5_000, np.float16)}))
    ['right']
    """
    return {name: pack(of) for name, of in values.items() if of.dtype not in _FLOATS.values() or len(of) <= MOST_FLOATS}


def packed_probabilities(values: np.ndarray | None) -> dict[str, str]:
    """Probabilities of classes ``[n classes]`` in steps of 1/65,535, without those of the last class, under their name.

    Returns:
        Nothing for None, and for more than `MOST_PROBABILITIES` numbers.

    >>> kept = packed_probabilities(np.array([[0.25, 0.75], [1.0, 0.0]]))
    >>> unpack_probabilities(kept["probability"], 2).round(4).tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    """
    if values is None or values[:, :-1].size > MOST_PROBABILITIES:
        return {}
    return {PROBABILITY: pack(np.round(values[:, :-1] * _STEPS).astype(np.int64).ravel())}


def unpack_probabilities(text: str, classes: int) -> np.ndarray:
    """The probabilities that `packed_probabilities` packed ``[n classes]``.

    Raises:
        ConfigError: For a text that it did not write, or of another number of classes.
    """
    values = unpack(text) / _STEPS
    if classes < 2 or len(values) % (classes - 1):
        raise ConfigError([f"{len(values):,} values are no probabilities of {classes} classes"])
    all_but_last = values.reshape(-1, classes - 1)
    return np.column_stack([all_but_last, 1 - all_but_last.sum(axis=1)])


def unpack(text: str) -> np.ndarray:
    """The values that `pack` packed ``[n]``.

    Raises:
        ConfigError: For a text that `pack` did not write.
    """
    try:
        kind, count, data = text.split(":", 2)
        n = int(count)
        size = {"bits": -(-n // 8), "whole": 2 * n, "half": 2 * n, "single": 4 * n, "share": n}[kind]
        content = zlib.decompressobj().decompress(base64.b64decode(data, validate=True), size + 1)
        if len(content) != size:
            raise ValueError(f"{len(content)} bytes instead of {size}")
    except (ValueError, KeyError, zlib.error) as error:
        raise ConfigError([f"{text[:40]!r} is not a packed array: {error}"]) from None
    if kind == "bits":
        return np.unpackbits(np.frombuffer(content, np.uint8), count=int(count)).astype(bool)
    if kind in _FLOATS:
        return np.frombuffer(content, _FLOATS[kind]).astype(np.float64)
    return (
        np.frombuffer(content, "<u2").astype(np.int64) if kind == "whole" else np.frombuffer(content, np.uint8) / 255.0
    )
