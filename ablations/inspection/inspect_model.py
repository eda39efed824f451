"""One pretrained model looked into: the object that a notebook holds beside its study.

Everything is shown of one run, and says which. Nothing here is a result: no record, page or verdict comes of it.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from IPython.display import SVG, Markdown

from ablations.core import strict_yaml
from ablations.core.formatting import Sheet, cell_text, fixed, markdown, markdown_text, quantity
from ablations.core.store import Records
from ablations.figures.style import svg
from ablations.inspection import attention_figure, example_texts
from ablations.inspection.trained import finished, weights
from ablations.planning.plan import Plan
from lightning_modules.analysis.attention_maps import (
    Attention,
    HeadStatistics,
    attention_maps,
    head_statistics,
    most_beyond,
)
from lightning_modules.config import ConfigError
from lightning_modules.data.store import open_store, tokenizer_file
from lightning_modules.data.text.encode import Encoder, as_example

with warnings.catch_warnings():  # tqdm, which Lightning imports, misses widgets that nothing here uses
    warnings.filterwarnings("ignore", message="IProgress not found")
    from ablations.inspection import embedding_figure
    from lightning_modules.analysis.probes import fill_mask, pretrained, probe_layers
    from lightning_modules.analysis.words_as_vectors import WordVectors, nearest_alike, word_states
    from lightning_modules.data.order.heldout import HeldOut
    from lightning_modules.training.pretrain import Pretrain

if TYPE_CHECKING:
    from ablations.study import Study
    from lightning_modules.tasks import FineTuning

_SEQUENCES = 256  # of held-out text, over which heads are averaged
_NAMES = {"tfidf": "TF-IDF + logistic regression", "majority": "majority class"}
_LONGEST = 64  # positions of an example that is probed


class Inside:
    """One finished pretraining, ready to be asked.

    Args:
        plan: What was trained. It must have one cell; of several seeds the first is taken.
        records: Where its record is. Weights that are not at hand are trained again.

    Raises:
        ConfigError: When the plan has more than one cell, or the run did not finish.
    """

    def __init__(self, plan: Plan, records: Records) -> None:
        if len(plan.cells) != 1:
            listed = "; ".join(str(cell.values) for cell in plan.cells)
            raise ConfigError(
                [f"one model is looked into, and {len(plan.cells)} are left: set filters to one of {listed}"]
            )
        (cell,) = plan.cells
        if not cell.runs:
            raise ConfigError([f"the search of '{cell.label}' has not chosen: `ablations run` trains what is missing"])
        self.run, self.system, self.records = cell.runs[0], cell.runs[0].system, records
        self.record = finished(self.run.id, records, "pretrain")
        self._small = f"{plan.grid.name}, {plan.scale}, {cell_text(cell.values)}; run {self.run.id[:8]}"

    @classmethod
    def of(cls, study: "Study") -> "Inside":
        """The model of a study whose filters leave one cell."""
        return cls(study.resolve(), study.records)

    @cached_property
    def module(self) -> Pretrain:
        """The trained network."""
        return pretrained(self.system, weights(self.record, self.records, train=True))

    @cached_property
    def untrained(self) -> Pretrain:
        """The same network with the random weights of its seed: what it shows owes nothing to learning."""
        return self.system.build(self.run.seed).eval()

    @cached_property
    def encoder(self) -> Encoder:
        """Its tokenizer."""
        return Encoder(tokenizer_file(self.system.data), self.system.data.tokenizer.kind)

    def about(self) -> Markdown:
        """Which model this is, and how good it is at what it was trained for."""
        model, metrics = self.system.model.resolved(), self.record.metrics
        losses = {
            "the model": "loss",
            "counts of neighbouring words": "bigram_loss",
            "word frequencies": "unigram_loss",
        }
        said = [
            f"{who} {fixed(metrics[f'heldout.{name}'], 2)}"
            for who, name in losses.items()
            if f"heldout.{name}" in metrics
        ]
        return Markdown(
            f"Run `{self.run.id}`: {model.num_layers} layers of {model.num_heads} heads, {model.hidden_size} wide, "
            f"positions `{model.positions}`, {quantity(self.system.data.tokenizer.vocab_size)} pieces, trained on "
            f"{quantity(self.system.tokens_per_step() * self.system.training.steps)} tokens of "
            f"{markdown_text(', '.join(self.system.data.corpora))}.\n\n"
            f"Held-out loss in nats, lower is better: {', '.join(said)}."
        )

    def fill(self, texts: Sequence[str] = example_texts.HIDDEN, count: int = 5) -> Markdown:
        """The likeliest pieces for the hidden word of each text, with their probabilities in per cent."""
        rows = [
            [text, ", ".join(f"{found.piece} {100 * found.probability:.0f}" for found in fillings)]
            for text in texts
            for fillings in fill_mask(self.module, self.encoder, text, count)
        ]
        return Markdown(markdown(Sheet(["text", "guesses, with their probability in %"], rows, left=2)))

    # --- attention

    def attention(self, sentence: str = example_texts.SENTENCE) -> SVG:
        """All heads on one sentence."""
        layers, _ = self._read(sentence)
        weights, prior = (np.stack([layer[side][0].numpy() for layer in layers]) for side in (0, 1))
        return SVG(svg(attention_figure.all_heads(weights, prior, f"“{sentence}”; run {self.run.id[:8]}")))

    def head(self, where: Sequence[int] | str | None = None, sentence: str = example_texts.SENTENCE) -> SVG:
        """One head on one sentence.

        Args:
            where: Layer and head, counted from 1; by default the head that differs most from its positions alone.
            sentence: What it reads.

        Raises:
            ConfigError: When there is no such head.
        """
        layer, head = self._chosen(where)
        layers, pieces = self._read(sentence)
        learnt, prior = layers[layer].weights[0, head].numpy(), layers[layer].prior[0, head].numpy()
        name = f"Layer {layer + 1}, head {head + 1}"
        return SVG(
            svg(
                attention_figure.one_head(
                    learnt, prior, pieces, name, f"weights from 30 % on are written; {self._small}"
                )
            )
        )

    def _chosen(self, where: Sequence[int] | str | None) -> tuple[int, int]:
        if where is None:
            return most_beyond(self.statistics[0])
        found = strict_yaml.value(where) if isinstance(where, str) else where  # text is what papermill's -p makes of it
        model = self.system.model.resolved()
        pair = list(found) if isinstance(found, (list, tuple)) else []
        if len(pair) != 2 or not (
            pair[0] in range(1, model.num_layers + 1) and pair[1] in range(1, model.num_heads + 1)
        ):
            shape = f"a layer from 1 to {model.num_layers} and a head from 1 to {model.num_heads}, such as [1, 1]"
            raise ConfigError([f"there is no head {where!r} here; name {shape}"])
        return pair[0] - 1, pair[1] - 1

    def _read(self, sentence: str) -> tuple[list[Attention], list[str]]:
        ids = self.encoder([" ".join(sentence.split())])[0].tolist()
        example = as_example(ids, self.encoder.vocabulary)
        pieces = [self.encoder.vocabulary.pieces[n] for n in example.inputs.ids[0].tolist()]
        try:
            return attention_maps(self.module.backbone, example), pieces
        except ValueError as error:  # the position table is too short
            raise ConfigError([f"the sentence is too long: {error}"]) from None

    @cached_property
    def statistics(self) -> tuple[HeadStatistics, HeadStatistics]:
        """Averages of every head over held-out text: as learnt, and from positions alone."""
        sequences = self.system.format.heldout().arrange(open_store(self.system.data, "heldout"))
        examples = HeldOut(sequences, _SEQUENCES, 32)
        return head_statistics(self.module.backbone, examples, self.encoder.vocabulary)

    def heads(self) -> SVG:
        """Averages of every head over held-out text, as a picture."""
        small = f"{self._small}"
        return SVG(svg(attention_figure.profile(*self.statistics, small)))

    def heads_table(self) -> Markdown:
        """The same as numbers: what was learnt, and behind it in brackets what positions alone would give."""
        learnt, prior = self.statistics
        headings = [
            "layer.head",
            "before, %",
            "itself, %",
            "after, %",
            "[CLS], %",
            "[SEP], %",
            "distance",
            "entropy, nats",
        ]
        names, rows = ("previous", "itself", "following", "first", "separator", "distance", "entropy"), []
        for layer, head in np.ndindex(learnt.entropy.shape):
            both = [(getattr(learnt, name)[layer, head], getattr(prior, name)[layer, head]) for name in names]
            cells = [f"{100 * a:.0f} ({100 * b:.0f})" for a, b in both[:5]] + [
                f"{a:.1f} ({b:.1f})" for a, b in both[5:]
            ]
            rows.append([f"{layer + 1}.{head + 1}", *cells, f"{learnt.beyond[layer, head]:.2f}"])
        return Markdown(markdown(Sheet([*headings, "beyond position, nats"], rows)))

    # --- vectors

    @cached_property
    def vectors(self) -> WordVectors:
        """The embeddings of whole words."""
        return WordVectors.of(self.module, self.encoder)

    def words(self, groups: Mapping[str, str] | None = None) -> SVG | Markdown:
        """Groups of words in a plane; words that are no single piece of the vocabulary are left out.

        Args:
            groups: Name -> words with spaces between them.
        """
        wanted = {name: words.split() for name, words in (groups or example_texts.GROUPS).items()}
        known = {name: [word for word in words if word in self.vectors.number] for name, words in wanted.items()}
        known = {name: words for name, words in known.items() if words}
        listed = [(name, word) for name, words in known.items() for word in words]
        if len(listed) < 3:
            return Markdown("*The vocabulary has too few of these words.*")
        vectors = self.vectors.take([word for _, word in listed])
        alike = nearest_alike(vectors, [name for name, _ in listed])
        left_out = sum(map(len, wanted.values())) - len(listed)
        chance = sum(len(words) * (len(words) - 1) for words in known.values()) / (len(listed) - 1)
        small = f"{alike} of {len(listed)} words have their nearest in their own group; by chance {chance:.0f}"
        small += f"; {left_out} more are not in the vocabulary" * bool(left_out)
        return SVG(svg(embedding_figure.word_map(known, vectors, f"{small}; run {self.run.id[:8]}")))

    def neighbours(self, words: Sequence[str] = example_texts.NEIGHBOURS, count: int = 6) -> Markdown:
        """The nearest words in the embedding table, with the cosine around the mean."""
        rows = [
            [word, ", ".join(f"{near.word} {fixed(near.cosine, 2)}" for near in self.vectors.neighbours(word, count))]
            for word in words
            if word in self.vectors.number
        ]
        if not rows:
            return Markdown("*The vocabulary has none of these words.*")
        return Markdown(markdown(Sheet(["word", "nearest, with the cosine"], rows, left=2)))

    def senses(self, word: str = "may", sentences: Mapping[str, Sequence[str]] | None = None) -> SVG:
        """The states of one word, layer by layer, in sentences that use it in several senses.

        Args:
            word: The word.
            sentences: Sense -> sentences with the word; by default those of `example_texts`.

        Raises:
            ConfigError: For a word without sentences.
        """
        found = sentences or example_texts.SENSES.get(word)
        if not found:
            raise ConfigError(
                [f"no sentences are given for '{word}'; there are some for {', '.join(example_texts.SENSES)}"]
            )
        kinds = [kind for kind, listed in found.items() for _ in listed]
        texts = [text for listed in found.values() for text in listed]
        both = (word_states(side, self.encoder, texts, word) for side in (self.module, self.untrained))
        return SVG(svg(embedding_figure.senses(*both, kinds, word, self._small)))

    # --- probes

    def probes(self, task: str = "bigram_shift") -> SVG:
        """What simple classifiers read of a task in each layer, beside the same network untrained."""
        from lightning_modules.tasks.loader import TaskData
        from lightning_modules.tasks.measured_baselines import baselines
        from lightning_modules.tasks.table import task_named

        data = TaskData(self.system.data, task_named(task), self._settings(), 0, self.encoder)
        learnt, untrained = (probe_layers(side.backbone, data) for side in (self.module, self.untrained))
        levels = {_NAMES.get(name, name): found["accuracy"] for name, found in baselines(task).items()}
        found = embedding_figure.Probed(learnt, untrained, levels, len(data.dev))
        small = f"{len(data.train):,} examples to learn from; bars are 95 % intervals; {self._small}"
        return SVG(svg(embedding_figure.probed(found, task.replace("_", " "), small)))

    def _settings(self) -> "FineTuning":
        from lightning_modules.tasks import FineTuning

        return FineTuning().but(max_length=min(_LONGEST, self.system.model.resolved().max_positions or _LONGEST))

    def answer(self, question: str = example_texts.QUESTION, passage: str = example_texts.PASSAGE) -> Markdown:
        """What a fine-tuning of this model on a reading task answers, where its weights are at hand."""
        from lightning_modules.analysis.probes import answer
        from lightning_modules.finetuning.run import FinetuningRun, finetuned
        from lightning_modules.tasks.reading.passages import Question
        from lightning_modules.tasks.shapes.span import Spans
        from lightning_modules.tasks.table import TASKS
        from lightning_modules.training.recorder import WEIGHTS

        reading = {name for name, task in TASKS.items() if isinstance(task.shape, Spans)}
        for record in self.records.all():
            path = self.records.work_folder(record.id) / WEIGHTS
            is_child = record.kind == "finetune" and self.run.id in record.config.get("parents", ())
            if not (is_child and record.config.get("task") in reading and record.outcome == "done" and path.is_file()):
                continue
            made = record.run()
            finetuning_run = FinetuningRun(made.system, made.task, made.finetuning, made.seed, None)
            asked, spans = Question("asked", question, passage, ()), finetuning_run.data.task.shape
            said = answer(finetuned(finetuning_run, path), self.encoder, spans, made.finetuning.max_length, asked)
            return Markdown(f"*{markdown_text(question)}* {markdown_text(said or '(the passage does not say)')}")
        return Markdown("*No fine-tuning of this model on a reading task is at hand, so it is asked nothing.*")
