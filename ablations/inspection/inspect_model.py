"""The inspection of one pretrained model, which a notebook holds next to its study.

Everything shows one run and names it. Nothing here is a result: no record, page or verdict depends on it.
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
from ablations.inspection.trained import finished, tokenizer, weights
from ablations.planning.plan import Plan
from lightning_modules.analysis.attention_maps import (
    Attention,
    HeadStatistics,
    attention_maps,
    head_statistics,
    most_beyond,
)
from lightning_modules.config import ConfigError
from lightning_modules.data.store import open_store
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.model import Transformer
from lightning_modules.model.settings import only

with warnings.catch_warnings():  # tqdm, which Lightning imports, misses widgets that nothing uses here
    warnings.filterwarnings("ignore", message="IProgress not found")
    from ablations.inspection import embedding_figure
    from lightning_modules.analysis.probes import fill_mask, pretrained, probe_layers
    from lightning_modules.analysis.words_as_vectors import WordVectors, nearest_alike, nearest_occurrences, word_states
    from lightning_modules.data.order.heldout import HeldOut
    from lightning_modules.training.module import Pretrain

if TYPE_CHECKING:
    from ablations.study import Study
    from lightning_modules.tasks import FineTuning

_SEQUENCES = 256  # of held-out text, over which heads are averaged
_NAMES = {"tfidf": "TF-IDF + logistic regression", "majority": "majority class"}
_LONGEST = 64  # positions of a probed example
_SEARCHED, _SHORT, _LONG = 600, 6, 24  # sentences in which words are searched, and the pieces of each


def inspect_model(study: "Study") -> "Inspection":
    """Opens the model of a study whose filters leave one cell."""
    return Inspection(study.resolve(), study.records)


class Inspection:
    """Views of one finished pretraining.

    Args:
        plan: A plan with one cell; of several seeds the first is inspected.
        records: The store of its record. Missing weights are trained again.

    Raises:
        ConfigError: If the plan has not exactly one cell, its search is unfinished, or the run did not finish.
    """

    def __init__(self, plan: Plan, records: Records) -> None:
        if len(plan.cells) != 1:
            listed = "; ".join(str(cell.values) for cell in plan.cells)
            raise ConfigError(
                [f"this view shows one model, but {len(plan.cells)} match. Narrow `filters` to one of: {listed}"]
            )
        (cell,) = plan.cells
        if not cell.runs:
            raise ConfigError([f"the search of '{cell.label}' is unfinished. Finish it with `ablations run`."])
        self.run, self.system, self.records = cell.runs[0], cell.runs[0].system, records
        self.record = finished(self.run.id, records, "pretrain")
        self._small = f"{plan.grid.name}, {plan.scale}, {cell_text(cell.values)}; run {self.run.id[:8]}"

    @cached_property
    def module(self) -> Pretrain:
        """The trained network."""
        return pretrained(self.system, weights(self.record, self.records, train=True))

    @cached_property
    def untrained(self) -> Pretrain:
        """The same network with the random weights of its seed, as the control for learning."""
        return self.system.build(self.run.seed).eval()

    @cached_property
    def encoder(self) -> Encoder:
        """The tokenizer of the model."""
        return Encoder(tokenizer(self.run, self.records), self.system.data.tokenizer.kind)

    def about(self) -> Markdown:
        """The configuration of the model, and its held-out loss next to those of simple methods."""
        model, metrics = self.system.model.resolved(), self.record.metrics
        losses = {"the model": "loss", "bigram baseline": "bigram_loss", "unigram baseline": "unigram_loss"}
        parts = [
            f"{source} {fixed(metrics[f'heldout.{name}'], 2)}"
            for source, name in losses.items()
            if f"heldout.{name}" in metrics
        ]
        return Markdown(
            f"Run `{self.run.id}`: {markdown_text(model.described)}, "
            f"{quantity(self.system.data.tokenizer.vocab_size)} token types, trained on "
            f"{quantity(self.system.tokens())} tokens of "
            f"{markdown_text(', '.join(self.system.data.corpora))}.\n\n"
            f"Held-out loss in nats, lower is better: {', '.join(parts)}."
        )

    def fill(self, texts: Sequence[str] = example_texts.HIDDEN, count: int = 5) -> Markdown:
        """The most probable tokens for the masked word of each text, with their probabilities in per cent."""
        rows = [
            [text, ", ".join(f"{filling.piece} {100 * filling.probability:.0f}" for filling in fillings)]
            for text in texts
            for fillings in fill_mask(self.module, self.encoder, text, count)
        ]
        return Markdown(markdown(Sheet(["text", "predictions with their probability in %"], rows, left=2)))

    # --- attention

    def attention(self, sentence: str = example_texts.SENTENCE) -> SVG:
        """The attention of all heads on one sentence."""
        layers, _ = self._read(sentence)
        weights, prior = (np.stack([layer[side][0].numpy() for layer in layers]) for side in (0, 1))
        return SVG(svg(attention_figure.all_heads(weights, prior, f"“{sentence}”; run {self.run.id[:8]}")))

    def head(self, where: Sequence[int] | str | None = None, sentence: str = example_texts.SENTENCE) -> SVG:
        """The attention of one head on one sentence.

        Args:
            where: Layer and head, counted from 1; by default the head that differs most from positions alone.

        Raises:
            ConfigError: If there is no such head, or the sentence is too long.
        """
        layer, head = self._chosen(where)
        layers, pieces = self._read(sentence)
        learned, prior = layers[layer].weights[0, head].numpy(), layers[layer].prior[0, head].numpy()
        name = f"Layer {layer + 1}, head {head + 1}"
        small = f"numbers are weights of 30 % and more; {self._small}"
        return SVG(svg(attention_figure.one_head(learned, prior, pieces, name, small)))

    def _chosen(self, where: Sequence[int] | str | None) -> tuple[int, int]:
        if where is None:
            return most_beyond(self.statistics[0])
        value = strict_yaml.value(where) if isinstance(where, str) else where  # papermill's -p makes text of it
        model = self._transformer()
        pair = list(value) if isinstance(value, (list, tuple)) else []
        if len(pair) != 2 or not (pair[0] in range(1, model.num_layers + 1) and pair[1] in range(1, model.heads + 1)):
            shape = f"a layer from 1 to {model.num_layers} and a head from 1 to {model.heads}, such as [1, 1]"
            raise ConfigError([f"this model has no head {where!r}. Name {shape}."])
        return pair[0] - 1, pair[1] - 1

    def _transformer(self) -> Transformer:
        return only(self.system.model.resolved(), Transformer, "attention by head")

    def _read(self, sentence: str) -> tuple[list[Attention], list[str]]:
        self._transformer()
        ids = self.encoder([" ".join(sentence.split())])[0].tolist()
        example = as_example(ids, self.encoder.vocabulary)
        pieces = [self.encoder.vocabulary.pieces[n] for n in example.inputs.ids[0].tolist()]
        try:
            return attention_maps(self.module.backbone, example), pieces
        except ValueError as error:  # the position table is too short
            raise ConfigError([f"the sentence is too long: {error}"]) from None

    @cached_property
    def statistics(self) -> tuple[HeadStatistics, HeadStatistics]:
        """Averages of every head over held-out text: as learned, and with positions only."""
        self._transformer()
        sequences = self.system.heldout_format.arrange(open_store(self.system.data, "heldout"))
        examples = HeldOut(sequences, _SEQUENCES, 32)
        return head_statistics(self.module.backbone, examples, self.encoder.vocabulary)

    def heads(self) -> SVG:
        """Averages of every head over held-out text, as a figure."""
        return SVG(svg(attention_figure.profile(*self.statistics, self._small)))

    def heads_table(self) -> Markdown:
        """The same as numbers: as learned, and in brackets with positions only."""
        learned, prior = self.statistics
        headings = ["layer.head", *(f"{name}, %" for name in ("before", "itself", "after", "[CLS]", "[SEP]"))]
        names, rows = ("previous", "itself", "following", "first", "separator", "distance", "entropy"), []
        for layer, head in np.ndindex(learned.entropy.shape):
            both = [(getattr(learned, name)[layer, head], getattr(prior, name)[layer, head]) for name in names]
            cells = [f"{100 * a:.0f} ({100 * b:.0f})" for a, b in both[:5]]
            cells += [f"{a:.1f} ({b:.1f})" for a, b in both[5:]]
            rows.append([f"{layer + 1}.{head + 1}", *cells, f"{learned.beyond[layer, head]:.2f}"])
        return Markdown(markdown(Sheet([*headings, "distance", "entropy, nats", "beyond position, nats"], rows)))

    # --- vectors

    @cached_property
    def vectors(self) -> WordVectors:
        """The embeddings of whole words."""
        return WordVectors.of(self.module, self.encoder)

    def words(self, groups: Mapping[str, str] | None = None) -> SVG | Markdown:
        """Groups of words in a plane; words that are not a single token of the vocabulary are left out.

        Args:
            groups: Name -> words separated by spaces; by default those of `example_texts`.
        """
        split = {name: words.split() for name, words in (groups or example_texts.GROUPS).items()}
        known = {name: [word for word in words if word in self.vectors.number] for name, words in split.items()}
        known = {name: words for name, words in known.items() if words}
        listed = [(name, word) for name, words in known.items() for word in words]
        if len(listed) < 3:
            return Markdown("*The vocabulary has too few of these words. Give others in `groups`.*")
        vectors = self.vectors.take([word for _, word in listed])
        alike = nearest_alike(vectors, [name for name, _ in listed])
        left_out = sum(map(len, split.values())) - len(listed)
        chance = sum(len(words) * (len(words) - 1) for words in known.values()) / (len(listed) - 1)
        small = f"the nearest neighbour of {alike} of {len(listed)} words is in the same group (chance: {chance:.0f})"
        small += f"; {left_out} more are not in the vocabulary" * bool(left_out)
        return SVG(svg(embedding_figure.word_map(known, vectors, f"{small}; run {self.run.id[:8]}")))

    def neighbours(self, words: Sequence[str] = example_texts.NEIGHBOURS, count: int = 6) -> Markdown:
        """The nearest words in the embedding table, with the cosine of mean-centred vectors."""
        rows = [
            [word, ", ".join(f"{near.word} {fixed(near.cosine, 2)}" for near in self.vectors.neighbours(word, count))]
            for word in words
            if word in self.vectors.number
        ]
        if not rows:
            return Markdown("*The vocabulary has none of these words. Give others in `words`.*")
        return Markdown(markdown(Sheet(["word", "nearest words with the cosine"], rows, left=2)))

    def senses(self, word: str = "may", sentences: Mapping[str, Sequence[str]] | None = None) -> SVG:
        """The states of one word, layer by layer, in sentences with its different senses.

        Args:
            sentences: Sense -> sentences with the word; by default those of `example_texts`.

        Raises:
            ConfigError: For a word without sentences.
        """
        by_sense = self._sentences(word, sentences)
        kinds = [kind for kind, listed in by_sense.items() for _ in listed]
        texts = [text for listed in by_sense.values() for text in listed]
        trained, untrained = (word_states(side, self.encoder, texts, word) for side in (self.module, self.untrained))
        return SVG(svg(embedding_figure.senses(trained, untrained, kinds, word, self._small)))

    def in_context(
        self,
        word: str = "may",
        sentences: Mapping[str, Sequence[str]] | None = None,
        text: Sequence[str] | None = None,
        layer: int = -1,
        count: int = 3,
    ) -> Markdown:
        """The words of a text that are nearest to one word in a sentence of each sense (Peters et al. 2018, Table 4).

        The first row is the embedding table, which has one vector of the word for all sentences.

        Args:
            sentences: Sense -> sentences with the word, of which the first counts; by default those of `example_texts`.
            text: The sentences that are searched; by default 600 held-out ones.
            layer: The layer whose states are compared; by default the last.

        Raises:
            ConfigError: For a word without sentences, or a layer that the model lacks.
        """
        by_sense = self._sentences(word, sentences)
        if not -self.system.model.num_layers - 1 <= layer <= self.system.model.num_layers:
            raise ConfigError([f"layer {layer} is not one of this model. Name 0 to {self.system.model.num_layers}."])
        near = self.vectors.neighbours(word, count) if word in self.vectors.number else []
        rows = [["the embedding table", word, one.word, one.cosine, ""] for one in near]
        searched = self._heldout_sentences() if text is None else text
        for sense, listed in by_sense.items():
            found = nearest_occurrences(self.module, self.encoder, listed[0], word, searched, layer, count)
            rows += [[sense, listed[0], one.word, one.cosine, one.sentence] for one in found]
        shown = [[*row[:3], fixed(row[3], 2), row[4]] for row in rows]
        return Markdown(markdown(Sheet(["sense", "source", "nearest word", "cosine", "in"], shown, left=3)))

    def _sentences(self, word: str, sentences: Mapping[str, Sequence[str]] | None) -> Mapping[str, Sequence[str]]:
        by_sense = sentences or example_texts.SENSES.get(word)
        if not by_sense:
            known = ", ".join(example_texts.SENSES)
            raise ConfigError([f"there are no sentences with '{word}'. Give `sentences`, or choose one of: {known}"])
        return by_sense

    def _heldout_sentences(self) -> list[str]:
        """Sentences of held-out text, spread evenly, of a length that fits a line."""
        store = open_store(self.system.data, "heldout")
        bounds = list(zip(store.sentences[:-1].tolist(), store.sentences[1:].tolist(), strict=True))
        fitting = [bound for bound in bounds if _SHORT <= bound[1] - bound[0] <= _LONG]
        chosen = fitting[:: max(1, len(fitting) // _SEARCHED)][:_SEARCHED]
        return [self.encoder.fast.decode(store.ids[start:end].tolist()).strip() for start, end in chosen]

    # --- probes

    def probes(self, task: str = "bigram_shift") -> SVG:
        """The accuracy of probes on a task in each layer, next to that of the same network untrained."""
        from lightning_modules.tasks.loader import TaskData
        from lightning_modules.tasks.measured_baselines import baselines
        from lightning_modules.tasks.table import task_named

        own = self.system.data, task_named(task), self._settings(), 0, self.encoder
        data = TaskData(*own, backward=self.system.reads_backward)
        learned, untrained = (probe_layers(side.backbone, data) for side in (self.module, self.untrained))
        levels = {_NAMES.get(name, name): scores["accuracy"] for name, scores in baselines(task).items()}
        results = embedding_figure.Probed(learned, untrained, levels, len(data.dev))
        small = f"{len(data.train):,} training examples; bars are 95 % intervals; {self._small}"
        return SVG(svg(embedding_figure.probed(results, task.replace("_", " "), small)))

    def _settings(self) -> "FineTuning":
        from lightning_modules.tasks import FineTuning

        return FineTuning().but(max_length=min(_LONGEST, self.system.model.longest or _LONGEST))

    def answer(self, question: str = example_texts.QUESTION, passage: str = example_texts.PASSAGE) -> Markdown:
        """The answer of a question-answering run of this model, if one with weights exists."""
        from ablations.inspection.ask import Asked
        from ablations.inspection.models import opened
        from lightning_modules.tasks.shapes.span import Spans
        from lightning_modules.tasks.table import TASKS

        reading = {name for name, task in TASKS.items() if isinstance(task.shape, Spans)}
        for record in self.records.all():
            is_child = record.kind == "finetune" and self.run.id in record.config.get("parents", ())
            is_reader = is_child and record.config.get("task") in reading and record.outcome == "done"
            if is_reader and self.records.weights(record.id) is not None:
                reader = opened(record.id, self.records, scale="")
                (row,) = Asked(reader, [question], passage=passage).answer()
                return Markdown(f"*{markdown_text(question)}* {markdown_text(row['answer'])}")
        hint = "Train one with `ablations run` and a grid with a reading task such as `squad`"
        return Markdown(f"*No question-answering run of this model found. {hint}.*")
