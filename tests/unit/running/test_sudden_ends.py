"""What ends beside the runs is said in a line, with what to do: workers' own process, a kernel, a fine-tuning."""

import json
import subprocess
import sys

import nbformat
import pytest

from ablations.commands.checkpoints import _bar
from ablations.core import notebooks
from lightning_modules.config import ConfigError
from lightning_modules.training.callbacks import Progress
from tests import tiny
from tests.messages import names

pytestmark = pytest.mark.slow

DYING = """
from ablations.running import local
from lightning_modules.config import ConfigError
local._PRELOADED = ["dying"]
executor = local.Local(local.LocalOptions(slots=1))
try:
    executor._start()
except ConfigError as error:
    print(error)
"""


def test_workers_whose_server_is_killed_as_it_starts_are_explained(tmp_path):
    (tmp_path / "dying.py").write_text("import os\nos._exit(9)\n")
    environment = tiny.environment(tmp_path)
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", DYING], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert names(done.stdout, "memory", "--jobs 1", "--executor inline")


def notebook(folder, *cells, kernel="python3"):
    made = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": kernel, "display_name": "", "language": "python"}})
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = folder / "mine.ipynb"
    nbformat.write(made, path)
    return path


@pytest.mark.parametrize(
    ("cell", "kernel", "words"),
    [
        ("import os; os._exit(9)", "python3", ["kernel", "died"]),
        ("1", "ends_at_once", ["kernel", "died"]),
        ("1", "no_such_kernel", ["no_such_kernel", "ipykernel", "--no-notebook"]),
    ],
)
def test_a_kernel_that_dies_or_is_not_installed_is_a_line(tmp_path, cell, kernel, words, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    (tmp_path / "kernels" / "ends_at_once").mkdir(parents=True)
    (tmp_path / "kernels" / "ends_at_once" / "kernel.json").write_text(
        json.dumps({"argv": ["false"], "display_name": "", "language": "python"})
    )
    source = notebook(tmp_path, cell, kernel=kernel)
    with pytest.raises(ConfigError) as error:
        notebooks.execute(source, {}, tmp_path / "out" / "notebook.ipynb")
    (problem,) = error.value.problems
    assert names(str(problem), source.name, *words)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("number", [143, None])
def test_a_finetuning_counts_as_done_once_it_has_its_result(capsys, number):
    def tuned():
        with _bar("mine", True) as tell:
            tell(Progress(step=10, steps=10, loss=1.0, tokens_per_second=5.0))
            if number:
                raise SystemExit(number)

    if number:
        with pytest.raises(SystemExit):
            tuned()
    else:
        tuned()
    assert ("1/1 runs" in capsys.readouterr().out) == (number is None)
