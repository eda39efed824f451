"""Tables of Markdown in a terminal: nothing is cut, however narrow it is."""

import errno
import io
import os

import pytest
import typer
from rich.console import Console

from ablations.commands import terminal
from ablations.core.counted import counted
from lightning_modules.config import ConfigError, Problem
from lightning_modules.files import Refused
from tests.every import every

CELLS = [["15 %", "4.210 ± 0.055", "0.668"], ["a \\| b", "3.988 ± 0.040", ""]]
TABLE = ["| masking rate | held-out loss (nats) | agreement |", "| :-- | --: | --: |"] + [
    f"| {' | '.join(row)} |" for row in CELLS
]


def printed(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(terminal._table(TABLE, width))
    return console.file.getvalue()


def words(text):
    return {word for word in text.replace(":", " ").split() if word.isprintable() and not set(word) & set("│┃━─")}


@every("width", [120, 60, 45, 34, 20])
def test_every_word_is_there_at_every_width_and_no_line_is_wider(width):
    text = printed(width)
    expected = {
        "15",
        "%",
        "4.210",
        "0.055",
        "0.668",
        "a",
        "|",
        "b",
        "3.988",
        "masking",
        "rate",
        "held-out",
        "agreement",
    }
    assert expected <= words(text)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def complained(error, capsys):
    with pytest.raises(typer.Exit) as ended, terminal.reporting_errors():
        raise error
    assert ended.value.exit_code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOENT, errno.EIO]
)
def test_a_path_that_cannot_be_used_is_a_message(capsys, number):
    said = complained(OSError(number, os.strerror(number), "/some/where"), capsys)
    assert said.startswith(f"/some/where: {os.strerror(number)}. ")
    assert len(said.splitlines()) == 1


def test_a_refused_file_and_two_paths_are_named(capsys):
    assert complained(Refused(errno.EINVAL, "is a pipe; move it away", "x"), capsys) == "x: is a pipe; move it away\n"
    said = complained(OSError(errno.EXDEV, "Invalid cross-device link", b"/a\xff", None, b"/b"), capsys)
    assert "/b: Invalid cross-device link" in said


@every("error", [OSError("lost"), OSError(errno.EBADF, "Bad file descriptor"), ValueError("lost")])
def test_an_error_without_a_path_keeps_its_traceback(error):
    with pytest.raises(type(error)), terminal.reporting_errors():
        raise error


def test_a_long_name_is_shown_by_its_ends(capsys):
    for text in (f"label: {'a' * 450_000} {'b' * 450_000} end", f"/{'x' * 5000}y: File name too long; choose another"):
        said = complained(ConfigError([text]), capsys)
        assert len(said) < 800
        assert said.startswith(text[:100])
        assert said.endswith(f"{text[-8:]}\n")
        assert "…" in said


def test_one_cause_at_many_places_is_said_once_with_their_number(capsys):
    same = [Problem(f"scales.{n}", "there is no such knob") for n in range(6)]
    said = complained(ConfigError([*same, Problem("seeds", "must be at least 1")]), capsys).splitlines()
    assert said == ["scales.0: there is no such knob (and 5 more like it)", "seeds: must be at least 1"]


class Terminal(io.StringIO):
    """A stream that people see."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "soon", "is_drawn"), [(Terminal, 0.0, True), (Terminal, 60.0, False), (io.StringIO, 0.0, False)]
)
def test_a_long_loop_is_drawn_on_a_terminal(stream, soon, is_drawn, monkeypatch):
    seen = stream()
    monkeypatch.setattr(terminal, "_SOON", soon)
    monkeypatch.setattr("sys.stderr", seen)
    with terminal.watching():
        assert list(counted("abc", "planning cells")) == ["a", "b", "c"]
    assert ("planning cells" in seen.getvalue()) == is_drawn
    assert list(counted("abc", "planning cells")) == ["a", "b", "c"]
