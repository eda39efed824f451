"""A task that a tiny model learns in a second: does the text hold more words below or above w30?"""

import numpy as np

from lightning_modules.tasks import Task
from lightning_modules.tasks.shapes.texts import Row, Texts

COUNTS = {"train": 64, "dev": 24}


def toy_task(name: str, shape: str = "single", labels: tuple[str, ...] = ("low", "high")) -> Task:
    """Texts of the words of the corpus ``text_file``; in regression the label is the share of high words."""

    def rows(split):
        noise = np.random.default_rng([len(split), 5])
        for _ in range(COUNTS[split]):
            words, high = noise.integers(0, 59, int(noise.integers(1, 9))), bool(noise.random() < 0.5)
            words = np.where(noise.random(len(words)) < 0.9, words % 29 + 30 * high, words)
            text = " ".join(f"w{word:02d}" for word in words)
            middle = len(text) // 6 * 3
            label = str(float(high)) if not labels else labels[high]
            yield Row(text, None, label) if shape == "single" else Row(text[:middle] or "w00", text[middle:], label)

    metrics = ("accuracy", "f1") if labels else ("spearman",)
    return Task(name, "Low or high?", "made here", Texts(labels, shape == "pair"), metrics, rows)
