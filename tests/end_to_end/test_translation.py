"""A training on parallel text: one that is interrupted, one in the other direction, and what is refused by name."""

import json
import re
from dataclasses import replace

import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.data.formats import seq2seq
from lightning_modules.data.formats.seq2seq import Translations
from lightning_modules.footprint import footprint
from lightning_modules.generation.language_model import check_predicts_next
from lightning_modules.measures import bleu
from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import fitting
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.translations import RECURRENT, parallel_text, tiny_system


@pytest.fixture
def corpus(tmp_path, shared_cache):
    return parallel_text(tmp_path / "text")


def trained(system, folder, **options):
    fitted = fit(system, 3, folder, **options)
    return fitted, load_weights(folder / WEIGHTS)


@pytest.mark.parametrize("by", ["tokens", "sequences"])
@pytest.mark.parametrize("changes", [{}, RECURRENT], ids=["transformer", "lstm"])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, corpus, by, changes):
    translated = {"evaluation.translations": 4, "evaluation.beam": 2, "evaluation.translate_at": "points"}
    translated |= {"training.averaged_checkpoints": 2}
    system = tiny_system(corpus, **{"training.batch_by": by, "training.micro_batch_size": 2}, **changes, **translated)
    whole, weights = trained(system, tmp_path / "whole")
    steps = iter([False, False, True])
    with pytest.raises(Interrupted):
        fit(system, 3, tmp_path / "parts", stop=lambda: next(steps, False))
    parts, resumed = trained(system, tmp_path / "parts")
    assert weights.keys() == resumed.keys()
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert whole.metrics == parts.metrics
    assert whole.sums == parts.sums
    assert whole.curve == parts.curve


def test_translations_are_scored_at_the_end_beside_simple_methods(tmp_path, corpus):
    changes = {"training.steps": 250, "training.batch_size": 16, "optimizer.peak_lr": 0.01, "model.hidden_size": 32}
    system = tiny_system(corpus, **changes, **{"model.init_std": 0.18, "evaluation.translations": 100})
    found, _ = trained(system, tmp_path / "run")
    assert found.metrics["heldout.bleu"] > 5 * found.metrics["heldout.bleu_copy"]
    assert found.metrics["heldout.translations"] == len(unpack(found.examples["heldout.bleu"])) == 10
    assert unpack(found.examples["heldout.bleu"]).mean() == pytest.approx(found.metrics["heldout.bleu"], rel=1e-5)
    kept = found.sums["translations"]
    counts = {name: unpack(packed).reshape(-1, 10).T for name, packed in kept["counts"].items()}
    for name, score in (("bleu", bleu.bleu), ("chrf", bleu.chrf)):
        assert score(counts[name].sum(axis=0)) == pytest.approx(found.metrics[f"heldout.{name}"])
    assert kept["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert found.execution["translations"] == kept["signatures"]
    assert [row.keys() for row in kept["shown"]] == [{"source", "reference", "translation"}] * 5
    assert found.cost["translations_seconds"] > 0


@pytest.mark.parametrize("changes", [{}, RECURRENT], ids=["transformer", "lstm"])
def test_scores_at_a_point_are_those_of_a_training_that_ends_there(tmp_path, corpus, changes):
    learnt = {"training.steps": 45, "training.batch_size": 8, "optimizer.peak_lr": 0.01, "evaluation.points": 3}
    learnt |= {"model.init_std": 0.18}
    system = tiny_system(corpus, **changes, **learnt, **{"evaluation.translations": 10})
    (at_end, alone), (found, beside) = (
        trained(system.but(**{"evaluation.translate_at": when}), tmp_path / when) for when in ("end", "points")
    )
    assert found.curve["step"] == [15, 30, 45]
    assert all(torch.equal(alone[name], beside[name]) for name in alone), "a look changes no training"
    assert (found.metrics, found.examples) == (at_end.metrics, at_end.examples)
    assert {name for name in found.curve if name not in at_end.curve} == {"heldout.bleu", "heldout.chrf"}
    ended = [trained(system.but(**{"training.stop_after": n}), tmp_path / str(n))[0] for n in (15, 30)]
    for name in ("heldout.bleu", "heldout.chrf"):
        expected = [one.metrics[name] for one in (*ended, at_end)]
        assert found.curve[name] == pytest.approx(expected, rel=1e-6)
    assert len(set(found.curve["heldout.chrf"])) > 1


def test_what_is_translated_and_how_is_part_of_a_run(corpus):
    system = tiny_system(corpus)
    for path, value in (
        ("evaluation.beam", 2),
        ("evaluation.length_penalty", 0.0),
        ("evaluation.translate_at", "points"),
    ):
        assert system.but(**{path: value}).essence() == system.essence(), path
        asked = system.but(**{"evaluation.translations": 8})
        assert asked.but(**{path: value}).essence() != asked.essence() != system.essence(), path


@pytest.mark.parametrize(
    "changes",
    [
        {"training.batch_size": 32, "training.micro_batch_size": 8},
        {"training.batch_size": 2, "training.steps": 24, "training.bucket_steps": 24},
    ],
    ids=["micro-batches", "buckets"],
)
def test_pairs_of_several_lengths_have_little_padding(corpus, changes):
    system = tiny_system(corpus, **changes)
    data = system.data_module(0)
    assert isinstance(data.sequences, Translations)
    shown = real = 0
    for example in data.train_dataloader():
        for side in (example.inputs, example.source):
            assert side is not None
            shown, real = shown + side.real.numel(), real + int(side.real.sum())
    assert real / shown > 0.8


def test_its_memory_is_known_before_it_runs(corpus):
    one, more = (footprint(tiny_system(corpus, **{"model.encoder_layers": n})) for n in (1, 2))
    assert one is not None
    assert more is not None
    assert one.activations < more.activations
    assert one.parameters == 4 * tiny_system(corpus).parameters()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format.kind": "full_sentences"}, "model.kind encoder_decoder reads a source.*format.kind full_sentences"),
        (
            {"model": {"kind": "transformer", "direction": "left_to_right"}},
            "format gives a source, which model does not",
        ),
        ({"data.corpora": ["wikipedia-mini"]}, "wikipedia-mini is not: name a corpus with two languages"),
        ({"data.corpora": ["multi30k:en-de", "bible:de-en"]}, "several directions"),
        ({"objectives": {"mlm": {}}}, "objectives.mlm is of one sequence"),
        ({"objectives.lm.scored": "second_half"}, "objectives.lm.scored second_half is of running text"),
        ({"objectives.lm.cutoffs": [20, 50]}, "label_smoothing 0.1 is of a softmax over all words"),
        ({"model.direction": "both"}, "model.direction: 'both' is not allowed. Allowed: left_to_right"),
        ({"model.memory_length": 4}, "memory_length is of models of one sequence"),
        ({"model.query_stream": True}, "query_stream is of models"),
        ({"training.warm_start": [1]}, "training.warm_start repeats the layers of one stack"),
        ({"evaluation.words": 4}, "evaluation.words"),
        ({"evaluation.pairs": 4}, "evaluation.pairs is of running text"),
        ({"evaluation.probes": ["agreement"]}, "evaluation.probes is of running text"),
        ({"evaluation.blocks": True}, "evaluation.blocks is of running text"),
        ({"format.first_share": 0.5, "format.first_length": 8}, "a translation has the length"),
        ({"format.frame": "none"}, "frame none"),
        ({"format.sequence_length": 64}, "is longer than model.max_positions 32"),
        ({"model": {"kind": "lstm_encoder_decoder", "hidden_size": 7}}, "hidden_size 7 is not even"),
        ({"model": {"kind": "lstm_encoder_decoder", "cell_size": 9000}}, "cell_size is of models of one sequence"),
        ({"model": {"kind": "lstm_encoder_decoder", "direction": "two_way"}}, "model.direction"),
        ({"model": {"kind": "lstm_encoder_decoder"}, "format.kind": "full_sentences"}, "reads a source"),
        ({"model.source_embeddings": "tied"}, "model.source_embeddings"),
        (
            {"training.bucket_steps": 4, "training.batch_by": "sequences"},
            "set batch_by to tokens, or bucket_steps to 1",
        ),
        (
            {"data.tokenizer.kind": "letter_bpe", "evaluation.translations": 4},
            "data.tokenizer.kind letter_bpe does not keep its spaces",
        ),
        ({"data.tokenizer.kind": "wordpiece", "evaluation.translations": 4}, "set it to byte_bpe or unigram"),
    ],
)
def test_what_does_not_fit_two_sequences_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError) as error:
        tiny_system("multi30k:en-de").but(**changes)
    assert re.search(message, str(error.value))
    assert all("\n" not in problem.message for problem in error.value.problems), "a line each"


