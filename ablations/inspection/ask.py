"""Answers of a model: by the objectives that it was trained with, or by the head of its task.

Each comes with that of a method without a network, where the text or the task that this learns from is at hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ablations.inspection.models import Opened, Tuned
from ablations.inspection.questions import Question as Options
from lightning_modules.batch import SOURCE
from lightning_modules.config import ConfigError, Problem, Settings, knob
from lightning_modules.data.baselines.bigram import MOST_TOKENS, Bigrams, count
from lightning_modules.data.baselines.kneser_ney import NGrams
from lightning_modules.data.baselines.ngrams import Counted
from lightning_modules.data.store import TokenStore, open_store, store_folder
from lightning_modules.data.text.masks import MASK
from lightning_modules.objectives.objective import own_heads
from lightning_modules.tasks.reading.passages import Question, SpanExamples
from lightning_modules.tasks.shapes import choice
from lightning_modules.tasks.shapes.choice import Choice
from lightning_modules.tasks.shapes.shape import Shape
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.tasks.shapes.tagging import Sentence, Tagging
from lightning_modules.tasks.shapes.texts import Row, Texts

_Learnt = TypeVar("_Learnt")
_ORDER = 5  # of the n-grams that a language model is compared with


class Filling(Settings):
    """How masks are filled."""

    top: int = knob(5, "Predictions for each mask.", ge=1)
    joint: bool = knob(False, "Two masks at once: each by itself, against one after the other in either order.")


class Continuing(Settings):
    """How a prompt goes on: greedily, unless a knob of sampling is given."""

    new_tokens: int = knob(32, "Tokens after each prompt, at most.")
    temperature: float | None = knob(None, "Divides the logits. 0 takes the most probable token.")
    top_k: int | None = knob(None, "Draw from this many most probable tokens.")
    top_p: float = knob(1.0, "Draw from the fewest tokens that have this probability together.")
    seed: int = knob(0, "Seed of the draws.", ge=0)


class Scoring(Settings):
    """How continuations are scored."""

    neutral: str = knob("", "The prompt of unconditional probabilities.")
    stride: int | None = knob(None, "Read longer texts in windows, so many tokens apart.", ge=1)


class Translating(Settings):
    """How translations are searched for, and where the attention of the first one is drawn."""

    beam: int = knob(4, "Prefixes that are kept. Greedy search has 1.")
    length_penalty: float = knob(0.6, "Exponent of the length penalty. 0 is none.")
    attention: str = knob("", "A file for a picture, .svg or .png.")


class Answering(Settings):
    """What a folder does not say of its head."""

    pair: bool = knob(False, "Two texts are one example.")
    unanswerable: bool = knob(False, "A passage may lack the answer.")


class Nothing(Settings):
    """No knobs."""


@dataclass
class Asked:
    """A question to a model.

    Attributes:
        model: The model.
        texts: Texts, or prompts.
        knobs: Of how it answers, not checked yet.
        passage: Where the answer to a question is.
        questions: Prompts with options that are scored.
        progress: Called with the tokens that are done and their number.
        lines: What people read besides the rows.
        more: What programs get besides the rows.
    """

    model: Opened
    texts: Sequence[str]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    passage: str | None = None
    questions: Sequence[Options] = ()
    progress: Callable[[int, int], None] | None = None
    lines: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def answer(self) -> list[dict[str, Any]]:
        """The answers, a row each.

        Raises:
            ConfigError: For what the model cannot answer, before its weights are read; for an unknown knob.
        """
        system, tuned = self.model.system, self.model.tuned
        if tuned is not None:
            traits = Answering.read(self.knobs).to_dict()
            return self._of_task(tuned(len(self.texts) - 1, next((name for name in traits if traits[name]), "")))
        if self.passage is not None:
            raise ConfigError([Problem("--passage", f"{self.model.name} was not fine-tuned to read one")])
        if self.questions:
            return self._scored(Scoring.read(self.knobs))
        if SOURCE in system.model.supports:
            return self._translated(Translating.read(self.knobs))
        if any(MASK in text for text in self.texts):
            return self._filled(Filling.read(self.knobs))
        if system.objectives.sentence is not None and len(self.texts) == 2:
            Nothing.read(self.knobs)
            return self._pair()
        if system.objectives.lm is None:
            able = {"mlm": "fills [MASK]", "sentence": "says whether one of two texts follows the other"}
            can = " and ".join(able[name] for name, _ in system.objectives.present() if name in able)
            raise ConfigError([f"{self.model.name} {can or 'was not trained for anything that can be answered here'}"])
        return self._continued(Continuing.read(self.knobs))

    def _filled(self, how: Filling) -> list[dict[str, Any]]:
        from lightning_modules.analysis import probes
        from lightning_modules.analysis.joint_filling import fill_jointly

        encoder = self.model.encoder
        if self.model.system.objectives.mlm is None:
            raise ConfigError([f"{self.model.name} has no objective 'mlm' and cannot fill masks"])
        if how.joint:
            if len(self.texts) > 1:
                raise ConfigError([Problem("--set", "joint is of one text at a time")])
            pairs = fill_jointly(self.model.pretrained("mlm"), encoder, self.texts[0], how.top)
            return [{key.replace("_", " "): value for key, value in pair._asdict().items()} for pair in pairs]
        rows = []
        bigrams = self._without(lambda: self._bigrams(True, True), "bigrams")
        module = self.model.pretrained("mlm")
        for text in self.texts:
            ids = np.array([-1, *probes.masked(text, encoder), -1])
            hidden = np.flatnonzero(ids == encoder.vocabulary.mask)
            around = np.where(ids == encoder.vocabulary.mask, -1, ids)
            for number, fillings in enumerate(probes.fill_mask(module, encoder, text, how.top), 1):
                shown = [
                    {"text": text, "mask": number, "piece": f.piece, "probability": f.probability} for f in fillings
                ]
                if bigrams is not None:
                    place = hidden[number - 1]
                    chances = _chances(bigrams, around[place - 1], around[place + 1])
                    best = np.argsort(-chances, kind="stable")[: how.top]
                    for row, piece in zip(shown, best, strict=True):
                        row |= {"bigram": encoder.vocabulary.pieces[piece], "its probability": float(chances[piece])}
                rows += shown
        return rows if len(self.texts) > 1 else [{k: v for k, v in row.items() if k != "text"} for row in rows]

    def _continued(self, how: Continuing) -> list[dict[str, Any]]:
        from lightning_modules.generation import generate as writing

        draws = how.top_k is not None or how.top_p != 1
        temperature = float(draws) if how.temperature is None else how.temperature
        sampling = writing.Sampling(temperature, how.top_k, how.top_p)
        sampling.check()
        prompts = list(self.texts) or [""]
        rows = [self.model.texts.prompt(text) for text in prompts]
        writing.check_prompts(self.model.texts, rows, how.new_tokens)
        bigrams = self._without(lambda: self._bigrams(True, False), "bigrams")
        lm, new, seed = self.model.language_model(), how.new_tokens, how.seed
        found = writing.generate(lm, rows, sampling, new_tokens=new, seed=seed, on_progress=self.progress)
        shown = [
            {"prompt": text, "text": lm.decode([*lm.encode(text), *written.ids]), "ended": written.ended}
            for text, written in zip(prompts, found, strict=True)
        ]
        for row, ids, written in zip(shown, rows, found, strict=True):
            for _ in written.ids if bigrams is not None else ():
                ids = [*ids, int(_chances(bigrams, ids[-1] if ids else -1, -1).argmax())]
            row |= {"bigrams, greedily": lm.decode(ids[len(lm.start) :])} if bigrams is not None else {}
        return shown

    def _scored(self, how: Scoring) -> list[dict[str, Any]]:
        """The scores of every option, and the share of questions whose right option has the best one."""
        from lightning_modules.generation.scoring import SCORES, Windows, scored, split

        texts, windows = self.model.texts, None if how.stride is None else Windows(how.stride)
        self._check_lengths(how.neutral, windows)
        counts = self._without(self._ngrams, f"{_ORDER}-grams")
        lm, prompts = self.model.language_model(), [each.prompt for each in self.questions]
        options = [each.options for each in self.questions]
        found = scored(lm, prompts, options, neutral=how.neutral, windows=windows, on_progress=self.progress)
        ways, rows, chosen = dict[str, Any](SCORES), [], []
        right: dict[str, list[float]] = {}
        for question, continued in zip(self.questions, found, strict=True):
            own = [{name: rule(option) for name, rule in ways.items()} for option in continued]
            parts = [split(texts, question.prompt, option) for option in question.options]
            for row, (before, after) in zip(own, parts, strict=True):
                if counts is not None:
                    row[f"{_ORDER}-grams"] = -float(counts.nats([*before, *after])[len(before) :].sum())
            best = {name: _best([row[name] for row in own]) for name in own[0]}
            chosen.append(question.options[best["sum"][0]])
            if question.answer is not None:
                for name, places in best.items():  # of several equally good ones, one is guessed
                    right.setdefault(name, []).append((question.answer in places) / len(places))
            for place, (option, row, (_, after)) in enumerate(zip(continued, own, parts, strict=True)):
                factors = " ".join(
                    f"{lm.decode([piece])} {np.exp(nats):.2g}" for piece, nats in zip(after, option.tokens, strict=True)
                )
                told = {"prompt": question.prompt, "option": option.text, "right": question.answer == place}
                rows.append({**told, "tokens": len(option.tokens), **row, "each token's probability": factors})
        self.more = {"accuracy": {name: sum(hits) / len(hits) for name, hits in right.items()}, "chosen": chosen}
        most, stride = texts.max_positions, how.stride
        self.more |= {"positions": most, "stride": stride, "context": None if stride is None else most - stride}
        if right:
            of = sum(question.answer is not None for question in self.questions)
            told = ", ".join(f"{name} {share:.2f}" for name, share in self.more["accuracy"].items())
            self.lines.append(f"accuracy over {of} question{'s' * (of > 1)} with an answer: {told}")
        if stride:
            self.lines.append(
                f"Texts of more than {most} tokens were read in windows of that length, {stride} tokens apart. "
                f"Beyond the first window, a token has at least {most - stride} before it."
            )
        return rows

    def _check_lengths(self, neutral: str, windows: Any) -> None:
        from lightning_modules.generation.scoring import check_windows, split

        texts, wrong = self.model.texts, []
        most = texts.max_positions
        if windows is not None:
            check_windows(texts, windows)
        for question in self.questions:
            for prompt in (question.prompt, neutral):
                where = question.where if prompt == question.prompt else "--set neutral"
                for option in question.options:
                    before, after = split(texts, prompt, option)
                    size = len(before) + len(after)
                    if not before:
                        told = "this model has no start token, so that nothing predicts a first word: write a prompt"
                        wrong.append(Problem(where, told))
                    elif windows is None and size > most:
                        told = f"prompt and option {option!r} have {size} tokens, but the model has {most} positions. "
                        wrong.append(Problem(where, f"{told}Shorten them, or add --set stride={max(1, most // 2)}."))
        if wrong:
            raise ConfigError(dict.fromkeys(wrong))

    def _translated(self, how: Translating) -> list[dict[str, Any]]:
        from lightning_modules.data.baselines import translations
        from lightning_modules.generation.translate import Beam, Translator, check_translates

        system, encoder = self.model.system, self.model.encoder
        check_translates(system, self.model.name)
        beam = Beam(how.beam, how.length_penalty)
        beam.check()
        if not self.texts:
            raise ConfigError([f"{self.model.name} translates: give it a sentence"])
        if how.attention and Path(how.attention).suffix not in (".svg", ".png"):
            raise ConfigError([f"attention {how.attention} is no picture. Let its name end in .svg or .png."])
        texts = [" ".join(sentence.split()) for sentence in self.texts]
        known = self._without(lambda: translations.sides(system.data, "train"), "word for word")
        rows = [encoder.fast.encode(text, add_special_tokens=False).ids for text in texts]
        translator = Translator.of(self.model.pretrained("lm"), system, encoder.vocabulary)
        found = translator.translate(rows, beam)
        if how.attention:
            self._drawn(translator, rows[0], found[0].ids, Path(how.attention))
        shown = [
            {
                "sentence": text,
                "translation": encoder.fast.decode(best.ids, skip_special_tokens=False).strip(),
                "score": round(best.score, 4),
            }
            for text, best in zip(texts, found, strict=True)
        ]
        for row, words in zip(shown, translations.word_by_word(texts, *known), strict=True) if known else ():
            row["word by word"] = words
        return shown

    def _drawn(self, translator: Any, source: list[int], target: list[int], picture: Path) -> None:
        """Draws the attention of the last layer that attends to a source, each row of which sums to 1."""
        from ablations.figures.style import save
        from ablations.inspection.attention_figure import of_source
        from lightning_modules.analysis.attention_maps import source_attention
        from lightning_modules.batch import Unsupported

        columns, rows = ([self.model.encoder.fast.decode([piece]) for piece in ids] for ids in (source, target))
        small = f"Columns: the source. Rows: the translation by {self.model.name[:12]}. Each row sums to 100 %."
        try:
            weights = source_attention(translator.backbone, translator.read(source, target))[-1][0]
        except Unsupported as error:
            raise ConfigError([str(error)]) from None
        save(of_source(weights.numpy(), [*columns, "[end]"], [*rows, "[end]"], small), picture)

    @torch.no_grad()
    def _pair(self) -> list[dict[str, Any]]:
        """How probable it is that the second text follows the first, and the first the second."""
        from lightning_modules.tasks import FineTuning
        from lightning_modules.tasks.reading.pieces import Pieces
        from lightning_modules.tasks.shapes.texts import Texts

        system, encoder = self.model.system, self.model.encoder
        objective = system.objectives.sentence
        assert objective is not None, "the caller has looked"
        shape, pairs = Texts(("follows", "does not"), pair=True), [self.texts, self.texts[::-1]]
        examples = _examples(shape, [text for pair in pairs for text in pair], None)
        length = min(512, system.model.longest or 512)
        settings = FineTuning().but(max_length=length, layout="cls_last" if system.cls_last else "cls_sep")
        module = self.model.pretrained("sentence")
        pieces = Pieces.of(examples.texts(), encoder)
        batch = shape.inputs(examples, pieces, encoder.vocabulary, settings).batch(np.arange(2))
        batch.targets["sentence"] = batch.targets["label"]
        logits = objective.logits(own_heads(module.heads, "sentence"), module(batch), batch)
        shared = len(set(self.texts[0].lower().split()) & set(self.texts[1].lower().split()))
        return [
            {"first": first, "second": second, "follows": float(chance), "words in both": shared}
            for (first, second), chance in zip(pairs, logits.float().softmax(1)[:, 0], strict=True)
        ]

    @torch.no_grad()
    def _of_task(self, tuned: Tuned) -> list[dict[str, Any]]:
        from lightning_modules.tasks.pins import TASK_PINS

        shape = tuned.shape
        examples = _examples(shape, self.texts, self.passage)
        inputs = tuned.inputs(examples)
        known = self._without(lambda: TASK_PINS.checked(tuned.task, "train"), "simple method")
        simple = {} if known is None else shape.baselines(known, examples)
        backbone, head = tuned.networks()
        batch = inputs.batch(np.arange(len(inputs)))
        outputs = [each.float().numpy() for each in head.by_item(head(backbone(batch), batch), batch)]
        return _shown(tuned, examples, outputs, inputs, {shape.methods[name]: given for name, given in simple.items()})

    def _without(self, made: Callable[[], _Learnt], what: str) -> _Learnt | None:
        """What a method without a network has learnt; None, and a line for people, if its text is not at hand."""
        try:
            if self.model.is_folder:
                raise ConfigError(["a folder does not hold the text that its model was trained on"])
            return made()
        except ConfigError as error:
            self.lines.append(f"No {what} to compare with: {error}")
            return None

    def _bigrams(self, left: bool, right: bool) -> Bigrams:
        return count(self._store(), (left, right))

    def _ngrams(self) -> NGrams:
        return NGrams(Counted.of(self._store(), MOST_TOKENS), _ORDER)

    def _store(self) -> TokenStore:
        """The text of its training, if it is prepared: nobody waits minutes for a comparison."""
        if not store_folder(data := self.model.system.data, "train").exists():
            raise ConfigError(["the text of its training is not prepared on this machine"])
        return open_store(data, "train")


def _chances(bigrams: Bigrams | None, left: Any, right: Any) -> np.ndarray:
    """The probability of each piece between two, -1 for one that is not seen ``[v]``."""
    assert bigrams is not None, "the caller has looked"
    size = len(bigrams.tokens)
    return bigrams.probability(np.arange(size), np.full(size, left), np.full(size, right))


def _best(scores: Sequence[float]) -> list[int]:
    return [place for place, score in enumerate(scores) if score == max(scores)]


def _examples(shape: Shape, texts: Sequence[str], passage: str | None) -> Any:
    """Texts as examples whose answer nobody knows.

    Raises:
        ConfigError: If they are too many or too few for the shape, or without words.
    """
    wanted = {Texts: shape.reads, Choice: getattr(shape, "options", 0) + 1}.get(type(shape), 1)
    if not texts or len(texts) % wanted:
        what = "a question and its options" if isinstance(shape, Choice) else "texts"
        raise ConfigError([f"this model reads {wanted} {what} at a time, and {len(texts)} are given"])
    if (passage is None) == isinstance(shape, Spans) and not isinstance(shape, Choice):
        told = "has to hold the answer: add --passage TEXT" if passage is None else "is read by models of questions"
        raise ConfigError([Problem("--passage", told)])
    groups = [texts[start : start + wanted] for start in range(0, len(texts), wanted)]
    if isinstance(shape, Spans):
        return SpanExamples.of([Question(str(n), text, passage or "", ()) for n, text in enumerate(texts)])
    if isinstance(shape, Tagging):
        sentences = [Sentence(tuple(text.split()), ("O",) * len(text.split()), n) for n, text in enumerate(texts)]
        return shape.read(sentences, "the question")
    if isinstance(shape, Choice):  # which asks about a passage, or goes on from the first text
        before = [(passage, asked) if passage else (asked, "") for asked, *_ in groups]
        rows = [choice.Question(*texts, tuple(own[1:]), 0) for texts, own in zip(before, groups, strict=True)]
        return shape.read(rows, "the question")
    if not isinstance(shape, Texts):
        raise ConfigError([f"a {type(shape).__name__.lower()} has no questions here"])
    label = shape.labels[0] if shape.labels else "0"
    rows = [Row(group[0], group[1] if shape.pair else None, label, place=repr(group[0])) for group in groups]
    return shape.read(rows, "the question")


def _shown(tuned: Tuned, examples: Any, outputs: list[np.ndarray], inputs: Any, simple: dict[str, Any]) -> list[Any]:
    """A row for each answer, with those of simple methods."""
    shape, labels = tuned.shape, tuned.labels
    if isinstance(shape, Spans):
        given = {"answer": shape.answers(outputs, inputs), **simple}
        texts = {
            name: ["" if shape.unanswerable and null > 0 else text for text, null in zip(*found, strict=True)]
            for name, found in given.items()
        }
        return [
            {"question": question} | {name: found[n] or "(the passage does not say)" for name, found in texts.items()}
            for n, question in enumerate(examples.questions)
        ]
    if isinstance(shape, Tagging):
        chances = np.zeros((examples.bounds[-1], len(labels)))  # of a word without pieces there are none
        for words, logits in zip(inputs.words, outputs, strict=True):
            chances[words] = torch.from_numpy(logits).softmax(1)
        found = [labels[row.argmax()] if row.any() else "O" for row in chances]
        beside = {name: np.concatenate(tags) for name, tags in simple.items()}
        return [
            {"word": word, "tag": found[n], "probability": float(chances[n].max())}
            | {name: labels[tags[n]] for name, tags in beside.items()}
            for n, word in enumerate(" ".join(examples.sentences).split(" "))
        ]
    stacked = np.stack(outputs)
    if isinstance(shape, Choice):
        names = [options for _, options in examples.questions]
        asked = [{"question": question} for question, _ in examples.questions]
    else:
        names = [labels] * len(stacked)
        parts = [examples.first, *([examples.second] if examples.second else [])]
        asked = [dict(zip(("text", "second"), texts, strict=False)) for texts in zip(*parts, strict=True)]
    if not names[0]:
        return [
            row | {"answer": float(stacked[n, 0])} | {name: float(found[n]) for name, found in simple.items()}
            for n, row in enumerate(asked)
        ]
    chances = torch.from_numpy(stacked).softmax(1).numpy()
    return [
        row
        | {"answer": names[n][chances[n].argmax()], "probability": float(chances[n].max())}
        | {name: names[n][int(found[n])] for name, found in simple.items()}
        for n, row in enumerate(asked)
    ]
