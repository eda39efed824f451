"""The cards of pages, ``<grid>/<scale>/page.json``: what the overviews say of each page."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from ablations.claims.outcomes import Regime
from ablations.core import store
from lightning_modules.config import ConfigError, Settings, knob, required
from lightning_modules.files import Refused, read

NAME = "page.json"


class PageWarning(UserWarning):
    """A file of a page cannot be read and was left out."""


class _Part(Settings):
    model_config = ConfigDict(extra="ignore")  # another version may say more


class _Claim(_Part):
    claim: str = required("The published claim. Empty for a hypothesis of the grid.")
    asked: str = required("The id of the grid's own claim.")
    statement: str = required("What is claimed.")
    sentence: str = required("The verdict in words.")
    outcome: Literal["as claimed", "against", "within the margin", "open", "not run", "not judged"] = required(
        "The verdict."
    )
    metric: str = required("What was measured.")
    n: int = required("Runs of the side that has fewest.")
    direction: str = knob("", "Which way the interval shows the difference to go.")
    size: str = knob("", "Where the interval lies against the margin.")
    reason: str = knob("", "Why the claim is open.")
    look: int = knob(1, "The look whose runs speak.")
    margin: float | None = knob(None, "The largest difference that counts as equal.")
    unit: str = knob("", "The unit of effect, interval and margin.")
    effect_low: float | None = knob(None, "The lower end of the interval that decides.")
    effect_high: float | None = knob(None, "Its upper end.")
    quantity: str = knob("", "The unit of the metric: effects of one quantity compare.")
    printed_effect: float | None = knob(None, "The published effect in that unit, where it transfers.")
    post_hoc: bool = knob(False, "Whether it was stated after runs had been seen.")
    continued: bool = knob(False, "Whether it is about continued pretraining.")
    aligned: float | None = knob(None, "The difference at equal multiples of the crossing.")
    aligned_low: float | None = knob(None, "The lower end of its 95 % interval.")
    aligned_high: float | None = knob(None, "The upper end.")
    kind: str = knob("", "Whether that makes the difference one of speed or of quality.")
    regime: Regime = knob(Regime.NONE, "What kind of result it is.")
    because: str = knob("", "Why its validity is threatened.")
    plain_low: float | None = knob(None, "The lower end of the interval at 95 %, not corrected.")
    plain_high: float | None = knob(None, "Its upper end.")
    test: int | None = knob(None, "Which of the tests of its page it is.")
    p: float | None = knob(None, "Two-sided p, corrected for looks and not for claims.")
    basis: dict[str, str | float | None] = knob({}, "What the interval is computed from, by the columns of the table.")
    effect: float | None = required("The difference.")
    runs: tuple[str, ...] = required("The runs behind it.")


class _Card(_Part):
    question: str = required("The question of the grid.")
    finished: int = required("Finished runs.")
    planned: int = required("All runs.")
    verdicts: str = required("The verdicts, counted.")
    headline: str = knob("", "The answer in one line, with its interval. Empty where no claim is judged.")
    claims: tuple[_Claim, ...] = required("The claims with their verdicts.")
    overridden: str = knob("", "What the study overrides, in words.")
    answer: str = knob("", "The answer in words, as Markdown, where the grid has one.")


def write(folder: Path, card: dict[str, Any]) -> Path:
    """Writes the card of a page. Numbers have ten digits, which hides how machines round."""
    path = folder / NAME
    store.write(path, (json.dumps(_ten_digits(card), indent=1, ensure_ascii=False) + "\n").encode())
    return path


def _ten_digits(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _ten_digits(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_ten_digits(value) for value in data]
    return float(f"{data:.10g}") if isinstance(data, float) else data


def cards(results_dir: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder and the card of every page, in alphabetical order; a `PageWarning` names each file that is none."""
    for path in sorted(results_dir.glob(f"*/*/{NAME}")):
        try:
            yield path.parent, _Card.read(json.loads(read(path, within=results_dir))).to_dict()
        except (OSError, ValueError, RecursionError) as error:
            reason = error.problems[0] if isinstance(error, ConfigError) else error
            reason = error.strerror if isinstance(error, Refused) else reason
            where = path.relative_to(results_dir).as_posix()
            text = f"left out: {where}: is no card of a page ({reason}). Delete it, or publish its page again."
            warnings.warn(text, PageWarning, stacklevel=2)
