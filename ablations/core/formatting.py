"""Formats numbers and names, and renders a table in three notations: Markdown, CSV and LaTeX.

Every renderer escapes every cell and heading for its notation: a variant may have any name, and a file of another store
any text. The functions that escape are `markdown_text`, `markdown_code` and `markdown_safe`, `csv_entry`, `latex_text`,
`terminal_text` and `json_text`. None reads the locale. A table is a :class:`Sheet`; the code that fills it knows no
notation.
"""

import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import pandas as pd

    from ablations.core.statistics import Interval

Entry = str | float | int | bool | None


@dataclass(frozen=True)
class Sheet:
    """A table, independent of notation.

    Attributes:
        headings: One per column.
        rows: Text is shown verbatim; numbers have eight digits; None is an empty cell.
        left: How many leading columns are names (left-aligned); the others are right-aligned.
        notes: Sentences below the table (Markdown and LaTeX only).
        brief: Headings that are kept where there is no room for all; by default the leading ones.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    left: int = 1
    notes: Sequence[str] = ()
    brief: Sequence[str] = ()

    def narrow(self, most: int) -> "Sheet":
        """The table with at most so many columns: names, then those of ``brief``, then the leading ones."""
        heads = [*self.headings]
        places = [*range(self.left), *(heads.index(name) for name in self.brief if name in heads), *range(len(heads))]
        kept = sorted([*dict.fromkeys(places)][:most])
        pick = [[row[n] for n in kept] for row in (self.headings, *self.rows)]
        return replace(self, headings=list(map(str, pick[0])), rows=pick[1:], left=min(self.left, most))


# --- numbers and names


def places(spread: float | None, value: float) -> int:
    """Decimals to print: two digits of the uncertainty, or four digits of the value without one.

    Negative where digits before the point are left out.

    >>> places(4491.0, 16475.0), places(None, 1.5)
    (-2, 3)
    """
    scale, digits = (spread, 2) if spread else (abs(value), 4)
    if not scale:
        return 2
    return min(8, digits - 1 - math.floor(math.log10(scale)))


def fixed(value: float, decimals: int, *, sign: bool = False) -> str:
    """A number with fixed decimals, never ``-0.00``; negative ones round before the point.

    >>> fixed(-0.0004, 2), fixed(0.214, 2, sign=True), fixed(16475.3, -2)
    ('0.00', '+0.21', '16,500')
    """
    rounded = round(value, decimals) + 0.0
    return f"{rounded:{'+' if sign and rounded else ''},.{max(0, decimals)}f}"


def mean_text(interval: "Interval") -> str:
    """``4.213 ± 0.021``, or ``0 ± 0``; the bare mean and ``(n = 1)`` without an interval; empty without data."""
    if interval.mean is None:
        return ""
    decimals = places(interval.half, interval.mean)
    if interval.half is None:
        return f"{fixed(interval.mean, decimals)} (n = {interval.n})"
    if not interval.half:  # all runs are equal
        return f"{quantity(interval.mean) if abs(interval.mean) >= 1e4 else f'{interval.mean:.4g}'} ± 0"
    return f"{fixed(interval.mean, decimals)} ± {fixed(interval.half, decimals)}"


def difference_text(interval: "Interval") -> str:
    """``+0.21 [0.15, 0.27]``, or the bare difference and ``(n = 1)``; empty without data."""
    if interval.mean is None:
        return ""
    decimals = places(interval.half, interval.mean)
    mean = fixed(interval.mean, decimals, sign=True)
    return f"{mean} {range_text(interval)}" if interval.half is not None else f"{mean} (n = {interval.n})"


def range_text(interval: "Interval") -> str:
    """``[0.15, 0.27]``, or ``n/a (n = 1)``."""
    if interval.low is None or interval.high is None or interval.mean is None:
        return f"n/a (n = {interval.n})"
    decimals = places(interval.half, interval.mean)
    return f"[{fixed(interval.low, decimals)}, {fixed(interval.high, decimals)}]"


def quantity(count: float | None) -> str:
    """A large count with three digits and a prefix.

    >>> quantity(3_276_800), quantity(950), quantity(1.1e14), quantity(None)
    ('3.28 M', '950', '110 T', '')
    """
    if count is None:
        return ""
    for size, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= 0.9995 * size:  # includes what three digits round up to it
            return f"{count / size:.3g} {prefix}"
    return f"{count:.3g}"


def duration(seconds: float) -> str:
    """Readable seconds: ``48 s``, ``12 min``, ``3.4 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def span_text(values: Collection[float], text: Callable[[Any], str]) -> str:
    """The least and the greatest value as ``4 to 12``; one text where both have the same."""
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def is_share(path: str) -> bool:
    """Whether a knob is a share from 0 to 1, shown in per cent; a learning rate is not."""
    return path.rpartition(".")[2] in {"rate", "share"}


