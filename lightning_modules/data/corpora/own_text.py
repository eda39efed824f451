"""The user's own corpora: text files by a glob, data sets of the Hugging Face hub or in its formats on disk."""

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora import plain_text
from lightning_modules.data.corpora.sources import Unavailable, loaded
from lightning_modules.places import data_home, project

HELDOUT_EVERY = 20

# Data sets of the hub whose rows are not documents. "headings": lines of wiki text, a document starts at a line
# "= Title ="; "lines": sentences without document boundaries, grouped into documents of 256 rows.
ROWS = {"wikitext": "headings", "bookcorpus": "lines"}
_RUN = 256
_MOST_FOLDERS = 20_000  # that ``**`` matches
_TITLE = re.compile(r"^\s*= [^=].* =\s*$")


def text_files(pattern: str) -> list[Path]:
    """The files that a glob of the user's matches, sorted; a relative pattern starts from `places.project`.

    ``**`` is any folder below, and follows no links to folders, which may lead back.
    """
    full = str(project() / Path(pattern).expanduser())
    walked = itertools.count(1)
    paths = sorted({Path(p) for p in _matches(full, walked) if Path(p).is_file()})
    if not paths:
        raise ConfigError(
            [
                f"No file matches '{pattern}' (full pattern: {full}). Give a glob of UTF-8 files, "
                f"for example '~/corpus/*{Path(pattern).suffix or '.txt'}'."
            ]
        )
    return paths


def _matches(pattern: str, walked: Iterator[int]) -> Iterator[str]:
    """What a pattern matches, as `glob` says, but for links to folders, which ``**`` does not follow.

    Args:
        walked: Counts the folders that ``**`` matches.
    """
    above, recursive, below = (pattern + os.sep).partition(f"{os.sep}**{os.sep}")
    while below.startswith(f"**{os.sep}"):  # as one
        below = below.removeprefix(f"**{os.sep}")
    if not recursive:
        yield from glob.glob(pattern)
        return
    for top in glob.glob(above or os.sep):
        for folder, inner, _ in os.walk(top):
            inner[:] = [name for name in inner if not name.startswith(".")]
            if next(walked) > _MOST_FOLDERS:
                text = f"'{pattern}' matches more than {_MOST_FOLDERS:,} folders. Name the folders of the text."
                raise ConfigError([text])
            yield from _matches(os.path.join(glob.escape(folder), below.rstrip(os.sep) or "*"), walked)


def text_documents(pattern: str) -> Iterator[list[str]]:
    """The lines of each document: blank lines separate documents; a file without blank lines is one document.

    Raises:
        ConfigError: For a file that is no plain text, before any is read: JSON lines, tables, markup, archives ...
    """
    paths = text_files(pattern)
    plain_text.refuse_other_formats(paths)
    for path in paths:
        for blank, lines in itertools.groupby(plain_text.lines(path), key=lambda line: not line.strip()):
            if not blank:
                yield [" ".join(line.split()) for line in lines]


def split_by_position(documents: Iterable[list[str]], split: str, every: int, name: str) -> Iterator[list[str]]:
    """Holds out every ``every``-th document; if there are fewer, the last one.

    Raises:
        ConfigError: When there are fewer than two documents.
    """
    waiting: list[str] | None = None
    number = -1
    for number, document in enumerate(documents):
        if waiting is not None and split == "train":
            yield waiting
        waiting = document if number % every != every - 1 else None
        if waiting is None and split == "heldout":
            yield document
    if number < 1:
        raise ConfigError(
            [
                f"'{name}' has {'one document' if number == 0 else 'no text'}. A corpus needs at least two documents, "
                "one to train on and one to hold out. Separate documents by blank lines or files."
            ]
        )
    if waiting is not None and (split == "heldout") == (number < every - 1):
        yield waiting


def hub_place(name: str) -> tuple[str, str | None, bool]:
    """``<dataset>[/<config>]`` -> (path, configuration, whether it is on this disk); folders come before the hub.

    A folder is an absolute path or one below ``ABLATIONS_DATA``. On the hub a data set is ``name`` or ``owner/name``:
    one slash separates owner and name, a second one the configuration.
    """
    home = data_home()
    for folder in (Path(name).expanduser(), *((home / name, home / "pretrain" / name) if home else ())):
        if folder.is_absolute() and folder.is_dir():
            return str(folder), None, True
    owner, _, rest = name.partition("/")
    if rest.count("/") or owner in ROWS:
        path, _, config = name.rpartition("/")
        return (path, config, False) if path else (name, None, False)
    return name, None, False


def hub_documents(name: str, split: str) -> Iterator[list[str]]:
    """The lines of each document of a data set with a text column.

    Its validation or test split is held out; without one, every 20th document.
    """
    layout = ROWS.get(hub_place(name)[0].rpartition("/")[2], "documents")
    yield from hub_rows(name, split, lambda rows: _documents(rows, layout, name))


def hub_rows(name: str, split: str, documents: Callable[[Iterable[dict]], Iterator[list[str]]]) -> Iterator[list[str]]:
    """The documents that rows of a data set make, of its training part or of what is held out."""
    _, parts = _loaded(name)
    official = next((part for part in ("validation", "test") if part in parts), None)
    if official:
        yield from documents(parts["train" if split == "train" else official])
    else:
        yield from split_by_position(documents(parts["train"]), split, HELDOUT_EVERY, f"hub:{name}")


def _loaded(name: str) -> tuple[str, dict]:
    path, config, _ = hub_place(name)
    advice = (
        "Put the data set as parquet or JSON lines under ABLATIONS_DATA, or connect to the hub. Other corpora: "
        "'wikipedia-mini' works offline, 'text:<glob>' reads your own files."
    )
    try:
        parts = loaded(path, config, streaming=True)
    except Unavailable as reason:
        raise ConfigError([f"'hub:{name}' {reason}. {advice}"]) from None
    if "train" not in parts:
        raise ConfigError([f"'hub:{name}' has no split 'train'. It has {', '.join(sorted(map(str, parts)))}."])
    return path, parts


def _documents(rows: Iterable[dict], layout: str, name: str) -> Iterator[list[str]]:
    current: list[str] = []
    for row in rows:
        if "text" not in row:
            raise ConfigError([f"'hub:{name}' has no column 'text'. It has {', '.join(sorted(row))}."])
        lines = [flat for line in row["text"].split("\n") if (flat := " ".join(line.split()))]
        starts = layout == "documents" or (
            len(current) >= _RUN if layout == "lines" else bool(_TITLE.match(row["text"]))
        )
        if starts and current:
            yield current
            current = []
        current += [] if layout == "headings" and row["text"].lstrip().startswith("= ") else lines
    if current:
        yield current
