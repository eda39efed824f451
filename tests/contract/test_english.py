"""The check of English finds what it is to find, and nothing in code. `make lint` applies it."""

from importlib import import_module
from typing import Annotated

import typer

from tests.every import every

english = import_module("english")  # docs/english.py, which is part of no package


def found(text):
    return [finding.what for prose in english.markdown(text, "x.md") for finding in prose.findings()]


@every(
    "text",
    [
        "One, two. " * 40,
        "`a; b told anew` is code.",
        "```\nit stands; it goes on\n```",
        "[A link](beside/told;x.md) to a page.",
        "![Eight were told from four; sixteen were asked](picture.svg)",
        "| a | b |\n|---|---|\n| one; two | three |",
        "A stand-in, an understanding, a beginning.",
        "word " * 25 + ".",
    ],
)
def test_plain_text_and_code_pass(text):
    assert found(text) == []


@every(
    "text, what",
    [
        ("word " * 26 + ".", "26 words"),
        ("* item\n* " + "word " * 26, "26 words"),
        ("| a |\n|---|\n| " + "word " * 26 + " |", "26 words"),
        ("One; two.", "semicolon"),
        ("Eight were not told\nfrom four.", "'told'"),
        ("It goes on.", "'goes on'"),
        ("> Beside the point", "'Beside'"),
        ("# It stands", "'stands'"),
        ("| a |\n|---|\n| made anew |", "'anew'"),
    ],
)
def test_long_sentences_and_words_are_found(text, what):
    (one,) = found(text)
    assert what in one


def test_a_finding_says_where():
    (prose,) = [prose for prose in english.markdown("# Title\n\nText.\n\nOne; two.\n", "x.md") if ";" in prose.text]
    (finding,) = prose.findings()
    assert str(finding).startswith("x.md:5: ")


def test_help_of_commands_and_options_is_read():
    app = typer.Typer()

    @app.command()
    def inner(often: Annotated[int, typer.Option(help="How often; told.")] = 1):
        """Goes on."""

    @app.command(hidden=True)
    def former():
        """Anew."""

    places = {
        prose.place for prose in english.help_texts(typer.main.get_command(app), "outer") if list(prose.findings())
    }
    assert places == {"outer inner --help:1", "outer inner --often:1"}


def test_sentences_in_strings_of_code_are_read():
    source = """
def refuse(name, why):
    '''A docstring; told.'''
    raise ValueError(f"{name} is missing here; restore it.{why}")

SHORT = "a; b"
OPTION = "Add the option --beside to this command."
LONG = ("A string in two " "parts goes on.")
"""
    findings = [finding for prose in english.literals(source, "x.py") for finding in prose.findings()]
    assert {(finding.place, finding.what.partition(",")[0]) for finding in findings} == {
        ("x.py:4", "a semicolon"),
        ("x.py:8", "'goes on'"),
    }


def test_words_in_docstrings_and_comments_are_found_and_nothing_else():
    source = """
def refuse(told, beside):
    '''Two; three of `told` or ``it stands``.

    It stands here.

    Args:
        told: What is asked.
        beside: What goes on; it has a name.
    '''
    return beside  # made anew; twice

LONG = "A string that stands beside these. # No comment is told here."
"""
    findings = [finding for prose in english.remarks(source, "x.py") for finding in prose.findings()]
    assert [(finding.place, finding.what.partition(",")[0]) for finding in findings] == [
        ("x.py:5", "'stands'"),
        ("x.py:8", "'asked'"),
        ("x.py:11", "'anew'"),
    ]


def test_exemptions_only_shrink(monkeypatch):
    finding = english.Finding("x.md:1", "told", "It told.")
    monkeypatch.setattr(english, "EXEMPT", {"x.md": 2, "y.md": 1})
    assert list(english.problems({"x.md": [finding] * 2, "y.md": [finding]})) == []
    assert [line.partition(":")[0] for line in english.problems({"x.md": [finding] * 3, "y.md": []})] == [
        "x.md",
        "y.md",
    ]
    assert list(english.problems({"x.md": [], "y.md": [finding], "z.md": [finding]})) == [
        str(finding),
        "x.md: needs no exemption: take it from EXEMPT in docs/english.py",
    ]
