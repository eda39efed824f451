"""A system: a published model as a frozen value.

Backbone, objectives, input format, data, optimisation and evaluation together determine a training except for its
seed. `config.diff` compares two systems field by field, and ``but`` changes any field.
"""

import functools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from pydantic import model_validator
from torch import nn

from lightning_modules import (
    checkpoints,
    languages,
    parts,
    plugins,
    streams,
    teachers,
    translation,
    word_clusters,
    words,
)
from lightning_modules.batch import CHARACTERS, QUERY_STREAM, Direction, Example, Tokens, Vocabulary
from lightning_modules.config import ConfigError, Problem, Settings, as_data, canonical, classes, diff, flat, label
from lightning_modules.config import knob as field
from lightning_modules.data import Data, InputFormat
from lightning_modules.data.baselines import pair_edges
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.formats import FORMATS, AnyFormat
from lightning_modules.data.formats.text import TABLE, TextFormat, hidden_first, numbered
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.tokenizer import Vocabulary as Pieces
from lightning_modules.draws import Draws, continued
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import AnyBackbone, EncoderDecoder, Transformer
from lightning_modules.model.positions import POSITIONS
from lightning_modules.model.settings import ONE_SIDE, BackboneModule, StackSettings
from lightning_modules.model.weights import check_layers, shaping, undrawn, with_layers
from lightning_modules.objectives import (
    Distillation,
    LanguageModel,
    MaskedLM,
    Objective,
    Objectives,
    SentencePair,
)
from lightning_modules.objectives.masking import Hidden, TwoNeighbours
from lightning_modules.objectives.plm import HeldOutPermutations
from lightning_modules.parents import ALONE, SEED, Parent, Role, knobs, replaced, wrong_seed
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

if TYPE_CHECKING:
    from lightning_modules.data.loader import PretrainingData
    from lightning_modules.data.order.batches import CollateFn
    from lightning_modules.training.module import Pretrain


_STACKS: dict[str, type[StackSettings]] = {"transformer": Transformer, "encoder_decoder": EncoderDecoder}


