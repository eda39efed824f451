"""Systems of 2018 to 2020: when each was released, how large it is, and what its training is said to have taken."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.literature import configurations, published_values
from ablations.literature.published_values import Published
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.files import once_per_version
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

FILE = Path(__file__).parents[1] / "published" / "systems.yaml"
SECOND_HAND = "second hand"
_BLOG, _OF_XLM = ("others", "table of costs"), ("others", "hardware")
_KEYS = {"name", "date", "reads", "sizes"}
_PLACES = ({"configuration"}, {"file", "table", "variant"})
_DATE = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
_MILLIONS = {"M": 1.0, "B": 1000.0}
PEAK = {"V100": 125e12}  # FLOP per second in half precision, as its maker prints it
_CHIPS = re.compile(r"(?P<count>[\d,]+) (?:x )?(?P<chip>V100|TPU chips?)(?: x (?P<days>[\d.]+) days?)?")


@dataclass(frozen=True)
class Size:
    """A printed number of parameters.

    Attributes:
        name: The size's name, as the source has it.
        printed: As printed, with its unit.
        millions: The number.
        source: Where it is printed.
        second_hand: Whether the system's own authors did not print it.
    """

    name: str
    printed: str
    millions: float
    source: str
    second_hand: bool


@dataclass(frozen=True)
class Released:
    """A system, its date as ``2018-10``, how its pretraining sees the text, and its sizes in the order of the file."""

    name: str
    date: str
    reads: str
    sizes: tuple[Size, ...]

    @property
    def months(self) -> int:
        """Months since the start of 2018."""
        year, month = map(int, self.date.split("-"))
        return 12 * (year - 2018) + month - 1


@dataclass(frozen=True)
class Hardware:
    """What a training is said to have taken: so many chips for so many days, or an unknown number of them."""

    chips: int
    chip: str
    days: float | None

    def __str__(self) -> str:
        chips = f"{self.chips:,} x {self.chip}"
        return (
            f"{chips}, days not printed"
            if self.days is None
            else f"{chips} x {self.days:g} day{'s' * (self.days != 1)}"
        )

    @property
    def chip_days(self) -> float | None:
        """Chips times days; None where these are not printed."""
        return None if self.days is None else self.chips * self.days

    def speed(self, flops: float) -> float | None:
        """FLOP per second that each chip must have had; None where days are not printed."""
        return None if self.chip_days is None else flops / (self.chip_days * 86_400)


@once_per_version
def released(file: Path = FILE) -> tuple[Released, ...]:
    """Reads and checks the file of systems.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``.
    """
    document = strict_yaml.load(file)
    document.check()
    systems = []
    for place, entry in enumerate(document.data if isinstance(document.data, list) else ()):
        if not isinstance(entry, dict) or set(entry) != _KEYS or not isinstance(entry["sizes"], list):
            document.complain(
                (place,), f"must have exactly the keys {', '.join(sorted(_KEYS))}. The value of sizes is a list."
            )
            continue
        if not _DATE.fullmatch(str(entry["date"])):
            document.complain((place, "date"), f"{entry['date']!r} is no month. Write it as 2018-10.")
        sizes = []
        for number, where in enumerate(entry["sizes"]):
            try:
                sizes.append(_size(where))
            except ConfigError as error:
                document.complain((place, "sizes", number), "; ".join(p.message for p in error.problems))
        systems.append(Released(entry["name"], str(entry["date"]), entry["reads"], tuple(sizes)))
    if not systems:
        document.complain((), "must be a list of systems")
    document.check()
    return tuple(systems)


def _size(where: Mapping[str, Any]) -> Size:
    if not isinstance(where, dict) or set(where) not in _PLACES:
        raise ConfigError(["must have the key configuration, or the keys file, table and variant"])
    if "configuration" in where:
        item = configurations.named(where["configuration"])
        if not item.printed:
            raise ConfigError([f"no paper prints the parameters of '{item.id}'"])
        source = f"{item.paper}, {item.table}"
        return Size(item.name, f"{item.printed} M", float(item.printed), source, second_hand=False)
    rows = published_values.read(where["file"], where["table"])
    sizes = {row.variant: row for row in rows if row.metric == "Parameters" and row.unit in _MILLIONS}
    if where["variant"] not in sizes:
        raise ConfigError([f"no parameters of '{where['variant']}' there.{did_you_mean(where['variant'], sizes)}"])
    row = sizes[where["variant"]]
    millions = row.number * _MILLIONS[row.unit]
    return Size(row.variant, f"{row.value} {row.unit}", millions, row.source, row.confidence == SECOND_HAND)


# --- costs


def told() -> tuple[Published, ...]:
    """The blog's table of costs, second hand."""
    return tuple(published_values.read(*_BLOG))


def training(system: str) -> tuple[Published, tuple[Hardware, ...]] | None:
    """What is said of the hardware that trained one of our systems; None if nothing is.

    It is said by the table of costs, and for XLM by its paper.

    >>> row, taken = training("bert_large")
    >>> row.value, [hardware.chip_days for hardware in taken]
    ('64 TPU chips x 4 days, or 280 x V100 x 1 day', [256.0, 280.0])
    """
    said = (*told(), *published_values.read(*_OF_XLM))
    rows = (row for row in said if row.metric == "training" and row.knobs.get("system") == system)
    row = next(rows, None)
    return row and (row, tuple(_hardware(row.value)))


def peak_share(hardware: Hardware, speed: float) -> float | None:
    """The share that a speed in FLOP per second has of a chip's printed peak; None where the text leaves it open."""
    return speed / PEAK[hardware.chip] if hardware.chip in PEAK else None


def told_of(made: Iterable[System]) -> list[str]:
    """A line for each of our systems of which a cost is stated, if it is made here: the same encoder, as many tokens.

    >>> (line,) = told_of([SYSTEMS["bert_base"], SYSTEMS["bert_large"].but(**{"training.steps": 10})])
    >>> line.partition(". ")[0]
    'Stated cost of bert_base, second hand: 8 x V100 x 12 days'
    """
    shapes = {(system.model.resolved(), system.tokens()): system for system in made}
    lines = []
    for name, published in SYSTEMS.items():
        said, system = training(name), shapes.get((published.model.resolved(), published.tokens()))
        if said is None or system is None:
            continue
        row, taken = said
        flops = system.flops()
        rates = ", or ".join(
            "has no rate, for the days are not printed"
            if (speed := each.speed(flops)) is None
            else f"in {each.chip_days:,.0f} {each.chip} days: {speed / 1e12:.0f} TFLOP/s a chip"
            for each in taken
        )
        lines.append(f"Stated cost of {name}, {row.confidence}: {row.value}. Our estimate, {flops:.2g} FLOPs, {rates}.")
    return lines


def _hardware(text: str) -> Iterator[Hardware]:
    for match in _CHIPS.finditer(text):
        days = None if match["days"] is None else float(match["days"])
        yield Hardware(int(match["count"].replace(",", "")), match["chip"].removesuffix("s"), days)
