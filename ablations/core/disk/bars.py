"""Bars: what counting reaches on held-out words, and simple methods on tasks, kept with the records.

``bars/<held-out text>.<question>.json`` of the results folder holds the scores of one question: ``loss``, ``next_loss``
and so on. The text is the id that held-out losses by sequence name (``text`` of `Records.sums`). Of models that
continue a trunk of other text a third part of the name says which, since they have read that too. A file says itself
what its name is made of, and has a checksum. The same question has the same file, whoever computes it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from ablations.core.disk.publishing import check_inside, publish
from ablations.core.disk.reading import Damage, Flawed, content, from_json, to_json
from ablations.schema.record import Record, checksum
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, Settings, identity, knob, required
from lightning_modules.measures import heldout_text
from lightning_modules.measures.counting import RECIPE, Reached
from lightning_modules.places import behind
from lightning_modules.tasks.measured_baselines import described
from lightning_modules.tasks.measured_baselines import names as method_names

FOLDER = "bars"
COMMAND = "ablations run"
_REMEDY = f"Restore it from a copy, or remove it and compute it again (`{COMMAND}`)."
_OWN = "training"  # the training text, as `heldout_text.read` calls it


class Counted(Settings):
    """A text that was counted."""

    corpora: dict[str, str] = required("Corpus -> fingerprint, of the text and of its tokenizer.", min_length=1)
    data: dict[str, Any] = required("Corpora and tokenizer, as settings.")
    tokens: int = required("Tokens counted, spread evenly over the text.", ge=1)


class Recipe(Settings):
    """How scores were computed."""

    command: str = required("The command that computes them.")
    generation: int = required("Generation of the code. Another one gives other scores.", ge=1)
    fitted_on: str = required("What exponents, discounts and weights were fitted on, in words.")
    judged_on: str = required("What was judged, in words.")
    counted: dict[str, Counted] = required(
        "The texts that were counted: training, and those of trunks (trunk, trunk 2).", min_length=1
    )
    methods: dict[str, list[Any]] = required("Method -> what was fitted, once for each part that is judged apart.")


class Bar(Settings):
    """What counting reaches on the words of one question."""

    text: list[Any] = required("All that determines the held-out text. Its hash is the id.", min_length=5)
    question: str = required("The name of the held-out loss. Of masked words, also the side that is seen.")
    floor: str = required("The method whose score a model has to pass.")
    scores: dict[str, float] = required("Name of a method, as tables show it -> nats per word.")
    by_tokens: dict[str, float] = required("Tokens counted -> nats per word of that method.")
    recipe: Recipe = required("How the scores were computed.")
    checksum: str = knob("", "SHA-256 of all other fields.")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if {self.floor} - self.scores.keys() or self.scores.keys() != self.recipe.methods.keys():
            raise ValueError("every score needs its method in the recipe, and the floor is one of them")
        if {_OWN} - self.recipe.counted.keys():
            raise ValueError("the recipe lacks the training text that was counted")
        return self

    @property
    def metric(self) -> str:
        """The metric that the scores are of."""
        return f"heldout.{self.question.partition('.')[0]}"

    @property
    def level(self) -> float:
        """The score that a model has to pass."""
        return self.scores[self.floor]

    def after(self, tokens: float) -> float | None:
        """What that method reaches after so many tokens, read off on a straight line over their logarithm.

        Returns:
            Nats a word; None for fewer or more tokens than were counted.
        """
        counted = sorted((float(count), nats) for count, nats in self.by_tokens.items())
        if not counted or not counted[0][0] <= tokens <= counted[-1][0]:
            return None
        x, nats = zip(*counted, strict=True)
        return float(np.interp(np.log(tokens), np.log(x), nats))

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        parts = sorted(self.recipe.counted.items())
        others = [part for name, text in parts if name != _OWN for part in (text.corpora, text.data)]
        return _named(self.text, self.question, others)


class Methods(Settings):
    """What simple methods reach on the examples of a task."""

    task: str = required("The task.")
    examples: list[Any] = required("All that determines the examples and methods. Its hash is the id.", min_length=1)
    scores: dict[str, float] = required("Metric -> score, as fine-tunings record them.", min_length=1)
    checksum: str = knob("", "SHA-256 of all other fields.")

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return _methods_named(self.examples)


_METHODS = ".methods"  # ends the names of their files


def _methods_named(examples: list[Any]) -> str:
    return f"{identity(examples)[:16]}{_METHODS}"


def methods_name(run: Run) -> str:
    """The name of the scores of simple methods on the examples of a fine-tuning."""
    return _methods_named(_examples(run))


def _examples(run: Run) -> list[Any]:
    assert run.finetuning is not None
    share, count = run.finetuning.validation_share, run.finetuning.train_examples
    return described(run.task, run.fingerprints[run.task], share, count, run.seed)


def lacking(record: Record) -> set[str]:
    """The metrics of simple methods that a finished fine-tuning was recorded without."""
    if record.kind != "finetune" or record.outcome != "done":
        return set()
    try:
        is_few = record.config["finetuning"].get("train_examples") is not None
        return method_names(record.config["task"], is_few) - record.metrics.keys()
    except (ConfigError, KeyError):  # of a task that this version lacks
        return set()


def made_methods(run: Run, scores: Mapping[str, float]) -> Methods:
    """The scores of simple methods on the examples of a fine-tuning."""
    found = Methods(task=run.task, examples=_examples(run), scores=dict(scores))
    return found.model_copy(update={"checksum": checksum(found.to_dict())})


def name(run: Run, target: str) -> str:
    """The name of the bar of one of the held-out losses of a pretraining."""
    text = heldout_text.described(run.system, run.fingerprints)
    _, *read = heldout_text.read(run.system).values()
    others = [part for data in read for part in (_prints(run, data.named), data.essence())]
    return _named(text, heldout_text.question(run.system, target), others)


def recorded(record: Record) -> list[str]:
    """The names of the bars of a record: of held-out losses, and of methods that it lacks.

    None if this version cannot read its configuration.
    """
    try:
        if lacking(record):
            return [methods_name(record.run())]
        if record.kind != "pretrain":
            return []
        run = record.run()
        return [name(run, target) for target in heldout_text.targets(run.system)]
    except (ConfigError, KeyError):
        return []


def _named(text: list[Any], question: str, others: list[Any]) -> str:
    return ".".join([heldout_text.named(text), question, *([identity(others)[:8]] if others else [])])


def _prints(run: Run, names: tuple[str, ...]) -> dict[str, str]:
    return {corpus: run.fingerprints[corpus] for corpus in names}


def file(name: str) -> str:
    """The place of a bar, relative to the results folder."""
    return f"{FOLDER}/{name}.json"


def made(run: Run, target: str, reached: Reached) -> Bar:
    """The bar of what counting reaches on the words of a pretraining."""
    counted = {
        part: Counted(corpora=_prints(run, data.named), data=data.essence(), tokens=reached.counted[part])
        for part, data in heldout_text.read(run.system).items()
    }
    bar = Bar(
        text=heldout_text.described(run.system, run.fingerprints),
        question=heldout_text.question(run.system, target),
        floor=next(iter(reached.scores)),
        scores=reached.scores,
        by_tokens={str(tokens): nats for tokens, nats in reached.by_tokens.items()},
        recipe=Recipe(
            command=COMMAND,
            generation=RECIPE,
            fitted_on=reached.fitted_on,
            judged_on=reached.judged_on,
            counted=counted,
            methods=reached.methods,
        ),
    )
    return bar.model_copy(update={"checksum": checksum(bar.to_dict())})


def parsed(name: str, raw: bytes) -> Bar | Methods:
    """The bar in the content of a file.

    Raises:
        Flawed: If it is none, has been changed, or is another one than its name says.
    """
    data = from_json(raw)
    try:
        right = checksum(data)
    except ValueError:
        raise Flawed("malformed", f"holds what no JSON can. {_REMEDY}") from None
    if data.get("checksum") != right:
        raise Flawed("altered", f"does not match its checksum: it was changed after it was written. {_REMEDY}")
    try:
        bar = (Methods if name.endswith(_METHODS) else Bar).read(data)
    except ConfigError as error:
        raise Flawed("malformed", f"is no bar ({error.problems[0]}). {_REMEDY}") from None
    if bar.name != name:
        raise Flawed("misplaced", f"is the bar {bar.name}. Rename it to {bar.name}.json or remove it.")
    return bar


def read(results: Path, name: str) -> Bar | Methods:
    """A bar of a results folder.

    Raises:
        FileNotFoundError: If it has none of this name.
        Flawed: If its file is none.
    """
    folder = next((part for part in behind(results) if (part / file(name)).exists()), results)
    return parsed(name, content(folder / file(name), folder))


def write(results: Path, bar: Bar | Methods) -> Path:
    """Keeps a bar, unless a sound one is there.

    Returns:
        Its file.

    Raises:
        StoreError: If it cannot be written.
    """
    path = results / file(bar.name)
    check_inside(path.parent, results)
    publish(path, to_json(bar.to_dict()), lambda there: _is_sound(there, bar.name, results))
    return path


def is_kept(results: Path, name: str) -> bool:
    """Whether a results folder has a bar of this name, as it was written."""
    return any(_is_sound(folder / file(name), name, folder) for folder in behind(results))


def _is_sound(path: Path, name: str, results: Path) -> bool:
    try:
        parsed(name, content(path, results))
    except (FileNotFoundError, Flawed):
        return False
    return True


def damages(results: Path) -> Iterator[Damage]:
    """What is wrong with the bars of a results folder."""
    for path in sorted((results / FOLDER).glob("*.json")):
        try:
            read(results, path.stem)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except Flawed as flaw:
            yield Damage(file(path.stem), flaw.flaw, str(flaw))


class Bars:
    """The bars of a results folder, each read once.

    Args:
        results: The folder; None for none.
    """

    def __init__(self, results: Path | None) -> None:
        self._results, self._known = results, dict[str, Bar | Methods | None]()
        self._are_any = results is not None and any((folder / FOLDER).is_dir() for folder in behind(results))

    def of(self, run: Run) -> Mapping[str, Bar]:
        """Target -> the bar of a pretraining's held-out loss, as far as there are any."""
        if not self._are_any:
            return {}
        found = {target: self._read(name(run, target)) for target in heldout_text.targets(run.system)}
        return {target: bar for target, bar in found.items() if isinstance(bar, Bar)}

    def of_methods(self, record: Record) -> Mapping[str, float]:
        """Metric -> score of simple methods that a record was made without, as far as they are kept."""
        wanted = lacking(record) if self._are_any else set()
        found = self._read(methods_name(record.run())) if wanted else None
        scores = found.scores if isinstance(found, Methods) else {}
        return {metric: scores[metric] for metric in sorted(wanted & scores.keys())}

    def _read(self, name: str) -> Bar | Methods | None:
        if name not in self._known:
            assert self._results is not None
            try:
                self._known[name] = read(self._results, name)
            except (FileNotFoundError, Flawed):
                self._known[name] = None
        return self._known[name]