class System(Settings):
    """Everything that determines a pretraining except its seed."""

    name: str = label("", "Name of the system.")
    paper: str = label("", "Publication.")
    model: AnyBackbone = Transformer()
    objectives: Objectives = Objectives(mlm=MaskedLM())
    format: AnyFormat = TextFormat()
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    checkpoint: str = field(
        "",
        "The name of a released checkpoint in the place of the pretraining. No other knob of a system acts then, and "
        "those of fine-tunings do. By default the system is pretrained here.",
        neutral="",
    )

    def but(self, **changes: Any) -> Self:
        """As for all settings. With a ``checkpoint`` it is the system of that, of which nothing else can be changed."""
        name = changes.pop("checkpoint", self.checkpoint)
        if not name:
            return super().but(**changes, checkpoint=name)
        row = checkpoints.released(name)
        released = super(System, type(self)()).but(**{**row.knobs, "name": row.title, "checkpoint": name})
        other = diff(released, super(System, released).but(**changes)) if changes else {}
        if other:
            text = "comes with the checkpoint {}, which is not pretrained here: leave it out, or leave out checkpoint"
            raise ConfigError(Problem(path, f"{known!r} {text.format(name)}") for path, (known, _) in other.items())
        return released

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        translation.check(self.model, self.objectives, self.format, self.data, self.evaluation)
        languages.check(self.model, self.objectives, self.format, self.data, self.evaluation)
        self.model.check_length(self.format.longest)
        self._check_needs()
        self._check_directions()
        word_clusters.check(self.model, self.objectives, self.data.tokenizer.vocab_size)
        self._check_permutations()
        if self.cls_last and self.model.get("segment_types") == 2:
            raise ValueError(
                "format.cls last, or format.rest pair, makes [CLS] a third segment, and model.segment_types is 2: "
                "set it to 0, 1 or 3"
            )
        streams.check(self.model, self.objectives, self.format, self.training, self.evaluation)
        streams.check_rate(self.format, self.schedule)
        self._check_buckets()
        self._check_averaging()
        self.model.check_warm_start(self.training.warm_start)
        if self.training.is_continued:
            self._check_start()
        if self.objectives.distilled is not None:
            self._check_teacher(self.objectives.distilled)
        return self

    def _check_buckets(self) -> None:
        """Refuses to sort by length what is drawn by language, or is shown at two lengths."""
        steps, form = self.training.bucket_steps, self.format.resolved()
        ways = {"languages": "one_text", "first_share": 0.0}
        if steps > 1 and (wrong := [name for name in ways if form.get(name) != ways[name]]):
            other = " and ".join(f"format.{name} to {ways[name]}" for name in wrong)
            raise ValueError(
                f"training.bucket_steps {steps} sorts one text of one length: set {other}, or bucket_steps to 1"
            )

    def _check_averaging(self) -> None:
        """Refuses a mean of weights that begins before the rate has stopped rising, or next to another mean."""
        training, averaged = self.training, self.training.averaged_steps
        if not averaged:
            return
        asked = f"training.averaged_checkpoints {training.averaged_checkpoints}"
        if self.optimizer.nonmonotone_interval:
            raise ValueError(f"{asked} and optimizer.nonmonotone_interval both average weights: leave out one of them")
        peak = self.schedule.peak(training.steps)
        if averaged.start < max(1, peak):
            most = 1 + (training.last_step - max(1, peak)) // averaged.step
            fewer = f"set it to at most {most}, or lower" if most > 1 else "set it to 1, or lower"
            raise ValueError(
                f"{asked}, every {averaged.step} of {training.last_step} steps, begin at step {averaged.start}, and "
                f"the learning rate rises until step {peak}: {fewer} training.averaging_interval"
            )

    def _check_teacher(self, settings: Distillation) -> None:
        """Checks that the teacher reads what is read here, with the same pieces, and has states as wide."""
        teacher = self._described(teachers.KNOB)
        pieces = self._other_pieces(teacher)
        teachers.check(settings, self.format, self.model, teacher.model, teacher.objectives, pieces)

    def _check_start(self) -> None:
        """Checks that the weights of the training that this one starts from exist and fit."""
        if self.training.warm_start:
            both = "training.warm_start says as well which weights the training starts from. Leave one of them out."
            raise ConfigError([Problem("training.start", both)])
        ancestor = self._described("training.start")
        is_remapped = self.training.vocabulary == "remapped"
        wrong = self._unmappable(ancestor) if is_remapped else self._other_pieces(ancestor)
        if self.training.start_parts is not None:
            wrong |= self._unread(ancestor)
            if not wrong:
                self._check_parts(self.training.start_parts, ancestor)
            self._refuse("training.start", wrong)
            return
        if chosen := self.training.start_layers:
            check_layers(chosen, self.model, ancestor.model)
        given = with_layers(ancestor.model, chosen, self.model)
        wrong |= {
            f"model.{path}": f"must be {self.model.get(path)!r} as here: weights would have another shape"
            f"{f'. Or name parts of it in {parts.KNOB}' if path == 'kind' else ''}"
            for path in shaping(self.model, given, self.data.tokenizer.vocab_size)
        }
        self._refuse("training.start", wrong)

    @staticmethod
    def _refuse(knob: str, wrong: Mapping[str, str]) -> None:
        if wrong:
            raise ConfigError(Problem(f"{knob}.{path}", message) for path, message in wrong.items())

    def _check_parts(self, chosen: parts.Chosen, ancestor: Self) -> None:
        """Checks that the parts of another model fit those that they initialise."""
        size = self.data.tokenizer.vocab_size
        with undrawn():
            ours, theirs = (_shapes(*system.networks(size)) for system in (self, ancestor))
        objectives = self.objectives, ancestor.objectives
        parts.check(chosen, (self.model, ancestor.model), objectives, (ours, theirs))

    def _unread(self, ancestor: Self) -> dict[str, str]:
        """The languages of a translation that a parent does not read, by path below its description."""
        if self.format.kind != "seq2seq":
            return {}
        ours, theirs = (
            {language: None for name in system.data.corpora for language in corpus(name).languages}
            for system in (self, ancestor)
        )
        if not (lacking := [language for language in ours if language not in theirs]):
            return {}
        text = f"is in {' and '.join(theirs) or 'no known language'}, and what is translated is in {' and '.join(ours)}"
        return {
            "data.corpora": f"{text}: name text in {' and '.join(lacking)} as well, such as 'lines:{lacking[0]}:<glob>'"
        }

    def _other_pieces(self, ancestor: Self) -> dict[str, str]:
        """In what the tokenizer of a parent differs, and why it must not, by path below its description."""
        ours, theirs = self.data.tokenized_by, ancestor.data.tokenized_by
        text = "must be as here, or ids would mean other words. With training.vocabulary remapped it may differ"
        wrong = {f"data.tokenizer.{path}": text for path in diff(ours, theirs)}
        if wrong.pop("data.tokenizer.corpora", None):
            named = ancestor.data.tokenizer.corpora
            text = f"the vocabulary is made from the text: set data.tokenizer.corpora to [{', '.join(theirs.corpora)}]"
            wrong["data.tokenizer.corpora" if named else "data.corpora"] = (
                f"{text}, to read other text by its pieces, or training.vocabulary to remapped, to read it by its own"
            )
        return wrong

    def _unmappable(self, ancestor: Self) -> dict[str, str]:
        """Why the words of another system cannot become those of this one, by path below its start."""
        ours, theirs = self.data.tokenized_by, ancestor.data.tokenized_by
        if ours.kind != theirs.kind:
            return {"data.tokenizer.kind": f"must be {ours.kind} as here: pieces of two kinds have nothing in common"}
        if ours == theirs:
            return {"data.tokenizer": "is the one here: set training.vocabulary to same"}
        if ancestor.objectives.lm is not None and ancestor.objectives.lm.cutoffs:
            text = "gives clusters their words by ids, and another vocabulary has others. Set it to [], here too"
            return {"objectives.lm.cutoffs": text}
        return {}

    def _check_needs(self) -> None:
        """Checks that the model supports what format and objectives ask of it, so that nothing is ignored."""
        supports = self.model.supports
        wrong = [f"format gives a {given}, which model does not support" for given in self.format.gives - supports]
        for name, objective in self.objectives.present():
            missing = objective.needs.keys() - supports
            wrong += [
                f"objectives.{name} needs {need}, which model does not support: {objective.needs[need]}"
                for need in sorted(missing)
            ]
            for read in sorted(objective.labels - self.format.labels):
                kinds = [kind for kind, form in FORMATS.items() if read in form().labels]
                wrong.append(
                    f"objectives.{name} reads the label '{read}', which format.kind {self.format.kind} does not give: "
                    f"set format.kind to {' or '.join(kinds) or 'a format that gives it'}"
                )
        if wrong:
            raise ValueError("; ".join(wrong) + f". The model supports: {', '.join(sorted(supports))}.")

    def _check_directions(self) -> None:
        """Checks that held-out text is looked at in a direction that the model has."""
        masked, restricted = self.objectives.mlm is not None, self.evaluation.direction != "both"
        if restricted and not (masked and ONE_SIDE in self.model.supports):
            raise ValueError(
                f"evaluation.direction {self.evaluation.direction} restricts a masked transformer that sees both "
                "sides. Leave it at both for other models."
            )
        if self.evaluation.words and not masked:
            raise ValueError("evaluation.words hides words, which a language model does not fill. Set it to 0.")
        if self.evaluation.neighbours and self.objectives.lm is not None:
            raise ValueError("evaluation.neighbours hides tokens, which a language model does not fill. Set it to 0.")
        if self.evaluation.neighbours and self.format.kind == "stream":
            raise ValueError(
                "evaluation.neighbours hides two tokens of a row that is read alone, which those of format.kind stream "
                "are not: set it to 0"
            )

    def _check_permutations(self) -> None:
        """Checks that every row has a token to predict, and that a query stream has something to predict."""
        plm, shortest = self.objectives.plm, min(length for length, _ in self.format.stages(self.training.steps))
        if plm is None and QUERY_STREAM in self.model.supports:
            raise ValueError(
                "model.query_stream is for objectives.plm alone, and there is none: set model.query_stream to "
                "false, or add the objective"
            )
        if plm is not None and plm.one_in > shortest:
            raise ValueError(
                f"objectives.plm.one_in {plm.one_in:g} leaves no target in {shortest} positions: lower it to at most "
                f"{shortest}, or show longer sequences"
            )

    def ancestor(self) -> Self | None:
        """The system whose weights initialise this one; None if training starts from random weights."""
        if self.training.is_continued:
            return self._described("training.start")
        *earlier, depth = self.training.warm_start or (None,)
        if depth is None:
            return None
        return self.but(**{"model.num_layers": depth, "training.warm_start": list(earlier)})

    def parents(self) -> dict[Role, Parent]:
        """The trainings whose weights this one reads."""
        found: dict[Role, Parent] = {
            role: Parent(self._described(knob), self.get(knob).get(SEED)) for role, knob in self._descriptions().items()
        }
        if self.training.warm_start and (shallower := self.ancestor()):
            found["start"] = Parent(shallower, None)
        return found

    def _descriptions(self) -> dict[Role, str]:
        """The knobs that describe parents, by role."""
        told: dict[Role, str] = {}
        if self.training.is_continued:
            told["start"] = "training.start"
        if self.objectives.distilled is not None:
            told["teacher"] = teachers.KNOB
        return told

    def _described(self, knob: str) -> Self:
        """The system that the description at a knob is of."""
        described = self.get(knob)
        if "training" in described:
            text = "cannot be given as a whole. Name its knobs, such as training.steps and training.start"
            raise ConfigError([Problem(f"{knob}.training", text)])
        if text := wrong_seed(described):
            raise ConfigError([Problem(f"{knob}.{SEED}", text)])
        try:
            return self.but(**{**ALONE, **self._of_both_kinds(described), **knobs(described)})
        except ConfigError as error:
            wrong = [Problem(".".join(filter(None, (knob, p.path))), p.message) for p in error.problems]
            raise ConfigError(wrong) from None

    def _of_both_kinds(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """What a described model of another kind has from this one; empty for one of the same kind.

        Stacks of layers have the same knobs. The direction of a decoder alone is no choice: another kind has its own.
        """
        other = _STACKS.get(str(described.get("model.kind", self.model.get("kind"))))
        if other is None or not isinstance(self.model, StackSettings) or isinstance(self.model, other):
            return {}
        shared = {f"model.{name}": as_data(self.model.get(name)) for name in StackSettings.model_fields}
        return shared | {"model.direction": other.model_fields["direction"].default}

    def resolved(self) -> Self:
        """The system in full, the values of its parents included."""
        full = super().resolved()
        for knob in self._descriptions().values():
            described = self.get(knob)
            try:
                before = self._described(knob).resolved()
            except ConfigError:  # it is resolved already: a part without effect may hold a value that no file may give
                continue
            spelt = {path: as_data(before.get(path)) for path in ("training.steps", *knobs(described))}
            if "training.start" in spelt:  # of a chain each start is given as its difference from the link behind it
                spelt["training.start"] = before._bare()["training"].get("start", {})
            full = replaced(full, knob, spelt | {name: described[name] for name in (SEED,) if name in described})
        return full

    def _bare(self) -> dict[str, Any]:
        """As for all settings; of parents only the steps and what differs, so that spelling out more is no change.

        Where words of byte-level pieces are read, it has the number of the rule by which they begin, and with held-out
        pairs that of the classes of pieces.
        """
        if self.checkpoint:
            return {"checkpoint": self.checkpoint}  # whose files are among the texts of its runs
        bare, kind = super()._bare(), self.data.tokenizer.kind
        if kind == "byte_bpe" and self._reads_words:
            bare["data"]["tokenizer"]["words"] = words.OF_BYTES
        if kind in pair_edges.RECIPES and self.evaluation.pairs:
            bare["evaluation"]["pair_edges"] = pair_edges.RECIPES[kind]
        for knob in self._descriptions().values():
            *above, name = knob.split(".")
            part, described = functools.reduce(lambda inner, key: inner[key], above, bare), self.get(knob)
            own = {path: as_data(self.get(path)) for path in knobs(described) if path != "training.steps"}
            unsaid = ALONE | self._of_both_kinds(described)
            own |= {path: value for path, value in unsaid.items() if path in described}
            part[name] = {path: value for path, value in described.items() if own.get(path, own) != value}
        return bare

    @property
    def _reads_words(self) -> bool:
        """Whether training or held-out text depends on which pieces begin words."""
        chosen = {value for path, value in flat(self.objectives).items() if path.endswith(".units.kind")}
        return bool(chosen - {"pieces"} or self.evaluation.neighbours)

    @property
    def continued_from(self) -> Self | None:
        """The system whose training this one continues; None if it starts from random or stacked weights."""
        return self._described("training.start") if self.training.is_continued else None

    @property
    def trunks(self) -> tuple[Self, ...]:
        """The systems whose trainings this one continues, one after the other, the nearest first."""
        before = self.continued_from
        return () if before is None else (before, *before.trunks)

    @property
    def behind(self) -> tuple[Self, ...]:
        """Every system that its settings describe, each once: a parent of any role, then those behind it."""
        parents = [self._described(knob) for knob in self._descriptions().values()]
        found = {canonical(one.essence()): one for parent in parents for one in (parent, *parent.behind)}
        return tuple(found.values())

    @property
    def corpora(self) -> tuple[str, ...]:
        """Every corpus behind a training: of its text, of its tokenizer, and of its parents. A checkpoint has none."""
        if self.checkpoint:
            return ()
        return tuple(dict.fromkeys(name for system in (self, *self.behind) for name in system.data.named))

    @property
    def plugins(self) -> dict[str, str]:
        """The plugins whose classes this training and its parents are of, with the digest of each (`plugins.code`)."""
        systems = (self, *self.behind) if plugins.modules() else ()
        schemes = (POSITIONS.get(system.model.get("positions")) for system in systems)
        return plugins.code([*schemes, *(part for system in systems for part in classes(system))])

    @property
    def probed(self) -> tuple[str, ...]:
        """The probes of this training and of its parents. A checkpoint has none."""
        if self.checkpoint:
            return ()
        return tuple(dict.fromkeys(name for system in (self, *self.behind) for name in system.evaluation.probes))

    def data_seed(self, seed: int) -> int:
        """The seed of order and noise: a training does not see again what its parents saw, in that order."""
        return continued(seed, len(self.trunks) or bool(self.objectives.distilled))

    def rows_of_words(self) -> list[str]:
        """The names of the weights that have a row, or a number, for each piece of the vocabulary."""
        with undrawn():
            size = self.data.tokenizer.vocab_size
            shapes = [_shapes(*self.networks(pieces)) for pieces in (size, size + 1)]
        return [name for name, shape in shapes[0].items() if shapes[1][name] != shape]

    def build(self, seed: int) -> "Pretrain":
        """The Lightning module, its weights drawn from ``seed`` without changing the caller's generator."""
        from lightning_modules.training.module import (
            Pretrain,  # imports Lightning (seconds), which planning does without
        )

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone, heads = self.networks()
        training = self.training
        module = Pretrain(
            backbone, self.objectives, heads, self.optimizer, self.schedule, training.steps, training.clip_norm
        )
        module.heldout_memory = self.evaluation.memory_length
        module.averaged_steps = training.averaged_steps
        module.usual_length = self.format.sequence_length if self.schedule.by_length else None
        return module

    def data_module(self, seed: int) -> "PretrainingData":
        """The Lightning data module: order and noise of batches depend on `data_seed` alone."""
        from lightning_modules.data.loader import PretrainingData

        return PretrainingData(
            data=self.data,
            format=self.format,
            collate=self.collate,
            collate_heldout=self._collating(self.heldout_objective, direction=self.looks),
            seed=self.data_seed(seed),
            steps=self.training.steps,
            batch_size=self.training.batch_size,
            micro_batch_size=self.training.micro_batch_size,
            heldout_format=self.heldout_format,
            heldout_sequences=self.evaluation.sequences,
            pairing=self.evaluation.pairing,
            by_tokens=self.training.batch_by == "tokens",
            bucket_steps=self.training.bucket_steps,
            reads=self.objectives.reads,
            words_rate=self.evaluation.rate,
            direction=self.looks,
            reading=streams.reading(self.format, self.evaluation),
        )

    @property
    def collate(self) -> "CollateFn":
        """The corruption of training text."""
        only = self.objectives.read_targets_only
        numbers = languages.numbers(self.model, self.format, self.data)
        return self._collating(self.objectives, targets_only=only, cls_last=self.cls_last, languages=numbers)

    def _collating(self, *objectives: Objective | Objectives, **form: Any) -> "CollateFn":
        """`_collate` of held-out text for this model, unless ``form`` says otherwise."""
        numbers = languages.at_evaluation(self.model, self.format, self.data, self.evaluation)
        own = {"characters": self.reads_characters, "languages": numbers}
        return functools.partial(_collate, objectives, **(own | form))

    @property
    def reads_backward(self) -> bool:
        """Whether its text is reversed token by token."""
        return self.format.kind == "stream" and self.format.sentence_order == "backward"

    @property
    def reads_characters(self) -> bool:
        """Whether the model reads words by their characters."""
        return CHARACTERS in self.model.supports

    @property
    def heldout_objective(self) -> Objective:
        """The objective that masks held-out text, as the system's own main objective says."""
        objective = self.objectives.main.held_out(self.evaluation.objective)
        assert objective is not None, "Objectives refuses those that are not measured"
        return objective

    @property
    def own_question(self) -> dict[str, Any]:
        """What an objective asks held-out text that no built-in one does, as its settings; empty for those.

        `evaluation` says what these ask, whatever they are trained on. Losses compare only if this is equal.
        """
        asked, usual = self.heldout_objective, self.evaluation.objective.masking
        is_built_in = type(asked) in (MaskedLM, HeldOutPermutations, LanguageModel)
        is_usual = is_built_in and getattr(asked, "masking", usual) == usual  # a language model has none
        return {} if is_usual else {type(asked).__qualname__: asked.question()}

    @property
    def heldout_format(self) -> InputFormat:
        """The format of the held-out text."""
        return self.format.heldout(blocks=self.evaluation.blocks)

    @property
    def looks(self) -> Direction:
        """The direction in which held-out text is visible."""
        return self.model.direction if self.evaluation.direction == "both" else self.evaluation.direction

    def collate_neighbours(self, hidden: Hidden) -> "CollateFn":
        """The corruption of held-out text that hides two neighbours of each row, or one of them."""
        objective = self.objectives.main.held_out(MaskedLM(masking=TwoNeighbours(hidden=hidden)))
        assert objective is not None
        return self._collating(objective, direction=self.looks)

    def collate_translations(self) -> "CollateFn":
        """The corruption of the first sentence of held-out pairs: of the same words, whatever follows them."""
        objective = self.objectives.main.held_out(languages.asked(self.evaluation))
        assert objective is not None
        return self._collating(objective, direction=self.looks, first_alone=True)

    def collate_pairs(self) -> "CollateFn":
        """The corruption of held-out pairs: that of all held-out text, plus the sentence objective."""
        objectives = (self.heldout_objective, SentencePair())
        return self._collating(*objectives, direction=self.looks, cls_last=self.cls_last)

    @property
    def cls_last(self) -> bool:
        """Whether [CLS] is the last piece of a row."""
        return self.format.resolved().cls == "last"

    @property
    def has_start(self) -> bool:
        """Whether a special piece is before a text, so that a language model predicts its first token."""
        return self.format.frame != "none" and not self.cls_last

    def parameters(self) -> int:
        """Number of trainable parameters of backbone and heads; tied tables count once."""
        return sum(self.parameters_by_part().values())

    def parameters_by_part(self) -> dict[str, int]:
        """Parameters of each part of the network, counted on the meta device, without allocating memory."""
        vocab_size = self.data.tokenizer.vocab_size
        architecture = canonical([self.model.essence(), self.objectives.essence(), vocab_size])
        if architecture not in _counted:
            with undrawn():
                backbone, heads = self.networks()
            _counted[architecture] = parameters_of(backbone, heads)
        return _counted[architecture]

    def networks(self, vocab_size: int | None = None) -> tuple[BackboneModule, nn.ModuleDict]:
        """Backbone and heads, their weights drawn from torch's current generator; by default of its own vocabulary."""
        vocab_size = vocab_size or self.data.tokenizer.vocab_size
        return self.model.build(vocab_size), self.objectives.heads(self.model.size(vocab_size))

    @property
    def moments(self) -> int:
        """Tensors of the size of each parameter that a training keeps from step to step: moments, and a mean."""
        is_averaged = self.optimizer.nonmonotone_interval or self.training.averaged_checkpoints > 1
        return self.optimizer.moments + bool(is_averaged)

    def shown(self, steps: int | None = None) -> dict[int, float]:
        """Positions -> rows of that many in a training, or in its first steps.

        By tokens as if all were full; of lengths that are drawn the expected numbers.
        """
        left = self.training.last_step if steps is None else steps
        full, rows = self.format.sides * self.format.sequence_length, dict[int, float]()
        for length, most in self.format.stages(self.training.steps):
            each = (
                self.objectives.presentations
                * self.training.batch_size
                * (full / length if self.training.batch_by == "tokens" else 1)
            )
            shares = self.format.length_shares(length)
            rows |= {positions: min(left, most) * each * share for positions, share in shares.items()}
            left -= min(left, most)
        return rows

    def tokens(self, steps: int | None = None) -> int:
        """Positions presented in a training, or in its first steps; by tokens without padding, to one sequence.

        Those of a source count as those of its translation do.
        """
        return round(sum(positions * rows for positions, rows in self.shown(steps).items()))

    def predictions_per_token(self) -> float:
        """Expected tokens that are predicted for each position presented, full rows of one segment as in `flops`.

        Two sentences in a row have one more special token, which a language model does not predict.
        """
        main = self.objectives.main
        predicted = sum(
            main.expected_predictions(length, self.format.unpredicted(length)) * rows
            for length, rows in self.shown().items()
        )
        return predicted / self.tokens()

    def predictions_per_step(self) -> float:
        """Expected tokens that are predicted in one optimiser step, the mean over a training."""
        return self.predictions_per_token() * self.tokens_per_step()

    def flops(self, shown: Mapping[int, float] | None = None) -> float:
        """Floating-point operations of the matrix products of a training, backward = 2 x forward.

        By formula, so that ten thousand cells are planned in seconds; tests compare it with torch's own counter. The
        last layer counts in full, as in papers, although a step spares what no objective reads of it. Of a teacher the
        forward passes count.

        Args:
            shown: Positions -> rows of so many positions; by default those of the whole training.
        """
        size = self.model.size(self.data.tokenizer.vocab_size)
        total, distillation = 0.0, self.objectives.distilled
        teacher = self._described(teachers.KNOB).model if distillation else None
        for positions, rows in (self.shown() if shown is None else shown).items():
            queries = self.objectives.main.expected_queries(positions)
            forward = self.model.flops_per_sequence(positions, queries)
            forward += self.objectives.flops_per_sequence(positions, size, self.format.unpredicted(positions))
            total += 3.0 * forward * rows
            if distillation and teacher:
                hidden = self.objectives.main.expected_hidden(positions)
                total += rows * teachers.flops(distillation, teacher, size.vocab_size, hidden, positions)
        return total

    def tokens_per_step(self) -> float:
        """Positions presented in one optimiser step, the mean over a training."""
        return self.tokens() / self.training.last_step

    def flops_per_step(self) -> float:
        """Floating-point operations of one optimiser step, the mean over a training."""
        return self.flops() / self.training.last_step

    def flops_per_token(self) -> float:
        """Floating-point operations per presented position."""
        return self.flops() / self.tokens()


def _shapes(backbone: nn.Module, heads: nn.ModuleDict) -> dict[str, torch.Size]:
    """The shapes of the weights of both, by name."""
    both = nn.ModuleDict({"backbone": backbone, "heads": heads}).state_dict()
    return {name: tensor.shape for name, tensor in both.items()}


def parameters_of(backbone: nn.Module, heads: nn.ModuleDict) -> dict[str, int]:
    """Parameters by part, shared ones once, where they are met first; a backbone's own are called ``backbone``."""
    counts: Counter[str] = Counter()
    for path, parameter in nn.ModuleDict({"backbone": backbone, "heads": heads}).named_parameters():
        kind, name, *below = path.split(".")
        part = f"{name} head" if kind == "heads" else name if below else kind
        counts[part] += parameter.numel()
    return dict(counts)


def _collate(
    objectives: tuple[Objective | Objectives, ...],
    tokens: Tokens,
    draws: Draws,
    vocabulary: Vocabulary,
    direction: Direction = "both",
    targets_only: bool = False,
    cls_last: bool = False,
    characters: bool = False,
    languages: tuple[int, ...] | None = None,
    first_alone: bool = False,
) -> Example:
    """Corruption as the loader calls it; a module-level function, so that it can be pickled for loader workers.

    With ``targets_only`` no other last states are read, as in a training step.
    """
    tokens = tokens.with_cls_last() if cls_last else tokens
    tokens = numbered(tokens, languages) if TABLE in tokens.tables else tokens
    if first_alone:
        assert isinstance(vocabulary, Pieces), "that of a store"
        tokens = hidden_first(tokens, vocabulary.cls)
    if characters:
        assert isinstance(vocabulary, Pieces), "that of a store"
        tokens = spelt(tokens, vocabulary)
    example = Example.of(tokens)
    example.visible = example.visible.toward(direction)
    for objective in objectives:
        example = objective.mask_inputs(example, draws, vocabulary)
    return example.read_at_targets() if targets_only else example


_counted: dict[str, dict[str, int]] = {}  # architecture -> parameters by part; a plan needs each thousands of times
