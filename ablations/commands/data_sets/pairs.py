"""What reveals the label of segment pairs: the scores of simple methods on every construction."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar, get_args

from ablations.measurements.references import PAIRS
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.data.formats import matched
from lightning_modules.data.formats.excerpts import Excerpt
from lightning_modules.data.formats.input_format import InputFormat, Pairing
from lightning_modules.data.formats.pairs import Negatives
from lightning_modules.data.loader import QUESTIONS, PretrainingData
from lightning_modules.data.store import open_store
from lightning_modules.system import System

Name = TypeVar("Name", bound=str)
METHODS = {
    "lengths": "lengths",
    "starts": "document starts and ends",
    "corpora": "corpora",
    "together": "all of these",
} | PAIRS
EXCERPTS: tuple[Excerpt, ...] = get_args(Excerpt)
PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)


def checked(option: str, chosen: Sequence[str], allowed: Sequence[Name]) -> list[Name]:
    """The values of an option, each once.

    Raises:
        ConfigError: With each unknown one and what is allowed.
    """
    unknown = [value for value in chosen if value not in allowed]
    if unknown:
        raise ConfigError(
            Problem(option, f"there is no {value!r}.{did_you_mean(value, allowed, listed=True)}") for value in unknown
        )
    return [name for name in allowed if name in chosen]


def rows(system: System, pairings: Sequence[Pairing], parts: Sequence[Excerpt], count: int) -> Iterator[dict[str, Any]]:
    """The accuracy and the AUC of each simple method on held-out pairs, with standard errors.

    Args:
        system: Has text, tokenizer and sequence length.
        pairings: The constructions.
        parts: What is shown of the pairs, in training and on held-out text.
        count: Maximum number of held-out pairs of a kind.
    """
    for pairing in pairings:
        text = _text(system, pairing, "random")
        for part in parts:
            for question, negatives in QUESTIONS.items():
                scores = text.pair_scores(negatives, count, part)
                for method, score in scores.items():
                    shown = {"pairs": pairing, "question": question.upper(), "shown": part}
                    yield shown | {"method": METHODS[method], **asdict(score)}


def notes(system: System, pairings: Sequence[Pairing]) -> list[str]:
    """What training pairs are like: how many of them are negatives, and what of the text they leave out."""
    lines = []
    for pairing in pairings:
        for question, negatives in QUESTIONS.items():
            pairs = _text(system, pairing, negatives).format.arrange_pairs(open_store(system.data, "train"))
            lines.append(
                f"{pairing}, {question.upper()}: {len(pairs):,} training pairs, {pairs.index[4].mean():.1%} of them of "
                f"label 1, {pairs.fill:.0%} of the positions filled"
            )
    if "matched" in pairings:
        lines.append(_left_out(system))
    return lines


def _left_out(system: System) -> str:
    form = _text(system, "matched", "random").format
    found = asdict(matched.account(open_store(system.data, "train"), form.resolved()))
    share = {name: tokens / max(sum(found.values()), 1) for name, tokens in found.items()}
    return (
        f"matched: {share['pairs']:.1%} of the text in pairs, the same for NSP and SOP. Sentences longer than a pair "
        f"({share['too_long']:.1%}) or with no neighbour that fits ({share['alone']:.1%}) are left out. First and last "
        f"sentences of documents ({share['edges']:.1%}) are too, and chunks without a partner "
        f"({share['unpartnered']:.1%})."
    )


def _text(system: System, pairing: Pairing, negatives: Negatives) -> PretrainingData:
    """The training text of a system in pairs of a construction."""
    given = system.format
    form = InputFormat(
        kind="segment_pairs",
        sequence_length=given.sequence_length,
        negatives=negatives,
        pairing=pairing,
        short_fraction=given.short_fraction,
        duplicates=1,
    )
    return replace(system.data_module(0), format=form, pairing=pairing)
