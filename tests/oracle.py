"""Says whether a change moved what was to stay: pages, records, ids of runs and cells, parity with other libraries.

`make oracle` checks all of it, `make oracle-fast` all ids, three pages and three models. ``PARENT=HEAD^`` is for
a change that is to move pages. It compares them with that commit, and names each value of a CSV file that moved.
"""

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO

from ablations.core.store import Records
from ablations.pages import parameters_page
from ablations.pages.publishing import republish
from ablations.schema.run import current_numerics
from lightning_modules.config import ConfigError
from lightning_modules.places import project

TESTS = [f"contract/test_{name}.py" for name in ("stored_configurations", "stored_identities", "cell_identities")]
ALL = ["parity"]
FEW = ["parity/test_bert.py", "parity/test_gpt2.py", "parity/test_roformer.py"]
PAGES = ["masking_ratio", "seq2seq_attention", "task_distillation"]
MOST = 20  # moved values of a file that are named


def main() -> int:
    """Prints what differs; 1 if anything does."""
    fast, parent = "--fast" in sys.argv, os.environ.get("PARENT", "")
    chosen = [f"tests/{name}" for name in (*TESTS, *(FEW if fast else ALL))]
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *chosen], cwd=project())
    records = Records()
    lines = [*map(str, (*records.verify(), *parameters_page.damages(records.folder))), *_stale(records)]
    for grid in PAGES if fast else [None]:
        try:
            republish(grid=grid)
        except ConfigError as error:
            lines.append(str(error))
    lines += _pages(parent)
    failed = tests.wait()
    print("\n".join(lines) or f"{len(records.files())} records are sound and current, and pages are as committed")
    return failed or bool(lines)


def _stale(records: Records) -> Iterator[str]:
    """The runs of pages that are made again: numerics or texts are others now. Those that are refused are a test's."""
    shown = "".join(one.read_text() for one in records.folder.glob("*/*/*.json") if one.parts[-3] != "records")
    for record in records.all():
        if record.id not in shown:
            continue
        try:
            run = record.run()
            if (
                run.numerics != current_numerics(run.kind, run.system)
                or not run.texts.items() <= run.fingerprints.items()
            ):
                yield f"{record.id} is stale: its numerics or texts are others now"
        except ConfigError:
            continue


def _pages(parent: str) -> Iterator[str]:
    """The files under `results` that are not as committed; with a parent, values of CSV files that are not as there."""
    if not parent:
        yield from _git("status", "--porcelain", "results").splitlines()
    commit = parent or "HEAD"
    for name in _git("diff", "--name-only", "--no-renames", commit, "--", "results/*.csv").splitlines():
        before = _git("show", f"{commit}:{name}") if _git("ls-tree", commit, name) else ""
        path = project() / name
        lines = list(moved(before, path.read_text(encoding="utf-8") if path.exists() else ""))
        yield from (f"{name}: {line}" for line in lines[:MOST])
        if len(lines) > MOST:
            yield f"{name}: {len(lines) - MOST} more values moved"


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=project(), capture_output=True, text=True, check=True).stdout


def moved(before: str, now: str) -> Iterator[str]:
    """The values that differ between two versions of a CSV file, as numbers where they are numbers.

    Rows belong together if they begin alike, as far as no two of a version do.
    """
    versions = [list(csv.DictReader(StringIO(text))) for text in (before, now)]
    names = list(dict.fromkeys(name for rows in versions for row in rows[:1] for name in row))
    for count in range(1, len(names) + 1):
        keyed = [{" / ".join(row.get(name, "") for name in names[:count]): row for row in rows} for rows in versions]
        if list(map(len, keyed)) == list(map(len, versions)):
            break
    else:
        keyed = [{f"row {number}": row for number, row in enumerate(rows, 2)} for rows in versions]
    old, new = ({(key, name): row[name] for key, row in rows.items() for name in row} for rows in keyed)
    for place in old | new:
        a, b = old.get(place, ""), new.get(place, "")
        if a != b and _value(a) != _value(b):
            yield f"{place[0]}: {place[1]}: {a or 'nothing'} -> {b or 'nothing'}"


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
