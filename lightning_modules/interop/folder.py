"""Safe reading of untrusted folders: bounded sizes, JSON and safetensors only."""

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lightning_modules.config import ConfigError
from lightning_modules.files import Refused, home_of, open_plain, read_text

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_LARGEST_JSON = 64 << 20  # bytes; vocabularies are the largest
_MOST_VALUES = 1 << 22  # of a JSON file: a vocabulary of a million pieces with their scores or merges
_LARGEST_HEADER = 4 << 20  # bytes; tensors of a thousand layers have twice the room that they need
_PICKLES = (b"\x80", b"PK")  # first bytes of pickles and of torch's archives of them
_FLOATS = ("F64", "F32", "F16", "BF16")
_OTHERS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.index.json")


def text(path: Path) -> str:
    """A text file of the folder.

    Raises:
        ConfigError: When it cannot be read, is too large or is not UTF-8.
    """
    try:
        return read_text(path, _LARGEST_JSON, home_of(path.parent))
    except FileNotFoundError:
        told = f"there is no {path.name} in {path.parent}: name a folder of a checkpoint, as `ablations export` or "
        raise ConfigError([f"{told}save_pretrained of transformers writes it"]) from None
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is not UTF-8 text"]) from None


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ConfigError: When it cannot be read or is not a JSON object.
    """
    try:
        content = text(path)
        if sum(map(content.count, "[{,")) > _MOST_VALUES:
            raise ConfigError([f"{path} holds more than {_MOST_VALUES:,} values, the maximum"])
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"{path} is not JSON: {error}"]) from None
    if not isinstance(value, dict):
        raise ConfigError([f"{path} must hold a JSON object, not {type(value).__name__}"])
    return value


def fingerprint(folder: Path) -> str:
    """SHA-256 of a folder's configuration and weights."""
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        with open_plain(folder / name, home_of(folder)) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


class Tensors:
    """The tensors of a safetensors file: names and shapes first, contents on access.

    Attributes:
        shapes: Name -> shape.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self._file = path, file
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, no mapping
        self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        self._kinds = {name: part.get_dtype() for name, part in slices.items()}

    def __getitem__(self, name: str) -> Tensor:
        """A tensor as float32.

        Raises:
            ConfigError: When its values are not floats or not finite.
        """
        if self._kinds[name] not in _FLOATS:
            raise ConfigError(
                [f"{self.path}: {name} is of type {self._kinds[name]}. Weights must be {', '.join(_FLOATS)}."]
            )
        tensor = self._file.get_tensor(name).to(torch.float32)
        if not torch.isfinite(tensor).all():
            raise ConfigError([f"{self.path}: {name} has values that are not finite"])
        return tensor


@contextmanager
def tensors(folder: Path) -> Iterator[Tensors]:
    """The weights of a folder; only safetensors files are opened.

    Raises:
        ConfigError: When the safetensors file is missing, damaged or of another format.
    """
    path = folder / WEIGHTS
    if not path.exists():
        others = sorted(file.name for pattern in _OTHERS for file in folder.glob(pattern))
        instead = f" {', '.join(others[:4])} is not opened: pickles can run code, and weights must be in one file."
        advice = " Convert it with `model.save_pretrained(DIR)` of transformers." if others else ""
        raise ConfigError([f"{folder} has no {WEIGHTS}.{instead if others else ''}{advice}"])
    try:
        _check_format(path)
        with safe_open(path, "pt") as file:
            yield Tensors(path, file)
    except Refused as error:
        raise ConfigError([str(error)]) from None
    except (SafetensorError, OSError) as error:
        raise ConfigError([f"{path} is damaged or cut short: {error}"]) from None


def _check_format(path: Path) -> None:
    """Checks the first bytes of a safetensors file."""
    with open_plain(path, home_of(path.parent)) as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(9)
    if start.startswith(_PICKLES) and start[8:] != b"{":
        raise ConfigError([f"{path} is a pickle or an archive under another name. It is not opened."])
    header = struct.unpack("<Q", start[:8])[0] if len(start) == 9 else size
    if start[8:] != b"{" or header > size - 8:
        raise ConfigError([f"{path} is cut short or not in the safetensors format"])
    if header > _LARGEST_HEADER:
        limit = f"{_LARGEST_HEADER >> 20} MiB, which is room for the tensors of a thousand layers"
        raise ConfigError([f"{path} has a header of {header:,} bytes. At most {limit}, are allowed."])
