"""A study brings an objective and positions of its own: the files that the guides print."""

import json
import subprocess
import sys

import pytest

from tests import tiny
from tests.contract.test_guide_examples import blocks
from tests.messages import names

pytestmark = pytest.mark.slow

ASKED = """\
axes:
  objective: [mlm, rtd]
  model.positions: [rotary, distance_bias]
variants:
  objective:
    mlm: {}
    rtd: {objectives.mlm: null, objectives.rtd: {}}
baseline: {objective: mlm, model.positions: rotary}
"""


def test_a_study_brings_an_objective_and_positions_of_its_own(tmp_path):
    study = tmp_path / "study"
    text = tiny.grid(study, seeds=1).read_text()
    (study / "grids").mkdir()
    start, end = text.index("axes:"), text.index("seeds:")
    metric = "  - {name: heldout.rtd_accuracy}\n"
    (study / "grids" / "own.yaml").write_text(text[:start] + ASKED + text[end:] + metric)
    for page in ("objective", "positions"):
        (study / f"my_{page}.py").write_text(next(blocks(f"{page}.md")))
    (study / "ablations.toml").write_text('plugins = ["my_objective", "my_positions"]\n')

    def said(*words, code=0):
        call = [sys.executable, "-m", "ablations", *words]
        done = subprocess.run(call, cwd=study, env=tiny.environment(tmp_path), capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    said("run", "own", "--scale", "smoke", "--executor", "local", "--jobs", "2", "--no-notebook")
    records = [json.loads(path.read_text()) for path in study.glob("results/unpublished/records/*/*.json")]
    assert [record["outcome"] for record in records] == ["done"] * 4
    measured = [record["metrics"] for record in records]
    assert len({found.get("train.rtd") or found["heldout.loss"] for found in measured}) == 4
    objective, positions = "plugin my_objective", "plugin my_positions"
    read = [{objective, positions} & record["config"]["fingerprints"].keys() for record in records]
    assert sorted(map(sorted, read)) == [[], [objective], [objective, positions], [positions]]
    assert "4 runs are finished" in said("plan", "own", "--scale", "smoke")
    with (study / "my_positions.py").open("a") as file:
        file.write("# other code\n")
    assert "2 of 4 runs to train" in said("plan", "own", "--scale", "smoke"), "other code is another run"
    for axis, near in (("model.positions=distance_bia,rotary", "distance_bias"), ("objectives.rtb=null,{}", "rtd")):
        assert names(said("new", "other", "--axis", axis, code=2), near)
    (study / "ablations.toml").write_text('plugins = ["my_objectives"]\n')
    assert names(said("check", "own", code=2), "my_objectives", "'my_objective'")