def value_text(path: str, value: Any) -> str:
    """The value of a knob as text: rates in per cent, switches as on and off.

    >>> value_text("objectives.mlm.masking.rate", 0.15), value_text("optimizer.lr", 1e-3), value_text("x.y", None)
    ('15 %', '0.001', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return " + ".join(value_text(path, item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{path_text(inner)} {value_text(inner, item)}" for inner, item in value.items())
    if is_share(path) and isinstance(value, (int, float)):
        return f"{100 * value:.6g} %"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value_texts(values: Mapping[str, Any], paths: Sequence[str]) -> list[Entry]:
    """The values of some knobs, as text; None for one that is not among them."""
    return [value_text(path, values[path]) if path in values else None for path in paths]


_NAMES = {
    "finetuning.head_pruning.share": "heads removed",
    "finetuning.head_pruning.order": "order",
    "finetuning.weight_pruning.share": "weights removed",
}  # where words of the path say too little


def path_text(path: str) -> str:
    """A short name of a knob: its last word, with the word before if the last alone is unclear.

    >>> path_text("objectives.mlm.masking.rate"), path_text("model.num_layers"), path_text("model.sharing")
    ('masking rate', 'num_layers', 'sharing')
    >>> path_text("finetuning.head_pruning.share")
    'heads removed'
    """
    if path in _NAMES:
        return _NAMES[path]
    *_, leaf = words = path.split(".")
    return leaf if "_" in leaf else " ".join(words[-2:]).removeprefix("model ")


def axis_text(path: str) -> str:
    """The name of a knob in plain words, for the axis of a figure.

    >>> axis_text("model.num_layers"), axis_text("model.embedding_size"), axis_text("objectives.mlm.masking.rate")
    ('number of layers', 'embedding size', 'masking rate')
    """
    words = path_text(path).replace("_", " ")
    return f"number of {words.removeprefix('num ')}" if words.startswith("num ") else words


def cell_text(values: dict[str, Any]) -> str:
    """``masking rate 40 %, num_layers 4``. Names of variants are alone."""
    shown = (f"{path_text(path)} {value_text(path, v)}" if "." in path else str(v) for path, v in values.items())
    return ", ".join(shown) or "the base"


# --- notations

_INVISIBLE = {"Cf", "Cs", "Co", "Cn"}  # bidirectional overrides, joiners, surrogates, private use
_COMMANDS = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # what moves a cursor, starts a sequence, turns or hides text
_JOINERS = "\u200c\u200d"  # between letters of Persian and Hindi, and between the parts of an emoji: they move nothing
_UNUSUAL = re.compile(rf"[^\n -~{_JOINERS}]")


def capital(text: str) -> str:
    """The text with its first letter in upper case, as a sentence begins."""
    return text[:1].upper() + text[1:]


def split_unit(label: str) -> tuple[str, str]:
    """``held-out loss (nats)`` -> ``("held-out loss", "nats")``; no unit without brackets."""
    name, bracket, unit = label.rstrip(")").rpartition(" (")
    return (name, unit) if bracket and label.endswith(")") else (label, "")


def printable(text: str) -> str:
    """One line of visible characters: control characters and line ends become spaces, format characters are removed."""
    if text.isascii() and text.isprintable():  # nearly every text, and 50 times faster
        return " ".join(text.split())
    kept = (" " if unicodedata.category(c) in {"Cc", "Zl", "Zp"} else c for c in unicodedata.normalize("NFC", text))
    return " ".join("".join(c for c in kept if unicodedata.category(c) not in _INVISIBLE or c in _JOINERS).split())


def _text(entry: Entry) -> str:
    if entry is None:
        return ""
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    if isinstance(entry, float):
        return f"{entry:.8g}"
    return printable(str(entry))


def terminal_text(text: str) -> str:
    r"""Lines for a terminal: control and format characters are spelt out, as in ``\x1b``; tabs become spaces."""
    return _UNUSUAL.sub(lambda match: _spelt(match[0], lambda one: ascii(one)[1:-1]), text.expandtabs())


def json_text(text: str) -> str:
    r"""JSON with control and format characters in its strings as ``\u202e``; a parser reads the same."""
    return _UNUSUAL.sub(lambda match: _spelt(match[0], _escape), text)


def _escape(character: str) -> str:
    """A character as JSON spells it, which is in units of UTF-16."""
    return re.sub("(....)", r"\\u\1", character.encode("utf-16-be", "surrogatepass").hex())


def _spelt(character: str, name: Callable[[str], str]) -> str:
    return name(character) if unicodedata.category(character) in _COMMANDS else character


_MARKDOWN = re.compile(r"[\\`*<>|$~]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|\[(?=\^)")
# What starts a block: lists, headings, rules; fences, comments, breaks and targets of MyST; the label of a link.
_BLOCK = re.compile(
    r"\d{1,9}(?=[.)](?: |$))|(?=#{1,6}(?: |$)|[-+](?: |$)|-[- ]*-$|:::|%|\+\+\+|\(.+\)=$"
    r"|\[[^\[\]]*\]:|\[(?!-?[\d.])[^\[\]]*\]$)"
)
# Markdown without the start of a block: escapes, entities, code that is no role of MyST, emphasis, other characters.
_SAFE = re.compile(
    rf"(?!{_BLOCK.pattern}|\* |[*_ ]+$)(?:\\[!-/:-@\[-`{{-~]|&(?:amp|lt|gt);|(?<![`}}])`[^`<>|]+`(?!`)|\*|"
    rf"\](?!\()|\[(?!\^)|[^\\`*<>|$~&\[\]])*"
)


def markdown_text(text: str) -> str:
    """Escapes text so that Markdown shows it verbatim: no markup, HTML, mathematics, links, new column or block."""
    line = printable(text)
    escaped = _MARKDOWN.sub(lambda match: "\\" + match[0], line.replace("&", "&amp;"))
    if block := _BLOCK.match(line):
        escaped = f"{escaped[: block.end()]}\\{escaped[block.end() :]}"
    return escaped.replace("\\<", "&lt;").replace("\\>", "&gt;")


def markdown_code(text: str) -> str:
    """Text as code of Markdown; escaped instead if it has a backtick or a bar, which no code can hold in a table."""
    line = printable(text)
    return f"`{line}`" if line and not {"`", "|"} & {*line} else markdown_text(line)


def markdown_link(text: str, target: str) -> str:
    """A link of Markdown with its text as it is, to a file or folder."""
    escaped = re.sub(r"\\.|[\[\]]", lambda match: match[0] if match[0][1:] else f"\\{match[0]}", markdown_text(text))
    return f"[{escaped}]({quote(target)})"


def markdown_safe(text: str) -> str:
    """Markdown of a file: as it is if it holds text, emphasis and code alone, as `markdown_text` shows it otherwise."""
    line = printable(text)
    return line if _SAFE.fullmatch(line) else markdown_text(line)


class Pages(str):
    """Names of pages of results, ``grid/scale, ...``: links in Markdown next to their folders, text elsewhere."""


def _markdown_entry(entry: Entry) -> str:
    if isinstance(entry, Pages):
        return ", ".join(markdown_link(name, f"{name}/README.md") for name in filter(None, entry.split(", ")))
    return markdown_text(_text(entry))


def markdown(sheet: Sheet) -> str:
    """A GitHub table with its notes below, one paragraph each."""
    rules = [":--" if column < sheet.left else "--:" for column in range(len(sheet.headings))]
    lines = [[_markdown_entry(entry) for entry in row] for row in (sheet.headings, *sheet.rows)]
    table = "".join("| " + " | ".join(line) + " |\n" for line in (lines[0], rules, *lines[1:]))
    return table + "".join(f"\n{markdown_text(note)}\n" for note in sheet.notes)


def comma_separated(sheet: Sheet) -> str:
    """CSV with Unix line ends; an apostrophe precedes text that a spreadsheet would run as a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (sheet.headings, *sheet.rows):
        writer.writerow([csv_entry(entry) for entry in row])
    return out.getvalue()


