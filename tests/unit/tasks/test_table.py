"""The table of tasks is gathered from modules."""

import sys

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.tasks.table import gathered
from tests.messages import names

ROW = """\
from lightning_modules.tasks.shapes.texts import Row, Texts
from lightning_modules.tasks.task import Task


def rows(split):
    return iter([Row("It rains.", None, "yes"), Row("It is dry.", None, "no")])


ROWS = (Task("{name}", "Rain?", "made here", Texts(("no", "yes")), ("accuracy",), rows),)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a package of its own and gathers their tasks."""
    (tmp_path / "our_datasets").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def walk(**modules):
        for name, text in modules.items():
            (tmp_path / "our_datasets" / f"{name}.py").write_text(text)
        return gathered([f"our_datasets.{name}" for name in sorted(modules)])

    yield walk
    for name in [name for name in sys.modules if name.startswith("our_datasets")]:
        del sys.modules[name]


def test_a_new_file_is_a_new_task(package):
    found = package(weather=ROW.format(name="rain"), climate=ROW.format(name="warmth"))
    assert list(found) == ["warmth", "rain"], "in the order of the modules' names"
    assert found["rain"].examples("train").labels.tolist() == [1, 0]


def test_broken_modules_are_named_all_at_once(package):
    with pytest.raises(ConfigError) as caught:
        package(
            a=ROW.format(name="rain"),
            c="ROWS = [1]\n",
            d="\nfrom lightning_modules.tasks.shapes.choice import Choise\n",
            e="ROWS = (\n",
            g="\n\nint('x')\n",
            h=ROW.format(name="rain"),
        )
    c, d, e, g, h = map(str, caught.value.problems)
    assert names(c, "our_datasets.c", "ROWS")
    assert names(d, "our_datasets.d", "d.py", "line 2", "Choise")
    assert names(e, "our_datasets.e", "e.py", "SyntaxError")
    assert names(g, "our_datasets.g", "g.py", "line 3", "ValueError")
    assert names(h, "rain", "a", "h")
