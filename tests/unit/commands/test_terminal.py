"""Tables of Markdown in a terminal: nothing is cut, however narrow it is."""

import io

import pytest
from rich.console import Console

from ablations.commands import terminal

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


@pytest.mark.parametrize("width", [120, 60, 45, 34, 20])
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


def test_rows_become_columns_before_they_become_blocks():
    narrow = {width: printed(width) for width in (120, 32, 20)}
    assert "15 %" in narrow[120].splitlines()[3]
    assert any("15 %" in line and "a | b" in line for line in narrow[32].splitlines())
    assert "masking rate: 15 %" in narrow[20]