def test_knobs_without_effect_are_no_other_run(corpus):
    system = tiny_system(corpus)
    idle = {"format.negatives": "swapped", "format.short_fraction": 0.5, "format.break_mode": "none"}
    for path, value in (idle | {"model.encoder_layers": 1}).items():
        assert system.but(**{path: value}).essence() == system.essence(), path


def test_text_of_one_language_is_no_parallel_text(tmp_path, shared_cache):
    lines = "".join(f"the cat {n} sees.\n" for n in range(400))
    for language in ("en", "de"):
        (tmp_path / f"a.{language}").write_text(lines)
    system = tiny_system(f"lines:en-de:{tmp_path}/*", **{"data.tokenizer.vocab_size": 280})
    store = system.data_module(0).sequences.store
    with pytest.raises(ConfigError, match="is no parallel text"):
        seq2seq.arrange(replace(store, documents=store.documents[::2]), 24)


def test_a_fine_tuning_and_a_text_of_its_own_are_refused_by_name():
    system = tiny_system("multi30k:en-de")
    with pytest.raises(ConfigError, match=r"model\.kind encoder_decoder reads a source and a target"):
        fitting.check(system, "cola", FineTuning())
    with pytest.raises(ConfigError, match="continues no text by itself"):
        check_predicts_next(system, "mine")


def test_the_published_sizes_are_those_of_the_paper_and_the_lecture():
    assert [SYSTEMS[name].parameters() for name in ("transformer_base", "transformer_big")] == [63_082_496, 214_245_376]
    base, bert = SYSTEMS["transformer_base"].model.resolved(), SYSTEMS["bert_base"].model.resolved()
    knobs = ("num_layers", "hidden_size", "ffn_size", "num_heads")
    assert [(base.get(name), bert.get(name)) for name in knobs] == [(6, 12), (512, 768), (2048, 3072), (8, 12)]
    keys = [SYSTEMS["transformer_base"].but(**{"model.key_size": size}).parameters() for size in (32, 16)]
    assert keys == [58_354_688, 55_990_784]  # 5 and 7 million fewer than base, as printed: 60, 58 and 65
    schedule = SYSTEMS["transformer_base"].schedule
    for step in (0, 999, 3_999, 4_000, 50_000, 99_999):
        wanted = 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4_000**-1.5)
        assert 6.99e-4 * schedule.factor(step, 100_000) == pytest.approx(wanted, rel=1e-3)
    assert json.dumps(SYSTEMS["transformer_base"].to_dict())
