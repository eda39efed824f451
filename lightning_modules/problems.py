"""What is wrong with a user's input: where, what, and the nearest valid spelling."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """One problem of a configuration: where it is, what it is, and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(ValueError):
    """All problems of a configuration, reported together."""

    def __init__(self, problems: Iterable[Problem | str]) -> None:
        self.problems = [p if isinstance(p, Problem) else Problem("", p) for p in problems]
        super().__init__("\n".join(map(str, self.problems)))


_MOST_LISTED = 40  # names; of more, only the nearest help


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that is most similar; None if nothing is similar."""
    return next(iter(difflib.get_close_matches(str(word), sorted(map(str, allowed)), n=1, cutoff=0.6)), None)


def did_you_mean(word: str, allowed: Iterable[str], *, listed: bool = False) -> str:
    """`` Did you mean 'rate'?``, or the whole list if nothing is similar. Starts with a space.

    Of a list too long to read, the nearest names and how many there are.

    Args:
        listed: Whether the whole list follows the nearest name too.
    """
    names = sorted(map(str, allowed))
    near = nearest(word, names)
    if near:
        return f" Did you mean '{near}'?" + f" Allowed: {', '.join(names)}." * listed
    if len(names) > _MOST_LISTED:
        few = difflib.get_close_matches(str(word), names, n=3, cutoff=0.0)
        return f" The nearest of {len(names)}: {', '.join(few)}."
    return f" Allowed: {', '.join(names)}." if names else ""


def entry_of(table: Mapping[str, T], name: str, what: str, path: str = "") -> T:
    """The entry of a table with that name.

    Args:
        what: What an entry is called.
        path: Where the name is from.

    Raises:
        ConfigError: For an unknown name, with the nearest one.
    """
    if name not in table:
        raise ConfigError([Problem(path, f"there is no {what} '{name}'.{did_you_mean(name, table)}")])
    return table[name]
