"""Checks that the project does not grow: code, and words of the guides, have the bounds of `budget.toml`.

`make lint` runs it. It prints what each part has, and fails above a bound. A bound only falls. One may rise in a change
in which others of its kind fall by as much: the file is compared with the one of the last commit, or of the one before
if it is unchanged since. ``--write`` lowers all bounds to what there is, and never raises one.

Code is counted in tokens. Those of Python are the tokens of `tokenize` without layout, comments and docstrings, and an
f-string is one. In YAML, templates, scripts and styles a token is a word, a number or a sign outside comments. Words
are what lies between spaces and has a letter or digit. Lines are printed and have no bound.
"""

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lightning_modules", "ablations")  # each folder of these is counted apart
PARTS = ("tests", "benchmarks", "docs")
TEXTS = ("README.md", "docs/*.md", "docs/[!g]*/*.md")  # without docs/generated
COMMENTS = {  # suffix -> what is no code
    ".yaml": r"(?m)(?:^|\s)#.*$",
    ".sh": r"(?m)(?:^|\s)#.*$",
    ".js": r"(?ms)/\*.*?\*/|^\s*//.*?$",
    ".css": r"(?s)/\*.*?\*/",
    ".html": r"(?s)<!--.*?-->|\{#.*?#\}",
    ".j2": r"(?s)<!--.*?-->|\{#.*?#\}",
}
LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "FSTRING_END"}
FILE = ROOT / "budget.toml"
Sizes = dict[str, dict[str, float]]  # kind -> part -> what it has, or its bound


def tokens(source: str, suffix: str = ".py") -> int:
    """How many tokens of code a file has."""
    if suffix != ".py":
        return len(re.findall(r"\w+|[^\w\s]", re.sub(COMMENTS[suffix], "", source)))
    texts = {  # docstrings, and strings that are no value of anything
        (node.lineno, node.end_lineno or 0)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    count = depth = 0
    for token in tokenize.generate_tokens(StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        depth -= name == "FSTRING_END"  # from Python 3.12 on an f-string has tokens within
        if name not in LAYOUT and not depth:
            count += not (name == "STRING" and any(a <= token.start[0] <= b for a, b in texts))
        depth += name == "FSTRING_START"
    return count


def words(text: str) -> int:
    """How many words a text has."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def documented(source: str) -> Iterator[bool]:
    """Whether each public function or method of a module has a docstring."""
    bodies = [ast.parse(source).body]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bodies.append(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield ast.get_docstring(node) is not None


def measured() -> tuple[Sizes, Counter[str], Counter[str]]:
    """What there is, lines of code by part, and modules of Python by part."""
    code, lines, modules, public = Counter[str](), Counter[str](), Counter[str](), list[bool]()
    for path in sorted(path for part in (*PACKAGES, *PARTS) for path in (ROOT / part).rglob("*")):
        top, *inner = path.relative_to(ROOT).parts
        if path.suffix in (".py", *COMMENTS) and inner[0] != "generated":
            part = f"{top}/{inner[0]}" if top in PACKAGES and len(inner) > 1 else top
            source = path.read_text(encoding="utf-8")
            code[part] += tokens(source, path.suffix)
            lines[part] += len(source.splitlines())
            modules[part] += path.suffix == ".py"
            public += documented(source) if top in PACKAGES and path.suffix == ".py" else ()
    texts = Counter[str]()
    for path in (path for pattern in TEXTS for path in ROOT.glob(pattern)):
        texts[path.relative_to(ROOT).parts[0]] += words(path.read_text(encoding="utf-8"))
    share = {"percent": int(1000 * sum(public) / len(public)) / 10}
    return {"tokens": dict(code), "words": dict(texts), "documented": share}, lines, modules


def exceeded(found: Sizes, bounds: Sizes) -> Iterator[str]:
    """What is above its bound, or has none."""
    for kind in ("tokens", "words"):
        for part, size in found[kind].items():
            if size > (bound := bounds[kind].get(part, 0)):
                yield f"{part}: {size:,} {kind}, budget.toml allows {bound:,}"
    if found["documented"]["percent"] < (least := bounds["documented"]["percent"]):
        yield f"{found['documented']['percent']} % of public functions have a docstring, budget.toml wants {least} %"


def unpaid(bounds: Sizes, before: Sizes) -> Iterator[str]:
    """What rose in a change of the bounds without a fall that pays for it."""
    for kind in ("tokens", "words"):
        changes = {part: bounds[kind].get(part, 0) - before[kind].get(part, 0) for part in bounds[kind] | before[kind]}
        if (excess := sum(changes.values())) > 0:
            risen = ", ".join(f"{part} by {change:,}" for part, change in changes.items() if change > 0)
            yield f"budget.toml: {kind} rise ({risen}), {excess:,} more than others fall"
    if bounds["documented"]["percent"] < before["documented"]["percent"]:
        yield "budget.toml: the share of documented functions falls"


def lowered(bounds: Sizes, found: Sizes) -> Sizes:
    """The bounds without what is spare, and without parts that are gone."""
    least = {
        kind: {part: min(size, bounds[kind][part]) for part, size in found[kind].items() if part in bounds[kind]}
        for kind in ("tokens", "words")
    }
    return least | {"documented": {"percent": max(bounds["documented"]["percent"], found["documented"]["percent"])}}


def committed(bounds: str) -> str:
    """The file before its last change, committed or not; empty if git does not know."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout

    latest = git("show", "HEAD:budget.toml")
    if latest == bounds:
        latest = git("show", git("log", "-1", "--format=%H", "--", "budget.toml").strip() + "^:budget.toml")
    return latest


def main() -> int:
    """Prints what there is and what is wrong; 1 if anything is."""
    found, lines, modules = measured()
    bounds = tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else found
    if "--write" in sys.argv:
        bounds = lowered(bounds, found)
        text = "# Bounds of what the project has. They only fall: `python docs/budget.py --write` lowers them.\n"
        for kind, sizes in bounds.items():
            text += f"\n[{kind}]\n" + "".join(f'"{part}" = {size}\n' for part, size in sorted(sizes.items()))
        FILE.write_text(text, encoding="utf-8")
    print(f"{'part':<36}{'tokens':>10}{'bound':>10}{'lines':>8}{'modules':>9}")
    for part, size in sorted(found["tokens"].items()):
        print(f"{part:<36}{size:>10,}{bounds['tokens'].get(part, 0):>10,}{lines[part]:>8,}{modules[part]:>9}")
    for part, size in sorted(found["words"].items()):
        print(f"{'words of ' + part:<36}{size:>10,}{bounds['words'].get(part, 0):>10,}")
    before = committed(FILE.read_text(encoding="utf-8"))
    wrong = [*exceeded(found, bounds), *(unpaid(bounds, tomllib.loads(before)) if before else ())]
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