_FORMULAS = re.compile(r"(?:(?<=^)|(?<=;)|(?<=; ))(?=[=+\-@＝＋－＠])")  # spreadsheets read the wide ones too


def csv_entry(entry: Entry) -> str:
    """An entry as a field of a CSV file, with an apostrophe before what a spreadsheet would run as a formula.

    That is at its beginning, and behind a semicolon, which separates fields where a comma is in numbers.
    """
    text = _text(entry)
    return _FORMULAS.sub("'", text) if isinstance(entry, str) else text


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--",
    "—": "---", "…": r"\dots{}", "≥": r"$\geq$", "≤": r"$\leq$", "·": r"$\cdot$", "`": r"\textasciigrave{}",
}  # fmt: skip


def latex_text(text: str) -> str:
    """Escapes text so that LaTeX prints it verbatim. Characters beyond Latin-1 without a command become code points."""
    out = []
    for c in printable(text):
        is_known = c.isascii() or (ord(c) < 256 and c.isalpha())
        out.append(_LATEX.get(c, c if is_known else f"U+{ord(c):04X}"))
    joined = "".join(out)
    # LaTeX would read it as an argument of the row before
    return "{}" + joined if joined.startswith(("[", "*")) else joined


def latex(sheet: Sheet) -> str:
    """A ``tabular`` for a document to input; it needs no LaTeX package."""
    columns = "".join("l" if column < sheet.left else "r" for column in range(len(sheet.headings)))
    head, *lines = [" & ".join(latex_text(_text(one)) for one in row) + r" \\" for row in (sheet.headings, *sheet.rows)]
    body = [r"\begin{tabular}{" + columns + "}", r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"]
    return "\n".join([*body, *[r"\par\smallskip\noindent " + latex_text(note) for note in sheet.notes]]) + "\n"


def frame_table(rows: "pd.DataFrame") -> str:
    """A DataFrame as a Markdown table."""
    head, *lines = (
        "| " + " | ".join(markdown_text(str(value)) for value in row) + " |"
        for row in ([*rows.columns], *rows.values.tolist())
    )
    return "\n".join([head, "|" + " --- |" * len(rows.columns), *lines])
