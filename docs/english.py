"""Checks the English of guides, README, `--help`, and of strings in the code, which are messages and texts of pages.

`make lint` runs it, and `--statistics` prints a table. A sentence has at most 25 words and no semicolon. Some words
have plainer ones, which are listed below. Code spans, code blocks and links' targets are exempt; cells of tables may
have semicolons. Files that do not yet comply are in `EXEMPT` with the number of their findings, which may only become
smaller.

Docstrings and comments are read line by line, and only for the words of `PLAINER`. Names of parameters are exempt.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token
from sentencex import segment

from ablations.commands.cli import app

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 25  # words of a sentence
PLAINER = {
    r"told|tells?": "predict, distinguish or say",
    r"asked": "predict, evaluate or test",
    r"stands?(?!-)": "is",
    r"anew": "again",
    r"beside": "next to, with or besides",
}
PLAINER_IN_TEXTS = {  # these not in docstrings and comments
    r"(?:go|goes|going|went) on": "continue or resume",
    r"as many": "the same number of, or the number itself",
    r"(?:nats|tokens|words|pieces|positions|predictions|bytes|FLOPs|minutes|hours|seconds|runs|seeds) an? "
    r"(?:step|run|byte|word|token|piece|position|prediction|second|minute|seed|cell|task|core)": "per",
}
READ = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/how-to/*.md", "docs/tutorial/*.md")
PACKAGES = ("ablations", "lightning_modules")
REMARKS = "docstrings and comments, by line"
FEWEST = 4  # words of a string that is read as a sentence
EXEMPT: dict[str, int] = {
    "ablations/figures/alignments.py": 1,  # a figure's fine print: what each sign is
    "ablations/figures/claims.py": 1,
    "ablations/figures/grid_figures.py": 3,
    "ablations/inspection/inspect_model.py": 3,
    "docs/architecture.md": 183,
    "docs/glossary.md": 26,
    "docs/records.md": 17,
}
_CODE = "code"  # what a code span counts as: one word


@dataclass(frozen=True)
class Finding:
    """A sentence that is too long or has a word or sign to replace."""

    place: str
    what: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}: {self.sentence}"


@dataclass(frozen=True)
class Prose:
    """A paragraph, heading, cell of a table, text of help or remark: ``place`` says where it is."""

    place: str
    text: str
    in_table: bool = False
    is_remark: bool = False  # a line of a docstring, or a comment

    def sentences(self) -> list[str]:
        """The sentences, without those that have no word."""
        return [sentence for sentence in segment("en", self.text) if words(sentence)]

    def findings(self) -> Iterator[Finding]:
        """What is wrong with each sentence."""
        for sentence in map(str.strip, self.sentences()):
            if (count := words(sentence)) > LONGEST and not self.is_remark:
                yield Finding(self.place, f"{count} words, at most {LONGEST} are allowed", sentence)
            if ";" in sentence and not self.in_table and not self.is_remark:
                yield Finding(self.place, "a semicolon, write two sentences", sentence)
            for word, plainer in (PLAINER if self.is_remark else PLAINER | PLAINER_IN_TEXTS).items():
                for found in re.findall(rf"\b(?:{word})\b", sentence, re.IGNORECASE):
                    yield Finding(self.place, f"'{found}', write {plainer}", sentence)


def words(sentence: str) -> int:
    """How many words a sentence has: what lies between spaces and has a letter or digit."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def markdown(text: str, name: str) -> Iterator[Prose]:
    """The prose of a Markdown file, with file and line."""
    text = re.sub(r"^:.*$", "", text, flags=re.MULTILINE)  # directives of MyST, and their options
    place, in_table = "", False
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        if token.map:
            place = f"{name}:{token.map[0] + 1}"
        if token.type == "inline":
            yield Prose(place, _plain(token.children or []), in_table)


def _plain(tokens: Iterable[Token]) -> str:
    """Text as it is read: a code span is one word, and a picture is none."""
    pieces = []
    for token in tokens:
        if token.type == "code_inline":
            pieces.append(_CODE)
        elif token.type in ("softbreak", "hardbreak"):
            pieces.append(" ")
        elif token.type == "text":
            pieces.append(re.sub(r"\{[\w:]+\}$", "", token.content))  # a role: {doc}`page`
    return "".join(pieces)


