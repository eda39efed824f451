"""Texts that somebody else may have put into a file: what must not come of them."""

import csv
import html
import io
import re
import unicodedata
from html.parser import HTMLParser

from markdown_it import MarkdownIt

COMMANDS = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control and format characters, half characters, line and paragraph ends
TEXTS = {
    "formula": '=HYPERLINK("//evil";"x") \\input{x} %_#^~&',
    "markup": "`<svg x=' </td><script>run()</script>|~'> [x](javascript:run()) ![x](//evil) {raw}`<b>` &lt;b&#62; $x$",
    "formula behind white space": " \t\r\n\u200b@SUM(1+1)|' /C calc'!A0",
    "terminal": "\x1b]0;pwned\x07\x1b[31m\x9b31m\u202eright\u2066\u200b\U000e0041\x7f[bold red]x[/red] :warning: \r\nx",
    "block": "# x ```{include} /x ::: (x)= --- \n# y\n:::{raw} html\n<b>\n:::\n[x]: javascript:run()\n```{raw} html",
}
_ELEMENTS = {"h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "strong", "em",
             "code", "a", "img", "pre"}  # fmt: skip
_PLACE = re.compile(r"(https://[\w./-]+|[\w./-]+)(#[\w-]+)?")  # where links may lead: on, or to files beside
_STYLE = re.compile(r"text-align:(left|right|center)")  # of the columns of tables


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.text, self.wrong = "", []

    def handle_starttag(self, tag, attributes):
        self.wrong += [tag] * (tag not in _ELEMENTS)
        for name, value in attributes:
            allowed = {"href": _PLACE, "src": _PLACE, "style": _STYLE, "alt": re.compile(r'[^<>"]*')}
            if name not in allowed or not allowed[name].fullmatch(value or ""):
                self.wrong.append(f"{tag} {name}={value}")

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.wrong.append("comment")


def rendered(markdown):
    """The text of a page of Markdown, which has the elements of plain Markdown alone, and no link elsewhere."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    reader.validateLink = lambda url: True  # others may let everything pass
    page = _Page()
    page.feed(reader.render(markdown))
    page.close()
    assert page.wrong == []
    assert_plain(markdown)
    return page.text


def assert_plain(text):
    """No character but line ends commands whoever shows the text."""
    found = {c for c in text if unicodedata.category(c) in COMMANDS} - {"\n"}
    assert found == set(), found


def assert_no_formula(text):
    """The fields of a CSV file are numbers, or text that no spreadsheet runs, without control characters."""
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    for field in (field for row in rows for field in row):
        assert_plain(field)
        is_number = re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", field)
        assert is_number or not unicodedata.normalize("NFKC", field.strip()).startswith(("=", "+", "-", "@")), field


def shown(text):
    """What a terminal shows: the text without colours, which must hold no other command."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert_plain(plain)
    return html.unescape(plain)
