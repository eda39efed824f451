"""If a knob exists, it changes the training; at its neutral value it changes nothing, to the bit."""

import pytest

from lightning_modules.config import flat, identity, paths
from lightning_modules.objectives import SentencePair, SpanBoundary
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.training.weights import WEIGHTS
from tests.depth import some
from tests.translations import RECURRENT, tiny_system

STEPS = 7  # of the trainings here
# path -> (another spelling of what the tiny system has, or None where there is none; a value that must change the loss)
ROWS = {
    "model.kind": None,  # a kind starts from its defaults: tests/unit/model/test_recurrent.py
    "model.num_layers": (1, 2),
    "model.hidden_size": (16, 32),
    "model.embedding_size": (16, 8),
    "model.embedding_cutoffs": None,  # those of the objective, or refused: tests/unit/objectives/test_heads.py
    "model.embedding_divisor": (1, 2),
    "model.sharing": ("none", "all"),
    "model.sharing_groups": (1, 2),
    "model.num_heads": (2, 4),
    "model.key_size": (8, 4),
    "model.ffn_size": (64, 32),
    "model.norm": ("post", "pre"),
    "model.activation": ("gelu", "relu"),
    "model.positions": ("learned", "sided_linear_bias"),
    "model.segment_relation": (False, True),
    "model.query_stream": None,  # objectives.plm needs it, and others refuse it
    "model.rotary_size": (8, 2),
    "model.query_biases": ("shared", "layer"),
    "model.clamp_length": (0, 3),
    "model.memory_length": (8, 4),
    "model.same_length": (False, True),
    "model.direction": ("both", "left_to_right"),
    "model.max_positions": (16, 32),
    "model.segment_types": (0, 2),
    "checkpoint": None,  # no other knob acts then: tests/end_to_end/test_released_checkpoints.py
    "model.languages": None,  # of text in several languages: tests/identities/test_several_languages.py
    "model.embedding_dropout": (0.1, 0.0),
    "model.dropout": (0.1, 0.0),
    "model.attention_dropout": (0.1, 0.0),
    "model.norm_eps": (1e-5, 0.1),
    "model.init_std": (0.02, 0.1),
    "model.init": ("normal", "truncated_normal"),
    "model.embedding_norm": (True, False),
    "model.embedding_scale": (False, True),
    "model.attention_biases": (True, False),
    "model.norm_init_std": (0.0, 0.02),
    "model.position_init_std": (0.02, 0.01),
    "model.residual_init": ("plain", "scaled"),
    "model.encoder_layers": None,  # of models of two sequences: tests/identities/test_two_sequences.py
    "model.source_embeddings": None,
    "model.attention": None,
    "model.output_size": None,  # those of an LSTM: tests/unit/model/test_recurrent.py
    "model.residual": None,
    "model.cell_size": None,
    "model.cell_clip": None,
    "model.projection_clip": None,
    "model.characters": None,  # tests/unit/model/test_elmo.py
    "model.characters.size": None,
    "model.characters.filters": None,
    "model.characters.highways": None,
    "model.word_type_dropout": None,
    "model.input_dropout": None,
    "model.weight_dropout": None,
    "model.hidden_dropout": None,
    "model.output_dropout": None,
    "objectives.mlm": None,  # one objective that masks inputs there must be
    "objectives.mlm.weight": (1.0, 0.01),
    "objectives.mlm.activation": ("gelu", "relu"),
    "objectives.mlm.norm_eps": (1e-12, 0.1),
    "objectives.mlm.masking.rate": (0.15, 0.4),
    "objectives.mlm.masking.mask": None,  # one of three shares that add up to one: the mixture has tests of its own
    "objectives.mlm.masking.same": None,
    "objectives.mlm.masking.random": None,
    "objectives.mlm.masking.count": ("stochastic_round", "round"),
    "objectives.mlm.masking.cap": (16, 1),
    "objectives.mlm.masking.copies": (0, 1),
    "objectives.mlm.masking.predicted": (0.15, 0.05),
    "objectives.mlm.masking.replacement": ("piece", "group"),
    "objectives.mlm.masking.random_words": ("ordinary", "uniform"),
    "objectives.mlm.masking.units.kind": ("pieces", "whole_words"),
    "objectives.mlm.masking.units.longest": (10, 2),
    "objectives.mlm.masking.units.p": (0.2, 0.9),
    "objectives.mlm.masking.units.tags": None,  # this text has no names: tests/unit/data/test_annotations.py
    "objectives.mlm.masking.units.share": None,
    "objectives.mlm.masking.units.annotator": None,
    "objectives.sentence": (None, SentencePair()),
    "objectives.sentence.weight": (1.0, 0.01),
    "objectives.sbo": (None, SpanBoundary()),
    "objectives.sbo.weight": (1.0, 0.01),
    "objectives.sbo.longest": (15, 1),
    "objectives.sbo.position_size": (200, 8),
    "objectives.sbo.norm_eps": (1e-12, 0.1),
    "objectives.mlm.masking.units.counted": None,  # a piece a word here: tests/unit/objectives/test_masking_laws
    "objectives.plm": None,  # in place of the masked one
    "objectives.plm.weight": (1.0, 0.01),
    "objectives.plm.one_in": (4.0, 8.0),
    "objectives.plm.transform": ("none", "bert"),
    "objectives.plm.activation": ("gelu", "relu"),
    "objectives.plm.norm_eps": (1e-12, 0.1),
    "objectives.plm.units.kind": ("spread_spans", "pieces"),
    "objectives.plm.units.longest": (5, 1),
    "objectives.plm.units.counted": None,
    "objectives.plm.units.p": None,  # of units that are not its own: as for masked models
    "objectives.plm.units.tags": None,
    "objectives.plm.units.share": None,
    "objectives.plm.units.annotator": None,
    "objectives.lm": None,  # in place of the masked one: one of the two masks inputs
    "objectives.lm.weight": (1.0, 0.01),
    "objectives.lm.direction": None,  # that of the model, or refused
    "objectives.lm.transform": ("bert", "none"),
    "objectives.lm.bias": (True, False),
    "objectives.lm.cutoffs": ((), (20, 40)),
    "objectives.lm.label_smoothing": (0.0, 0.1),
    "objectives.lm.units": None,  # words are of characters: tests/unit/model/test_elmo.py
    "objectives.lm.negatives": (0, 20),
    "objectives.lm.activation": ("gelu", "relu"),
    "objectives.lm.scored": ("all", "second_half"),
    "objectives.lm.norm_eps": (1e-12, 0.1),
    "objectives.activations": None,  # of an LSTM: tests/unit/objectives/test_activation_regularization.py
    "format.kind": ("full_sentences", "segment_pairs"),
    "format.sequence_length": (16, 12),
    "format.share": (1.0, 0.25),
    "format.first_share": (0.5, 0.25),
    "format.first_length": (12, 10),
    "format.break_mode": ("sentences", "none"),
    "format.frame": ("cls_sep", "none"),
    "format.sentence_order": ("text", "shuffled"),
    "format.row_starts": ("even", "drawn"),
    "format.lengths": ("fixed", "drawn"),
    "format.both_ways": (False, True),
    "format.reuse_length": (None, 8),
    "format.rest": ("text", "pair"),
    "format.languages": None,  # of text in several languages, as the next two
    "format.language_exponent": None,
    "format.reset_positions": None,
    "format.negatives": ("random", "swapped"),
    "format.pairing": ("released", "matched"),
    "format.excerpt": ("all", "first"),
    "format.cls": ("first", "last"),
    "format.short_fraction": (0.3, 0.9),
    "format.short_sequences": (0.0, 0.9),
    "format.duplicates": (1, 2),
    "format.short_documents": (False, True),
    "format.lone_negatives": (False, True),
    "data.corpora": None,  # a test of the data room
    "data.tokenizer.kind": None,
    "data.tokenizer.corpora": None,  # see tests/unit/data/test_store.py
    "data.tokenizer.vocab_size": (64, 70),
    "data.tokenizer.lowercase": None,  # the text has no capitals
    "optimizer.algorithm": ("adamw", "lamb"),
    "optimizer.nonmonotone_interval": None,  # of longer trainings: tests/unit/training/test_averaging.py
    "optimizer.bias_correction": (True, False),
    "optimizer.peak_lr": (1e-2, 2e-2),
    "optimizer.beta1": (0.9, 0.5),
    "optimizer.beta2": (0.98, 0.5),
    "optimizer.eps": (1e-6, 1e-2),
    "optimizer.weight_decay": (0.01, 0.5),
    "optimizer.decay_all": (True, False),
    "optimizer.rate_divisor": (1.0, 2.6),
    "schedule.shape": ("warmup", "slanted"),
    "schedule.ratio": (32.0, 4.0),
    "schedule.final_ratio": (250_000.0, 2.0),
    "schedule.low_beta1": (None, 0.5),
    "schedule.by_length": (False, True),
    "schedule.warmup_fraction": (0.048, 0.5),
    "schedule.decay": ("linear", "constant"),
    "schedule.decay_origin": ("warmup_end", "zero"),
    "training.steps": (STEPS, STEPS + 1),
    "training.stop_after": (0, STEPS - 2),
    "objectives.distillation": None,  # of a teacher: tests/identities/test_distillation.py
    "training.start_layers": None,  # of a deeper start: tests/identities/test_distillation.py
    "training.start_parts": None,  # of a model of another kind: tests/identities/test_start_parts.py
    "training.batch_size": (8, 9),
    "training.batch_by": ("sequences", "tokens"),
    "training.bucket_steps": (1, 4),
    "training.micro_batch_size": (8, 4),
    "training.warm_start": ((), (1,)),
    "training.start": ({}, {"training.steps": 4}),
    "training.vocabulary": None,  # of a start with another tokenizer: tests/end_to_end/test_continued.py
    "training.clip_norm": (0.0, 0.05),
    "training.averaged_checkpoints": (1, 2),
    "training.averaging_interval": (0.015, 0.3),
    "training.precision": ("fp32", "bf16"),
    "training.kept_as": ("fp32", "bf16"),  # seen in the metrics
    "evaluation.sequences": (16, 12),
    "evaluation.final_sequences": (16, 24),  # seen in the final metrics
    "evaluation.rate": (0.15, 0.3),
    "evaluation.pairs": (0, 8),  # seen in the metrics
    "evaluation.neighbours": (0, 8),  # seen in the metrics
    "evaluation.translations": None,  # measured once a training has ended: tests/end_to_end/test_translation.py
    "evaluation.translate_at": None,
    "evaluation.beam": None,
    "evaluation.length_penalty": None,
    "evaluation.words": None,  # measured once a training has ended; see tests/unit/measures/test_per_byte.py
    "evaluation.pairing": None,  # the held-out text is too small to match pairs; see test_pairs_in_use.py
    "evaluation.blocks": (False, True),
    "evaluation.rows": (8, 4),
    "evaluation.sequence_length": (16, 8),
    "evaluation.context": (0, 8),
    "evaluation.memory_length": (8, 4),
    "evaluation.direction": ("both", "left_to_right"),
    "evaluation.translated_pairs": None,  # of parallel text, as the next
    "evaluation.languages": None,  # of models with languages: tests/identities/test_several_languages.py
    "evaluation.probes": None,  # read once a training has ended; see tests/unit/probing
    "evaluation.points": (3, 2),  # seen in the curve
}
LABELS = {"name", "paper"}
LONG = {"format.sequence_length": 48, "model.max_positions": 48, "model.segment_types": 2}  # room for two segments
PAIRS = {**LONG, "format.kind": "segment_pairs", "format.short_fraction": 0.3}
SENTENCE = {**PAIRS, "objectives.sentence.weight": 1.0}
ONE_WAY = {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"}
PERMUTED = {"objectives.mlm": None, "objectives.plm.one_in": 4.0, "model.query_stream": True}
PERMUTED_HEAD = {**PERMUTED, "objectives.plm.transform": "bert"}
STREAM = {**ONE_WAY, "format.kind": "stream", "format.frame": "none"}
BOTH_SIDES = {"format.kind": "stream", "format.frame": "none", "model.memory_length": 8}
CLUSTERED = {"objectives.lm.cutoffs": [20, 40], "model.embedding_cutoffs": [20, 40]}
FIRST = {"format.first_share": 0.5, "format.first_length": 12}
SPANS = {"objectives.mlm.masking.units.kind": "spans"}
SPAN_BOUNDARY = {**SPANS, "objectives.sbo.weight": 1.0}
# path -> what the tiny system must have for the knob to matter
BASES = {
    "objectives.mlm.masking.replacement": SPANS | {"objectives.mlm.masking.rate": 0.4},
    "objectives.mlm.masking.random_words": {
        "objectives.mlm.masking.mask": 0.0,
        "objectives.mlm.masking.same": 0.0,
        "objectives.mlm.masking.random": 1.0,
    },
    "objectives.mlm.masking.units.longest": SPANS,
    "objectives.mlm.masking.units.p": SPANS,
    "model.embedding_divisor": {**ONE_WAY, **CLUSTERED},
    "model.sharing": {"model.num_layers": 2},
    "model.sharing_groups": {"model.num_layers": 2, "model.sharing": "all"},
    "model.rotary_size": {"model.positions": "rotary"},
    "model.query_biases": {"model.num_layers": 2, "model.positions": "relative"},
    "model.clamp_length": {"model.positions": "relative"},
    "model.memory_length": {**STREAM, "model.memory_length": 8},
    "model.same_length": {**STREAM, "model.memory_length": 8},
    "objectives.sbo": SPANS,
    "objectives.sbo.weight": SPAN_BOUNDARY,
    "objectives.sbo.longest": SPAN_BOUNDARY,
    "objectives.sbo.position_size": SPAN_BOUNDARY,
    "objectives.sbo.norm_eps": SPAN_BOUNDARY,
    "objectives.sentence": PAIRS,
    "objectives.sentence.weight": SENTENCE,
    "objectives.plm.weight": PERMUTED,
    "objectives.plm.one_in": PERMUTED,
    "objectives.plm.transform": PERMUTED,
    "objectives.plm.activation": PERMUTED_HEAD,
    "objectives.plm.norm_eps": PERMUTED_HEAD,
    "objectives.plm.units.kind": PERMUTED,
    "objectives.plm.units.longest": PERMUTED,
    "model.segment_relation": PAIRS,
    "objectives.lm.weight": ONE_WAY,
    "objectives.lm.transform": ONE_WAY,
    "objectives.lm.bias": ONE_WAY,
    "objectives.lm.cutoffs": ONE_WAY,
    "objectives.lm.negatives": ONE_WAY,
    "objectives.lm.label_smoothing": ONE_WAY,
    "objectives.lm.activation": ONE_WAY,
    "objectives.lm.scored": ONE_WAY,
    "format.sentence_order": STREAM,
    "format.row_starts": STREAM,
    "format.lengths": {**STREAM, "model.max_positions": 48},
    "format.both_ways": BOTH_SIDES,
    "format.reuse_length": BOTH_SIDES,
    "format.rest": {**BOTH_SIDES, "format.reuse_length": 8, "training.steps": 12},  # until rows end
    "evaluation.rows": STREAM,
    "evaluation.memory_length": {**STREAM, "model.memory_length": 8},
    "evaluation.sequence_length": STREAM,
    "evaluation.context": {**STREAM, "evaluation.sequence_length": 8},
    "objectives.lm.norm_eps": ONE_WAY,
    "format.kind": LONG,
    "format.first_share": FIRST,
    "format.first_length": FIRST,
    "format.frame": {**ONE_WAY, "format.break_mode": "none"},
    "format.negatives": PAIRS,
    "format.pairing": PAIRS,
    "format.excerpt": PAIRS,
    "format.cls": {**SENTENCE, "model.segment_types": 3},
    "format.short_fraction": PAIRS,
    "format.duplicates": PAIRS,
    "format.short_documents": PAIRS,
    "format.lone_negatives": PAIRS | {"format.negatives": "swapped"},
    "optimizer.decay_all": {"optimizer.weight_decay": 0.5},
    "schedule.ratio": {"schedule.shape": "slanted"},
    "schedule.final_ratio": {"schedule.shape": "one_cycle"},
    "schedule.low_beta1": {"schedule.shape": "one_cycle"},
    "schedule.by_length": {**STREAM, "model.max_positions": 48, "format.lengths": "drawn"},
    "training.bucket_steps": {"training.batch_by": "tokens"},
    "training.averaging_interval": {"training.averaged_checkpoints": 2},
    "training.warm_start": {"model.num_layers": 2},
    "evaluation.pairs": SENTENCE,
}


@pytest.fixture
def warm(tiny):
    """Of few steps, with a warm-up that is more than nothing in them, so that where the decay starts matters."""
    return tiny.but(**{"schedule.warmup_fraction": 0.3, "training.steps": STEPS})


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What the training of a system leaves; equal systems are trained once, for most knobs share them."""
    known = {}

    def found(system):
        if system not in known:
            known[system] = trained(system, tmp_path_factory.mktemp("training"))
        return known[system]

    return found


def trained(system, folder):
    """What a training leaves, after those that it starts from."""
    ancestor = system.ancestor()
    if ancestor is None:
        return fit(system, 0, folder)
    trained(ancestor, folder / "start")
    return fit(system, 0, folder, start=folder / "start" / WEIGHTS)


def test_every_knob_has_a_row(tiny):
    everything = {**flat(tiny), **flat(tiny.but(**SENTENCE)), **flat(tiny.but(**ONE_WAY))}
    everything |= flat(tiny.but(**SPAN_BOUNDARY)) | flat(tiny.but(**PERMUTED))
    everything |= {path: None for path, info in paths(System).items() if "kinds" in (info.json_schema_extra or {})}
    assert set(everything) - LABELS == set(ROWS)


@pytest.mark.parametrize("path", some([path for path, row in ROWS.items() if row], 60))
def test_a_knob_does_what_it_says_and_only_that(warm, left, path):
    same, other = ROWS[path]
    if path == "schedule.warmup_fraction":
        same = 0.3
    warm = warm.but(**BASES.get(path, {}))
    reference, repeated = left(warm), left(warm.but(**{path: same}))
    changed = left(warm.but(**{path: other}))
    assert repeated.metrics == reference.metrics
    assert (changed.curve, changed.metrics) != (reference.curve, reference.metrics)
    assert identity(warm.but(**{path: other}).essence()) != identity(warm.essence())


@pytest.mark.parametrize(("path", "derived"), [("model.ffn_size", 64), ("model.num_heads", 1)])
def test_a_derived_value_spelled_out_is_the_same_run(tiny, path, derived):
    silent, spelled = tiny.but(**{path: None}), tiny.but(**{path: derived})
    assert identity(silent.essence()) == identity(spelled.essence())


@pytest.mark.parametrize(
    "path", [path for path, info in paths(System).items() if "neutral" in (info.json_schema_extra or {})]
)
def test_a_neutral_value_is_left_out_of_the_identity(tiny, path):
    """So a knob that is added later leaves the records of earlier versions valid."""
    if path == "objectives.mlm":
        pytest.skip("the only objective there is cannot be absent")
    needs = {"objectives.lm.": ONE_WAY, "objectives.plm.": PERMUTED, "objectives.sbo.": SPAN_BOUNDARY}
    tiny = tiny.but(**next((needed for part, needed in needs.items() if path.startswith(part)), {}))
    kinds = paths(System)[path].json_schema_extra["kinds"] if path.startswith("model.") else ("transformer",)
    if all(kind.endswith("encoder_decoder") for kind in kinds):
        tiny = tiny_system("multi30k:en-de").but(**{} if "encoder_decoder" in kinds else RECURRENT)
    elif "transformer" not in kinds:
        tiny = tiny.but(**{"model.kind": "lstm"})
    here = tiny.but(**{path: paths(System)[path].json_schema_extra["neutral"]}).essence()
    *branches, leaf = path.split(".")
    for name in branches:
        here = here.get(name, {})  # a part that is neutral is left out as a whole
    assert leaf not in here


def test_labels_are_no_part_of_the_identity(tiny):
    assert identity(tiny.but(name="x", paper="y").essence()) == identity(tiny.essence())
