"""A grid so small that a run takes a second, on text made here. Tests of the harness share it."""

import os
from pathlib import Path

import numpy as np

_WORDS = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "old", "young", "big", "red", "runs", "under"]


def text(folder: Path, documents: int = 24) -> str:
    """Writes a corpus of simple sentences and returns its name."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    written = []
    for _ in range(documents):
        lines = (" ".join(noise.choice(_WORDS, size=noise.integers(4, 9))).capitalize() + "." for _ in range(30))
        written.append("\n".join(lines))
    (folder / "corpus.txt").write_text("\n\n".join(written), encoding="utf-8")
    return f"text:{folder}/*.txt"


def grid(folder: Path, *, rates: str = "[0.15, 0.4]", steps: int = 12, seeds: int = 2, extra: str = "") -> Path:
    """Writes a grid of tiny systems over the masking rate, and the corpus it needs, and returns its file."""
    corpus = text(folder / "text")
    file = folder / "tiny.yaml"
    file.write_text(
        f"""\
question: Does a tiny model notice how much is hidden?
base: roberta_base
set:
  data.corpora: ["{corpus}"]
  data.tokenizer.vocab_size: 300
  model.num_layers: 1
  model.hidden_size: 16
  model.num_heads: 2
  model.max_positions: 32
  format.sequence_length: 16
  training.batch_size: 4
  training.steps: {steps}
  training.precision: fp32
  evaluation.sequences: 8
  evaluation.points: 2
axes:
  objectives.mlm.masking.rate: {rates}
baseline: {{objectives.mlm.masking.rate: 0.15}}
seeds: {seeds}
scales:
  smoke: {{description: seconds}}
metrics:
  - {{name: heldout.loss, label: "held-out loss (nats)"}}
{extra}""",
        encoding="utf-8",
    )
    return file


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process of its own that keeps its cache in ``folder``."""
    project = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "ABLATIONS_CACHE": str(folder / "cache"), "PYTHONPATH": project}
