"""A study with an objective and position schemes of its own: the files that the guides print, and a grid of them."""

from pathlib import Path

from tests import tiny
from tests.contract.test_guide_examples import blocks

OWN = """\
axes:
  objective: [mlm, rtd]
  model.positions: [learned, distance_bias]
variants:
  objective:
    mlm: {}
    rtd: {objectives.mlm: null, objectives.rtd: {}}
baseline: {objective: mlm, model.positions: learned}
"""


def parts(study: Path, *further: str) -> None:
    """Writes the modules, the grid `own` with its text, and ``ablations.toml``, which names further modules too."""
    (study / "grids").mkdir(parents=True, exist_ok=True)
    for page in ("objective", "positions"):
        (study / f"my_{page}.py").write_text(next(blocks(f"{page}.md")))
    named = ", ".join(f'"{name}"' for name in ("my_objective", "my_positions", *further))
    (study / "ablations.toml").write_text(f"plugins = [{named}]\n")
    file = tiny.grid(study, seeds=1)
    text = file.read_text()
    file.unlink()
    start, end = text.index("axes:"), text.index("seeds:")
    (study / "grids" / "own.yaml").write_text(f"{text[:start]}{OWN}{text[end:]}")
