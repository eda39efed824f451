"""A column of JSON lines: one object a line, one text each. No other column is looked at."""

import json
from collections.abc import Iterator
from pathlib import Path

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora import plain_text
from lightning_modules.data.corpora.own_text import text_files

PREFIX = "jsonl"  # starts the names of corpora: ``jsonl:<column>:<glob>``


def split_name(rest: str) -> tuple[str, str]:
    """``<column>:<glob>`` -> both.

    Raises:
        ConfigError: If one of them is missing.
    """
    column, colon, pattern = rest.partition(":")
    if not (column and colon and pattern):
        text = f"'{PREFIX}:{rest}' names no column or no files. Write '{PREFIX}:<column>:<glob>'"
        raise ConfigError([f"{text}, for example '{PREFIX}:text:~/reviews/*.jsonl'."])
    return column, pattern


def documents(rest: str) -> Iterator[list[str]]:
    """The lines of each text of a corpus ``jsonl:<column>:<glob>``, without empty texts.

    Raises:
        ConfigError: As `split_name` and `texts`, and when no file matches.
    """
    column, pattern = split_name(rest)
    for path in text_files(pattern):
        for text in texts(path, column):
            if lines := [flat for line in text.split("\n") if (flat := " ".join(line.split()))]:
                yield lines


def texts(path: Path, column: str) -> Iterator[str]:
    """The texts in a column of a file, in its order; blank lines are skipped.

    Raises:
        ConfigError: At the first line that is no JSON object, or whose column is missing or holds no text.
    """
    for number, line in enumerate(plain_text.lines(path), 1):
        if line.strip():
            yield _text(line, column, f"{path}, line {number}")


def _text(line: str, column: str, place: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{place} is no JSON: {error}. Each line must be one object with '{column}'."]) from None
    if not isinstance(row, dict):
        raise ConfigError([f"{place} is no JSON object. Each line must be one object with '{column}'."])
    if column not in row:
        raise ConfigError([f"{place} has no column '{column}'. It has {', '.join(row)}.{did_you_mean(column, row)}"])
    text = row[column]
    if not isinstance(text, str):
        raise ConfigError([f"{place} holds {text!r} in the column '{column}', which is no text. Name another column."])
    return text
