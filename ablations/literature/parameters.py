"""Parameter counts of published configurations: counted in our networks, next to the printed counts.

Counting happens on the meta device: it takes no memory and trains nothing.
"""

from dataclasses import dataclass
from decimal import Decimal

import torch

from ablations.core.formatting import fixed
from ablations.literature.configurations import Catalogue, Configuration, read
from lightning_modules.objectives import SentencePair
from lightning_modules.system import System

CLOSE = 0.015  # a deviation up to this needs no explanation


PARTS = {
    "encoder": "embeddings and layers",
    "pooler": "those and the dense layer on the first position",
    "heads": "the first and the heads of pre-training",
}


@dataclass(frozen=True)
class Comparison:
    """The counts of one configuration, each including the one before it.

    Attributes:
        encoder: Embeddings, layers, and the LayerNorm above them, if any.
        pooler: The encoder and the dense layer on the first position, even if no objective trains it.
        heads: The encoder and the heads of every objective.
        flops_per_token: FLOPs of pretraining, forward and backward.
    """

    configuration: Configuration
    encoder: int
    pooler: int
    heads: int
    flops_per_token: float

    @property
    def counted(self) -> int:
        """Our count to compare with the printed one."""
        return getattr(self, self.configuration.includes)

    @property
    def deviation(self) -> float | None:
        """Our count relative to the printed one, minus 1; None if none is printed."""
        printed = self.configuration.printed
        return self.counted / (float(printed) * 1e6) - 1 if printed else None

    @property
    def rounds(self) -> bool:
        """Whether our count rounds to the printed one."""
        return rounds_to(self.counted, self.configuration.printed)

    @property
    def reason(self) -> str:
        """Why the counts differ; empty if they are close."""
        if self.configuration.explanation:
            return self.configuration.explanation
        if self.deviation is None or abs(self.deviation) <= CLOSE:
            return ""
        return f"Rounds to {self.configuration.printed}." if self.rounds else "Unexplained."


def rounds_to(count: float, printed: str) -> bool:
    """Whether a count rounds to a printed number of millions.

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
    return sum(parameter.numel() for parameter in head.get_submodule("pooler").parameters())


def comparisons(catalogue: Catalogue | None = None) -> list[Comparison]:
    """Every published configuration, in the order of the file."""
    return [compare(item) for item in (catalogue or read()).configurations]


def millions(count: float) -> str:
    """A count of parameters in millions with two decimals."""
    return fixed(count / 1e6, 2)


def percent(deviation: float | None) -> str:
    """``-0.47``; empty for None."""
    return "" if deviation is None else fixed(100 * deviation, 2, sign=True)
