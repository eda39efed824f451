"""Released checkpoints: pretrained networks of others, each a row of ``checkpoints.yaml``.

A row says all that plans and pages need: settings, digests, source. A run finds the files in ``ABLATIONS_CHECKPOINTS``
and compares them with the row, so a name means the same weights everywhere.
"""

import functools
import os
from pathlib import Path
from typing import Any

import yaml

from lightning_modules import cached
from lightning_modules.config import ConfigError, Problem, Settings, did_you_mean, identity, knob, required
from lightning_modules.files import home_of, read, write_atomically
from lightning_modules.places import own, readable

FILE, HOME = "checkpoints.yaml", "ABLATIONS_CHECKPOINTS"
PREFIX = "checkpoint "  # before a name among the texts of a run
# of a tokenizer, as far as a folder has them; `interop.own_encoder` reads no other
TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "encoder.json", "vocab.bpe",
)  # fmt: skip
_LARGEST_ROWS = 1 << 20  # bytes


class Released(Settings):
    """A released checkpoint."""

    title: str = required("What pages call it.", min_length=1)
    family: str = required("Its family, the ``model_type`` of its configuration.")
    folder: str = required("Its folder below ABLATIONS_CHECKPOINTS, or a whole path.", min_length=1)
    source: str = knob("", "Where it is from.")
    licence: str = knob("", "Its licence.")
    fetch: str = knob("", "The command that puts it below ABLATIONS_CHECKPOINTS.")
    trained_on: str = knob("", "What it was trained on, in a few words.")
    tasks_seen: tuple[str, ...] = knob((), "Tasks whose texts, or texts like theirs, it was trained on.")
    knobs: dict[str, Any] = required("Knob of a system -> value, where it differs from the default.")
    digests: dict[str, str] = required("File -> SHA-256.", min_length=2)

    @property
    def place(self) -> Path:
        """Its folder on this machine, which need not be there."""
        home = os.environ.get(HOME, "")
        return Path(readable(os.path.realpath(os.path.join(os.path.expanduser(home), self.folder)), HOME))


def files() -> list[Path]:
    """The files of rows: the project's, then the user's own, to which `add` writes. In a checkout they are one."""
    return [Path(__file__).with_name(FILE), *own(FILE)]


def known() -> dict[str, Released]:
    """Name -> checkpoint.

    Raises:
        ConfigError: For a file that cannot be read, and for what is wrong with its rows.
    """
    rows: dict[str, Released] = {}
    for path in filter(Path.exists, files()):
        rows |= _rows(read(path, _LARGEST_ROWS), path.name)
    return rows


@functools.lru_cache(maxsize=8)
def _rows(content: bytes, name: str) -> dict[str, Released]:
    try:
        given = yaml.safe_load(content) or {}
        return {str(row): Released.read(values) for row, values in given.items()}
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError([f"{name} is no mapping of names to checkpoints: {error}"]) from None
    except ConfigError as error:
        raise ConfigError(Problem(f"{name}: {problem.path}", problem.message) for problem in error.problems) from None


def released(name: str) -> Released:
    """A checkpoint by name.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in (rows := known()):
        text = f"there is no checkpoint {name!r}.{did_you_mean(name, rows)} `ablations data add-checkpoint` adds one"
        raise ConfigError([Problem("checkpoint", text)])
    return rows[name]


def fingerprint(name: str) -> str:
    """What identifies the files of a checkpoint: weights, configuration and tokenizer."""
    return identity(dict(released(name).digests))[:16]


def digests(folder: Path) -> dict[str, str]:
    """The digests of a folder's configuration, weights and tokenizer, file by file."""
    names = ["config.json", "model.safetensors", *(name for name in TOKENIZER if (folder / name).exists())]
    return {name: cached.digest(folder / name, home_of(folder)) for name in names}


def lacking(name: str) -> str:
    """Why the folder of a checkpoint is not there, and the command that fetches it; empty if it is."""
    row = released(name)
    if row.place.is_dir():
        return ""
    home = os.environ.get(HOME)
    where = f"there is no {row.folder} in {HOME}, {home}" if home else f"{HOME} is not set, which names its folder"
    return f"{where}. To fetch it: `{row.fetch}`" if row.fetch else where


def add(name: str, row: Released) -> Path:
    """Writes a row to the last of `files`.

    Raises:
        ConfigError: If there is a checkpoint of that name, or the name is no word.
    """
    if not name.isidentifier() or name in known():
        taken = "there is one already" if name in known() else "a name is of letters, digits and _"
        raise ConfigError([Problem(f"checkpoint {name}", f"{taken}: choose another by --name")])
    path = files()[-1]
    before = read(path, _LARGEST_ROWS) if path.exists() else b""
    told = yaml.safe_dump({name: {key: value for key, value in row.to_dict().items() if value}}, sort_keys=False)
    write_atomically(path, lambda file: file.write(before.rstrip(b"\n") + b"\n" * bool(before) + told.encode()))
    return path


def checked(name: str) -> Path:
    """The folder of a checkpoint, whose files are those of its row.

    Raises:
        ConfigError: If it is not there, with the command that fetches it, or holds other files.
    """
    row = released(name)
    folder = row.place
    if absent := lacking(name):
        raise ConfigError([Problem(f"checkpoint {name}", absent)])
    there = {file: path for file in row.digests if (path := folder / file).is_file()}
    found = {file: cached.digest(path, home_of(folder)) for file, path in there.items()}
    other = [file for file, digest in row.digests.items() if found.get(file) != digest]
    if other:
        text = f"{', '.join(other)} in {folder} is not as its row in {FILE} says. Fetch it again, or add it by another"
        raise ConfigError([Problem(f"checkpoint {name}", text)])
    return folder
