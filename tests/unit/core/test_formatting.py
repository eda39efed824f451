import csv
import html
import io
import json
import re
import unicodedata

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ablations.core.formatting import (
    Sheet,
    cell_text,
    comma_separated,
    difference_text,
    frame_table,
    json_text,
    latex,
    latex_text,
    markdown,
    markdown_code,
    markdown_link,
    markdown_safe,
    markdown_text,
    mean_text,
    printable,
    quantity,
    terminal_text,
    value_text,
)
from ablations.core.statistics import Interval, mean_interval

HOSTILE = [
    "<script>alert(1)</script>",
    "$\\write18{rm -rf /}$",
    "&_%#~^{}\\",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2",
    "@SUM(A1)",
    "\t=1+1",
    "\r\n\u200b=1+1",
    "＝1+1",
    "two\nlines\r\nthree",
    "a|b",
    "[link](javascript:alert(1))",
    "`code` *bold* _it_ ~~gone~~",
    "\u202ereversed \u05d0\u05d1 \U0001f600",
]


def sheet(text):
    return Sheet(["name", text], [[text, 1.5], ["plain", None]], notes=[text])


# Texts of what Markdown, HTML and MyST read as markup, dense enough to form it.
MARKUP = st.text(alphabet="`*_<>&[]()!#-+.:|\\~${}%=1a \n\t\x1b\u202eé0,\"'/@;x", max_size=14)
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
READER.validateLink = lambda url: True  # other readers may let every address pass


def elements(text):
    """The names of the elements that Markdown makes, and the text in them."""
    made = READER.render(text)
    return {*re.findall(r"<(\w+)", made)}, " ".join(html.unescape(re.sub("<[^>]*>", " ", made)).split())


@given(MARKUP)
def test_markdown_shows_any_text_as_it_is(text):
    assert elements(markdown_text(text)) == ({"p"} if printable(text) else set(), printable(text))


@given(MARKUP, MARKUP)
def test_cells_of_markdown_show_any_text_as_it_is(first, second):
    tables = (
        markdown(Sheet([first, "x"], [[second, first]])),
        frame_table(pd.DataFrame({first: [second], "x": [first]})),
    )
    for table in tables if first != "x" else tables[:1]:
        cells = [html.unescape(cell) for cell in re.findall("<t[dh].*?>(.*?)</t[dh]>", READER.render(table))]
        assert cells == [printable(first), "x", printable(second), printable(first)]


@given(MARKUP, MARKUP)
def test_code_of_markdown_shows_any_text_as_it_is(first, second):
    code = f"* {markdown_text(first)} {markdown_code(second)}, {markdown_code(first)} x"
    names, text = elements(code)
    assert names <= {"ul", "li", "code"}
    assert text.replace(" ", "") == printable(f"{first}{second},{first}x").replace(" ", "")
    assert re.sub("</?code>", "", READER.render(f"|x|\n|-|\n|{markdown_code(first)}|")).count("<td>") == 1


@given(MARKUP)
def test_markdown_of_a_file_makes_emphasis_and_code_alone(text):
    assert elements(markdown_safe(text))[0] <= {"p", "em", "strong", "code"}
    table, _ = elements(f"| x |\n|--|\n| {markdown_safe(text)} |\n")
    assert table <= {"table", "thead", "tbody", "tr", "th", "td", "em", "strong", "code"}


@given(MARKUP, MARKUP)
def test_links_of_markdown_lead_where_they_say(text, place):
    made = READER.render(markdown_link(text, f"a/{place}"))
    (address,) = re.findall('href="(.*?)"', made)
    assert re.fullmatch(r"a/[\w./~%-]*", address)
    assert elements(made)[0] == {"p", "a"}


@given(st.text())
def test_terminals_get_lines_of_visible_characters(text):
    made = terminal_text(text)
    assert {unicodedata.category(c) for c in made.replace("\n", "")}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert made.count("\n") == text.count("\n")


@given(st.text(st.characters()))
def test_json_stays_the_same_data(text):
    made = json_text(json.dumps({text: [text, "\x7f\u202e\U000e0041\ud800"]}, ensure_ascii=False, indent=1))
    assert json.loads(made) == {text: [text, "\x7f\u202e\U000e0041\ud800"]}
    assert {unicodedata.category(c) for c in made.replace("\n", "")}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_runs_no_formula(text):
    rows = list(csv.reader(io.StringIO(comma_separated(sheet(text)))))
    assert [len(row) for row in rows] == [2, 2, 2]
    assert unicodedata.normalize("NFKC", rows[1][0])[0] not in "=+-@\t\r"
    assert rows[1][1] == "1.5"


def test_csv_leaves_negative_numbers_alone():
    assert comma_separated(Sheet(["x"], [[-0.25], ["-0.25"]])) == "x\n-0.25\n'-0.25\n"


COMMANDS = {"textbackslash", "textasciitilde", "textasciicircum", "textasciigrave", "textless", "textgreater",
            "textbar", "dots", "pm", "times", "geq", "leq", "cdot"}  # fmt: skip


def check_latex(text):
    """A small lexer: every special character is escaped or part of a known command, and groups close."""
    depth, math, i = 0, False, 0
    while i < len(text):
        found = re.match(r"\\([a-zA-Z]+|[{}$&#%_])", text[i:])
        if found:
            assert found[1] in COMMANDS or len(found[1]) == 1, found[0]
            i += len(found[0])
            continue
        assert text[i] not in "\\&#%_~^<>|", text[i:]
        assert ord(text[i]) < 256
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        assert depth >= 0
        math ^= text[i] == "$"
        i += 1
    assert depth == 0
    assert not math


@given(st.text())
def test_latex_holds_for_any_text(text):
    check_latex(latex_text(text))


@given(st.text(), st.text())
def test_any_names_keep_the_table(first, second):
    table = Sheet(["a", first], [[second, first]])
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in markdown(table).splitlines()} == {3}
    assert all(len(row) == 2 for row in csv.reader(io.StringIO(comma_separated(table))))
    assert latex(table).count("\n") == 7


def test_digits_follow_the_interval():
    assert mean_text(Interval(4.21349, 4.19, 4.2369, 5)) == "4.213 ± 0.023"
    assert mean_text(Interval(0.41349, 0.41249, 0.41449, 5)) == "0.4135 ± 0.0010"
    assert mean_text(Interval(1234.5, 1134.5, 1334.5, 3)) == "1,230 ± 100"
    assert difference_text(Interval(0.214, 0.151, 0.277, 5)) == "+0.214 [0.151, 0.277]"


def test_one_seed_has_no_interval_and_none_no_text():
    assert mean_text(mean_interval([4.21349])) == "4.213 (n = 1)"
    assert mean_text(mean_interval([])) == difference_text(mean_interval([])) == ""
    assert mean_text(mean_interval([2.0, 2.0])) == "2 ± 0"


def test_values_read_well():
    assert value_text("model.pre_norm", True) == "on"
    assert value_text("optimizer.learning_rate", 0.001) == "0.001"
    assert value_text("data.corpora", ("novels", "wikipedia")) == "novels + wikipedia"
    assert cell_text({"objectives.mlm.masking.rate": 0.4, "model.num_layers": 4}) == "masking rate 40 %, num_layers 4"
    assert quantity(16_777_216) == "16.8 M"
    assert quantity(999_999) == "1 M"
