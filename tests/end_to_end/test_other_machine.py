"""A machine without texts and network: the guide's lines and the script, as they are printed, bring records home."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.places import project
from tests import tiny
from tests.faults.support import contents

pytestmark = pytest.mark.slow

GUIDE = "## A machine without network\n(.*?)\n## "
NO_NETWORK = """\
import socket

connect = socket.socket.connect

def refused(*_):
    raise OSError("there is no network")

def within(self, address):
    return connect(self, address) if self.family == socket.AF_UNIX else refused()

socket.socket.connect, socket.getaddrinfo = within, refused
"""


@pytest.fixture
def home(tmp_path):
    """A checkout with a grid of two runs, and the folder of the other machine, where processes reach no network."""
    checkout = tmp_path / "home" / "checkout"
    for name in ("ablations", "lightning_modules", "benchmarks"):
        shutil.copytree(project() / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(project() / "pyproject.toml", checkout)
    tiny.grid(tmp_path, seeds=1).rename(checkout / "ablations" / "grids" / "tiny.yaml")
    (tmp_path / "there").mkdir()
    (tmp_path / "no network").mkdir()
    (tmp_path / "no network" / "sitecustomize.py").write_text(NO_NETWORK)
    return checkout


def environment(code: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ABLATIONS_")}
    found = os.pathsep.join((str(Path(sys.executable).parent), own["PATH"]))
    return {**own, "PATH": found, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}


def run(lines: str, folder: Path, code: Path, **more: str) -> str:
    words = ["bash", "-euo", "pipefail", "-c", lines]
    ended = subprocess.run(words, cwd=folder, env=environment(code) | more, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def check(home: Path, folder: Path) -> None:
    """The records at home are those of runs at home, and the other machine has made them in its copy."""
    reference = Records(folder / "reference")
    (folder / "text").exists() or tiny.text(folder / "text")
    planned = plan(grids.read(home / "ablations" / "grids" / "tiny.yaml"), "smoke", records=reference)
    execute(planned, reference, "inline")
    found = Records(home / "results" / "unpublished")
    assert len(found.files()) == 2
    assert contents(found) == contents(reference)
    assert found.verify() == []
    assert [*(folder / "there" / "visit" / ".cache" / "runs").glob("*/*/log.txt")]
    assert not [*(home / ".cache").glob("runs/*/*/log.txt")]


@pytest.mark.nightly
def test_the_guides_lines_make_runs_on_a_machine_without_network(home, tmp_path):
    guide = (project() / "docs" / "how-to" / "gpu.md").read_text(encoding="utf-8")
    (section,) = re.findall(GUIDE, guide, re.DOTALL)
    section = section.replace("masking_ratio", "tiny").replace("--scale gpu", "--scale smoke")
    section = section.replace("visit/results", "visit/results/unpublished --results-dir results/unpublished")  # a trial
    leave, visit, back, *_ = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    there, isolated = tmp_path / "there", tmp_path / "no network"
    asks = "python -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'"
    refused = f"({asks} || true) 2>&1 | grep -q 'there is no network'"

    run(leave, home, home)
    shutil.rmtree(tmp_path / "text")
    (home.parent / "visit.tgz").rename(there / "visit.tgz")
    run(f"{refused}\n{visit}", there, isolated)
    (there / "home.tgz").rename(home.parent / "home.tgz")
    run(back, home, home)
    check(home, tmp_path)


@pytest.mark.nightly
def test_the_script_for_a_gpu_that_is_lent_makes_them_by_one_command(home, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text(
        f"#!/bin/sh\nrm -rf '{tmp_path}/text'; cd '{tmp_path}/there'\nPYTHONPATH='{tmp_path}/no network' sh -c \"$1\"\n"
    )
    machine.chmod(0o755)
    said = run("benchmarks/lent_gpu.sh tiny --scale smoke", home, home, THERE=str(machine))
    assert "the runs ended with" not in said
    check(home, tmp_path)
