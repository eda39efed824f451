"""Text of several languages and a system so small that tests of them take moments."""

from pathlib import Path

import numpy as np

from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

WORDS = {
    "en": [
        "the",
        "cat",
        "dog",
        "bird",
        "sees",
        "hears",
        "likes",
        "old",
        "young",
        "big",
        "small",
        "quick",
        "house",
        "flies",
        "jumps",
        "every",
        "moves",
    ],
    "de": [
        "die",
        "Katze",
        "Hund",
        "Vogel",
        "sieht",
        "hoert",
        "mag",
        "alt",
        "jung",
        "gross",
        "klein",
        "schnell",
        "Haus",
        "fliegt",
        "springt",
        "jede",
        "zieht",
    ],
    "es": [
        "el",
        "gato",
        "perro",
        "pajaro",
        "ve",
        "oye",
        "quiere",
        "viejo",
        "joven",
        "grande",
        "chico",
        "rapido",
        "casa",
        "vuela",
        "salta",
        "cada",
        "mueve",
    ],
}


def texts(folder: Path, languages: tuple[str, ...] = ("en", "de"), lines: int = 120, seed: int = 0) -> None:
    """Writes aligned lines, ``text.<language>`` for each language, word by word."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed)
    chosen = [noise.integers(len(WORDS["en"]), size=noise.integers(2, 9)) for _ in range(lines)]
    for language in languages:
        made = (" ".join(WORDS[language][word] for word in line) + ".\n" for line in chosen)
        (folder / f"text.{language}").write_text("".join(made), encoding="utf-8")


def tiny_xlm(*corpora: str, **changes: object) -> System:
    """A system of several languages that trains in a moment."""
    return SYSTEMS["xlm"].but(
        **{
            "data.corpora": list(corpora),
            "data.tokenizer.vocab_size": 80,
            "model.languages": ["de", "en", "es"],
            "model.num_layers": 1,
            "model.hidden_size": 16,
            "model.num_heads": 2,
            "model.max_positions": 32,
            "format.sequence_length": 24,
            "training.batch_size": 4,
            "training.steps": 6,
            "schedule.warmup_fraction": 0.3,
            "evaluation.sequences": 8,
            "evaluation.points": 2,
            **changes,
        }
    )
