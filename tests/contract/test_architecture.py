"""Every test that docs/architecture.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tests_that_are_named_are_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) >= 20
    lacking = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert lacking == []
