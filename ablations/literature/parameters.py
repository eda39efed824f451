"""Parameters of published configurations: counted in our own network, beside what the papers print.

Everything is counted on the meta device: no memory is taken and nothing is trained.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import torch

from ablations.core import store
from ablations.core.formatting import Sheet, comma_separated, fixed, latex, markdown, quantity
from ablations.literature.configurations import Catalogue, Configuration, read
from lightning_modules.objectives import SentencePair
from lightning_modules.system import System

CLOSE = 0.015  # a deviation up to this needs no explanation
FOLDER = "published"  # in a results folder
PARTS = {
    "encoder": "embeddings and layers",
    "pooler": "those and the dense layer on the first position",
    "heads": "the first and the heads of pre-training",
}


@dataclass(frozen=True)
class Comparison:
    """The counts of one configuration, each including the one before, and what is printed.

    Attributes:
        encoder: Embeddings, layers, and the LayerNorm above them where there is one.
        pooler: Those and the dense layer on the first position, whether or not an objective trains it.
        heads: The encoder and the heads of every objective.
        flops_per_token: Of pre-training, forward and backward.
    """

    configuration: Configuration
    encoder: int
    pooler: int
    heads: int
    flops_per_token: float

    @property
    def counted(self) -> int:
        """The count that the printed one is compared with."""
        return getattr(self, self.configuration.includes)

    @property
    def deviation(self) -> float | None:
        """Ours relative to the printed count, minus 1; None where none is printed."""
        printed = self.configuration.printed
        return self.counted / (float(printed) * 1e6) - 1 if printed else None

    @property
    def rounds(self) -> bool:
        """Whether our count, rounded to the printed digits, is the printed one."""
        return rounds_to(self.counted, self.configuration.printed)

    @property
    def reason(self) -> str:
        """Why the counts differ; empty where they are close enough to need no reason."""
        if self.configuration.explanation:
            return self.configuration.explanation
        if self.deviation is None or abs(self.deviation) <= CLOSE:
            return ""
        return f"Rounds to {self.configuration.printed}." if self.rounds else "Unexplained."


def rounds_to(count: float, printed: str) -> bool:
    """Whether a count is a printed number of millions, to its digits.

    >>> rounds_to(11_683_584, "12"), rounds_to(11_270_000, "11.3"), rounds_to(58_724_864, "60")
    (True, True, False)
    """
    return bool(printed) and (Decimal(count) / 10**6).quantize(Decimal(printed)) == Decimal(printed)


def compare(configuration: Configuration) -> Comparison:
    """Counts the network of a configuration."""
    system = configuration.system
    parts = system.parameters_by_part()
    encoder = sum(count for name, count in parts.items() if not name.endswith(" head"))
    return Comparison(
        configuration=configuration,
        encoder=encoder,
        pooler=encoder + _pooler(system),
        heads=system.parameters(),
        flops_per_token=system.flops_per_token(),
    )


def _pooler(system: System) -> int:
    with torch.device("meta"):
        head = SentencePair().heads(system.model.size(system.data.tokenizer.vocab_size))["pair"]
    return sum(parameter.numel() for parameter in head.pooler.parameters())


def comparisons(catalogue: Catalogue | None = None) -> list[Comparison]:
    """Every published configuration, in the order of the file."""
    return [compare(item) for item in (catalogue or read()).configurations]


def millions(count: float) -> str:
    """A count of parameters in millions with two decimals."""
    return fixed(count / 1e6, 2)


def percent(deviation: float | None) -> str:
    """``-0.47``; empty where there is none."""
    return "" if deviation is None else fixed(100 * deviation, 2, sign=True)


def sheets(catalogue: Catalogue, found: list[Comparison]) -> tuple[Sheet, Sheet, dict[str, Any]]:
    """The table to read, the table of every number, and the knobs behind each row."""
    items = [(one, one.configuration) for one in found]
    reading = Sheet(
        ("paper", "where", "configuration", "printed (M)", "counted (M)", "deviation (%)", "counted are",
         "FLOPs a token", "why they differ"),
        [
            (item.paper, item.table, item.name, item.printed, millions(one.counted), percent(one.deviation),
             item.includes, quantity(one.flops_per_token), one.reason)
            for one, item in items
        ] + [
            (item.paper, item.table, item.name, item.printed, "", "", "", "", f"Cannot be built yet: {item.missing}.")
            for item in catalogue.absent
        ],
        left=3,
        notes=_notes(catalogue),
    )  # fmt: skip
    everything = Sheet(
        ("id", "paper", "where", "configuration", "printed (M)", "includes", "counted", "deviation (%)", "rounds",
         "encoder", "with pooler", "with all heads", "flops a token", "ALBERT Avg", "why they differ"),
        [
            (item.id, item.paper, item.table, item.name, item.printed, item.includes, one.counted,
             None if one.deviation is None else 100 * one.deviation, one.rounds if item.printed else None,
             one.encoder, one.pooler, one.heads, one.flops_per_token, item.average, one.reason)
            for one, item in items
        ] + [
            (item.id, item.paper, item.table, item.name, item.printed, *[None] * 9,
             f"Cannot be built yet: {item.missing}.")
            for item in catalogue.absent
        ],
        left=4,
    )  # fmt: skip
    trace = {"configurations": [{"id": item.id, "base": item.base, "set": dict(item.set)} for _, item in items]}
    return reading, everything, trace


def _notes(catalogue: Catalogue) -> list[str]:
    parts = "; ".join(f"{name}: {meaning}" for name, meaning in PARTS.items())
    return [
        "Counted in our own network, biases and LayerNorm included, tied tables once. No paper says which parts its "
        f"count includes: it is compared with the nearest of three, the same for all like rows of a paper ({parts}).",
        f"A reason is given where the deviation exceeds {100 * CLOSE:g} %. FLOPs are those of pre-training, forward "
        "and backward, matrix products only, at 512 positions (Mask15: 128).",
        "ALBERT's counts are without the pooler where layers share nothing, and with it elsewhere. With a position "
        "table as wide as the stream (512 x H parameters, where ours and the released code have 512 x E) every count "
        "of its Tables 3, 4, 11 and 12, and of Table 1 but the largest and BERT-xlarge, is reproduced to the printed "
        "digit. That is arithmetic; the paper does not say how it counts.",
        f"Sources: {'; '.join(f'{name}: {source}' for name, source in catalogue.sources.items())}.",
    ]


def publish(results_dir: Path) -> list[Path]:
    """Writes ``published/parameters`` as ``.md``, ``.csv``, ``.tex``, ``.json`` and ``.svg`` into a results folder.

    The bytes depend on the catalogue and the networks alone.

    Returns:
        The files written.
    """
    from ablations.figures import parameters  # imports matplotlib, which counting does without
    from ablations.figures.style import svg

    catalogue = read()
    found = comparisons(catalogue)
    reading, everything, trace = sheets(catalogue, found)
    drawing = "![The published average of ALBERT over parameters](parameters.svg)"
    texts = {
        "md": f"# Parameters of published configurations\n\n{drawing}\n\n{markdown(reading)}",
        "csv": comma_separated(everything),
        "tex": latex(reading),
        "json": json.dumps(trace, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        "svg": svg(parameters.draw(found)),
    }
    paths = [results_dir / FOLDER / f"parameters.{end}" for end in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        store.write(path, text.encode())
    return paths
