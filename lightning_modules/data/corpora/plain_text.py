"""Plain text by its files: tables, markup and binary formats are refused by name, bytes that are no text by place."""

import codecs
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lightning_modules.config import ConfigError
from lightning_modules.files import open_plain

# What a file with one of these suffixes is. Text under any other suffix, or without one, is read.
_SUFFIXES = {
    "JSON": ".json .jsonl .ndjson .ipynb",
    "a table": ".csv .tsv .parquet .arrow .feather .xls .xlsx .ods",
    "structured data": ".json5 .yaml .yml .toml .ini .sql",
    "a file of subtitles": ".vtt .srt",
    "markup": ".html .htm .xhtml .xml .rtf",
    "a typeset document": ".pdf .ps .djvu .epub .doc .docx .odt",
    "compressed": ".gz .tgz .bz2 .xz .zst .lz4 .zip .7z .rar .tar",
    "binary": ".npy .npz .pkl .pickle .pt .pth .ckpt .safetensors .h5 .hdf5 .mat .sqlite .db .exe .so .dll .pyc",
}
_OF_SUFFIX = {suffix: what for what, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
# A mapping or a list up to the colon or comma behind its first string: prose goes on otherwise behind a quotation.
_DATA = rb"(\[\s*)*(\{\s*%(string)b\s*:|(?<=[\[\s])%(string)b\s*(,\s*[\[{\"'\d]|\]))"
# A first tag or comment with nothing behind it in its line, or another tag, or text up to a closing tag.
_TAG = rb"""<(!--.*?--|[a-z][\w:.-]*(\s+[\w:.-]+\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>]+))*\s*/?)>"""
_MARKED = rb"(?=<)|[ \t\r]*(\n|\Z)|[^\n]*</[\w:.-]+>[ \t\r]*(\n|\Z)"
# What a file is that begins so, whatever its suffix. Formats whose first bytes are no text need no entry.
_OPENINGS = {
    "JSON": _DATA % {b"string": rb'"(\\.|[^"\\])*"'},
    "Python data": _DATA % {b"string": rb"'(\\.|[^'\\])*'"},
    "a file of subtitles": rb"WEBVTT[ \t\r]*(-[^\n]*)?(\n|\Z)",
    "markup": rb"<(\?xml|!doctype|html)\b|\{\\rtf|" + _TAG + rb"(" + _MARKED + rb")",
    "a typeset document": rb"%PDF-|%!PS",
    "compressed": rb"PK\x03\x04|\x1f\x8b|BZh\d1AY",
    "binary": rb"\x7fELF|\x93NUMPY|PAR1",
}
_OPENING_BYTES = 1 << 16
_MARKED_BYTES = 1 << 13  # in which markup shows itself; its form takes the square of them
_PART = 1 << 20  # bytes of a line that are looked at before more are read
_LONGEST_LINE = 1 << 24  # characters; ten times a long novel, and the words of a line take twenty times its memory
_ROWS = (
    "JSON lines are read as 'jsonl:<column>:<glob>'. A folder of JSON lines, CSV or parquet is read as 'hub:{folder}', "
    "by its column 'text'."
)
_OTHER = "Convert it to text, or give a glob that leaves it out, for example 'text:{folder}/*.txt'."


def refuse_other_formats(paths: Sequence[Path]) -> None:
    """Refuses files that are no plain text by suffix or by the way they begin.

    Raises:
        ConfigError: With the first such file, what it is, how many more there are, and how to read such text.
    """
    formats = {path: found for path in paths if (found := _other_format(path))}
    if formats:
        path, found = next(iter(formats.items()))
        more = f" (and {len(formats) - 1} more of {len(paths)} files)" if len(formats) > 1 else ""
        advice = (_ROWS if found in ("JSON", "a table") else _OTHER).format(folder=path.parent)
        raise ConfigError([f"{path}{more} is {found}, not plain text. {advice}"])


def _other_format(path: Path) -> str | None:
    if what := _OF_SUFFIX.get(path.suffix.lower()):
        return what
    with open_plain(path) as file:
        opening = (file.read(_OPENING_BYTES) or b"").removeprefix(b"\xef\xbb\xbf").lstrip()
    for what, form in _OPENINGS.items():
        part = opening[:_MARKED_BYTES] if what == "markup" else opening
        if re.match(form, part, re.IGNORECASE | re.DOTALL):
            return what
    return None


def lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, each with its end (\n or \r\n), without its byte order mark.

    Raises:
        ConfigError: At the first byte that is no text: NUL, or not UTF-8; with line and byte, from 1. At a line that is
            longer than any text.
        Refused: If it is no plain file.
    """
    try:
        with io.TextIOWrapper(open_plain(path), "utf-8-sig", newline="\n") as file:
            while line := file.readline(_LONGEST_LINE + 1):
                if "\0" in line:
                    raise _no_text(path)
                if len(line) > _LONGEST_LINE:
                    many = f"more than {_LONGEST_LINE:,} characters. Break it into lines or paragraphs."
                    raise ConfigError([f"{path} has a line of {many}"])
                yield line
    except UnicodeDecodeError:
        raise _no_text(path) from None


def _no_text(path: Path) -> ConfigError:
    """The error that says where the first such byte is: a decoder counts from its last read buffer."""
    before = lines_before = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_plain(path) as file:
        while part := file.readline(_PART):
            kept = len(decoder.getstate()[0])  # bytes of a letter that the last part cut
            try:
                whole = part.endswith(b"\n") or len(part) < _PART
                decoder.decode(part.replace(b"\0", b"\xff"), final=whole)  # which is no UTF-8 either
            except UnicodeDecodeError as error:
                before += error.start - kept
                break
            before += len(part)
            lines_before += part.endswith(b"\n")
    place = f"byte {before + 1:,}, in line {lines_before + 1:,}"
    return ConfigError([f"{path} is not UTF-8 text ({place}). Convert it to UTF-8, or give a glob that leaves it out."])