def help_texts(command: Any, name: str) -> Iterator[Prose]:
    """What `--help` says of a command, of its options, and of the commands below it."""
    for text in filter(None, (command.help, command.epilog)):
        yield from markdown(text.replace("\b", ""), f"{name} --help")
    for option in command.params:
        if text := getattr(option, "help", None):
            yield from markdown(text, f"{name} {option.opts[0]}")
    for below, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from help_texts(inner, f"{name} {below}")


def literals(source: str, name: str) -> Iterator[Prose]:
    """The sentences among the strings of a module: messages, descriptions of knobs, fixed texts of pages.

    Docstrings are none of them. A placeholder is one word, and a sentence of its own after the end of another one.
    """
    tree = ast.parse(source)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [] if id(node) in inner else [node]
        fixed = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "" for part in parts]
        if sum(map(words, fixed)) >= FEWEST:
            text = re.sub(r"--[\w-]+", _CODE, "".join(part or _CODE for part in fixed))
            for prose in markdown(re.sub(rf"\.{_CODE}\b", f". {_CODE}.", text), name):
                yield Prose(f"{name}:{node.lineno}", prose.text, prose.in_table)


def remarks(source: str, name: str) -> Iterator[Prose]:
    """The lines of the docstrings and comments of a module, without names of parameters; a code span is one word."""
    tree, tokens = ast.parse(source), tokenize.generate_tokens(StringIO(source).readline)
    found = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found += enumerate(node.value.value.splitlines(), node.lineno)
    for number, line in sorted(found):
        text = re.sub(r"`[^`]+`", _CODE, re.sub(r"^\s+\w+: ", "", line))
        yield Prose(f"{name}:{number}", text, is_remark=True)


def everything() -> dict[str, list[Prose]]:
    """File, the command line, or what all files of the packages remark -> its prose."""
    prose: dict[str, list[Prose]] = {REMARKS: []}
    for path in sorted({path for pattern in READ for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        prose[name] = list(markdown(path.read_text(encoding="utf-8"), name))
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        prose[name] = list(literals(source, name))
        prose[REMARKS] += remarks(source, name)
    return prose | {"--help": list(help_texts(typer.main.get_command(app), "ablations"))}


def problems(found: dict[str, list[Finding]]) -> Iterator[str]:
    """What is to be mended, exempt files only where they became worse or need no exemption."""
    for name, findings in found.items():
        allowed = EXEMPT.get(name, 0)
        if len(findings) > allowed:
            yield from map(str, findings if not allowed else [])
            if allowed:
                yield f"{name}: {len(findings)} findings, {allowed} are allowed: see `--statistics` and docs/english.py"
    for name in EXEMPT:
        if not found.get(name):
            yield f"{name}: needs no exemption: take it from EXEMPT in docs/english.py"


def statistics(prose: dict[str, list[Prose]]) -> Iterator[str]:
    """A table: sentences, mean and longest, too long, semicolons and words to replace of each text or package."""
    yield f"{'text':<32}{'sentences':>10}{'mean':>6}{'max':>5}{'> 25':>6}{';':>5}{'words to replace':>18}"
    grouped: dict[str, list[Prose]] = {}
    for name, texts in prose.items():
        grouped.setdefault(name.partition("/")[0] if name.endswith(".py") else name, []).extend(texts)
    for name, texts in grouped.items():
        lengths = [words(sentence) for text in texts if not text.in_table for sentence in text.sentences()] or [0]
        what = [finding.what for text in texts for finding in text.findings()]
        long, marks = sum("words" in one for one in what), sum("semicolon" in one for one in what)
        mean = sum(lengths) / len(lengths)
        rest = len(what) - long - marks
        yield f"{name:<32}{len(lengths):>10}{mean:>6.1f}{max(lengths):>5}{long:>6}{marks:>5}{rest:>18}"


def main() -> int:
    """Prints problems, or statistics; 1 if there are problems."""
    prose = everything()
    if "--statistics" in sys.argv:
        print("\n".join(statistics(prose)))
        return 0
    found = {name: [finding for text in texts for finding in text.findings()] for name, texts in prose.items()}
    lines = list(problems(found))
    for line in lines:
        print(line)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
