"""A translator that starts from parts of a masked language model: which tensors are whose, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.measurements import trunks
from ablations.planning import grids
from ablations.planning.cells import Workshop, layout
from ablations.planning.plan import plan
from ablations.running.estimate import retrained
from ablations.running.execute import execute
from lightning_modules import parts
from lightning_modules.config import ConfigError, identity
from lightning_modules.model import EncoderDecoder, Transformer
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.weights import WEIGHTS, load_weights
from tests.end_to_end.test_families import started
from tests.languages import tiny_xlm
from tests.translations import parallel_text, tiny_system

START, PARTS = "training.start", "training.start_parts"
ALL = {"words": "words", "positions": "positions", "encoder": "layers", "decoder": "layers", "output": "output"}
MASKED = {
    "model.kind": "transformer", "objectives.lm": None, "objectives.mlm": {}, "format.kind": "full_sentences",
    "format.break_mode": "none", "format.languages": "in_turn", "training.steps": 5,
}  # fmt: skip
XLM = {
    "model.positions": "learned", "model.embedding_norm": True, "model.embedding_scale": False, "model.num_layers": 2,
    "objectives.lm.transform": "bert", "objectives.lm.bias": True,
}  # fmt: skip


@pytest.fixture
def translator(tmp_path, shared_cache):
    return tiny_system(parallel_text(tmp_path / "text"), **XLM)


def kept(module, folder):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, folder / WEIGHTS)
    return folder / WEIGHTS


def parent_of(system, seed=7):
    """A module whose weights are all random, those that start at zero or one included."""
    module = system.ancestor().build(seed)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(generator=noise)
    return module


def of_parent(name):
    """Where a weight of the translator comes from, spelt out; None for what is new."""
    if ".cross." in name:
        return None
    return name.replace("backbone.encoder.", "backbone.").replace("heads.lm.", "heads.mlm.")


# --- what is loaded


def test_loaded_tensors_are_the_parents_to_the_bit_and_the_others_are_random(translator, tmp_path, monkeypatch):
    system = translator.but(**{START: MASKED, PARTS: ALL})
    parent = parent_of(system)
    theirs, fresh = parent.state_dict(), system.build(0).state_dict()
    ours = started(system, kept(parent, tmp_path / "parent"), tmp_path, monkeypatch).state_dict()
    new = {name for name in ours if of_parent(name) is None}
    assert len(new) == 2 * 6, "of two layers: one projection to three, one of the output, LayerNorm, with their biases"
    for name, tensor in ours.items():
        expected = fresh[name] if name in new else theirs[of_parent(name)]
        assert torch.equal(tensor, expected), name
        assert name in new or not torch.equal(tensor, fresh[name])
    assert {of_parent(name) for name in ours} - {None} == set(theirs)


@pytest.mark.parametrize(
    ("chosen", "begins"),
    [
        ({"words": "words"}, ("backbone.embeddings.word", "backbone.embeddings.norm")),
        ({"encoder": "layers"}, ("backbone.encoder.blocks",)),
        ({"decoder": "layers"}, ("backbone.blocks",)),
        ({"output": "output", "positions": "positions"}, ("heads.lm.vocabulary", "backbone.embeddings.position")),
    ],
)
def test_a_part_is_taken_alone(translator, tmp_path, monkeypatch, chosen, begins):
    system = translator.but(**{START: MASKED, PARTS: chosen})
    parent, fresh = parent_of(system), system.build(0).state_dict()
    ours = started(system, kept(parent, tmp_path / "parent"), tmp_path, monkeypatch).state_dict()
    loaded = {name for name, tensor in ours.items() if not torch.equal(tensor, fresh[name])}
    assert loaded == {name for name in ours if name.startswith(begins) and of_parent(name)}


def test_a_map_that_names_nothing_is_a_random_start_to_the_bit(translator, tmp_path):
    nothing = translator.but(**{START: MASKED, PARTS: {}})
    assert identity(nothing.essence()) == identity(translator.essence())
    assert (nothing.parents(), nothing.trunks) == ({}, ())
    found = [fit(system, 3, tmp_path / str(n)) for n, system in enumerate((translator, nothing))]
    weights = [load_weights(tmp_path / str(n) / WEIGHTS) for n in range(2)]
    assert found[0].metrics == found[1].metrics
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_translator_starts_from_another_one_with_its_sides_swapped(translator, tmp_path, monkeypatch):
    chosen = {"encoder": "decoder", "decoder": "encoder", "source_attention": "source_attention"}
    system = translator.but(**{START: {"training.steps": 5}, PARTS: chosen})
    parent = parent_of(system)
    ours = started(system, kept(parent, tmp_path / "parent"), tmp_path, monkeypatch).state_dict()
    for layer in range(2):
        for kind in ("attention", "ffn"):
            name = f"blocks.{layer}.{kind}.norm.weight"
            assert torch.equal(ours[f"backbone.{name}"], parent.state_dict()[f"backbone.encoder.{name}"])
            assert torch.equal(ours[f"backbone.encoder.{name}"], parent.state_dict()[f"backbone.{name}"])
        name = f"backbone.blocks.{layer}.cross.function.qkv.weight"
        assert torch.equal(ours[name], parent.state_dict()[name])


def test_a_reader_starts_from_the_encoder_of_a_translator(tmp_path, shared_cache, monkeypatch):
    translating = {
        "model.kind": "encoder_decoder", "model.encoder_layers": 1, "model.num_layers": 2, "objectives.mlm": None,
        "objectives.lm": {"direction": "left_to_right"}, "format.kind": "seq2seq", "format.languages": "one_text",
        "format.break_mode": "sentences", "training.steps": 5,
    }  # fmt: skip
    reader = tiny_xlm(parallel_text(tmp_path / "text"), **{"model.languages": []})
    reader = reader.but(**{START: translating, PARTS: {"words": "words", "layers": "encoder"}})
    assert isinstance(reader.ancestor().model, EncoderDecoder)
    parent = parent_of(reader)
    ours = started(reader, kept(parent, tmp_path / "parent"), tmp_path, monkeypatch).state_dict()
    for name, tensor in ours.items():
        if ".blocks." in name:
            assert torch.equal(tensor, parent.state_dict()[name.replace("backbone.", "backbone.encoder.")]), name
    with pytest.raises(ConfigError, match=r"start\.model\.encoder_layers: is 2 and must be 1"):
        reader.but(**{START: translating | {"model.encoder_layers": 2}})


def test_every_weight_of_a_transformer_is_in_one_part():
    for name, system in SYSTEMS.items():
        if isinstance(system.model, Transformer | EncoderDecoder) and system.model.get("direction") != "two_way":
            small = system.model.but(num_layers=2)
            with torch.device("meta"):
                names = [f"backbone.{each}" for each in small.build(50).state_dict()]
            found = [place for places in parts.named(small, names).values() for place in places.values()]
            assert sorted(found) == sorted(names), name


# --- training, and the same again


def test_other_words_are_remapped_before_parts_are_taken(translator, tmp_path, monkeypatch):
    changes = {START: MASKED | {"data.tokenizer.vocab_size": 300}, PARTS: ALL, "training.vocabulary": "remapped"}
    system = translator.but(**changes)
    parent = parent_of(system)
    ours = started(system, kept(parent, tmp_path / "parent"), tmp_path, monkeypatch).state_dict()
    word, layer = "backbone.embeddings.word.weight", "blocks.1.ffn.function.expand.weight"
    assert (len(ours[word]), len(parent.state_dict()[word])) == (340, 300)
    assert torch.equal(ours[word][:5], parent.state_dict()[word][:5]), "special pieces"
    assert torch.equal(ours[f"backbone.encoder.{layer}"], parent.state_dict()[f"backbone.{layer}"])


GRID = """\
question: Does a translator start better from a masked language model?
base: transformer_base
set:
  data.corpora: ["{corpus}"]
  data.tokenizer.vocab_size: 340
  model.hidden_size: 16
  model.num_heads: 2
  model.ffn_size: 32
  model.max_positions: 32
  format.sequence_length: 24
  training.batch_size: 4
  training.bucket_steps: 1
  training.steps: 6
  evaluation.sequences: 8
  evaluation.points: 2
{knobs}
axes:
  start: [random, encoder, both]
variants:
  start:
    random: {{training.start_parts: {{}}}}
    encoder: {{training.start_parts: {{words: words, positions: positions, encoder: layers}}}}
    both: {{training.start_parts: {{words: words, positions: positions, encoder: layers, decoder: layers}}}}
baseline: {{start: random}}
seeds: 2
scales:
  smoke: {{description: seconds}}
metrics:
  - {{name: heldout.next_loss, label: "held-out loss (nats)"}}
claims:
  - {{id: both_help, statement: It starts better., source: a test, metric: heldout.next_loss,
     a: {{start: both}}, b: {{start: random}}, proxy: stated as it is measured}}
"""


def test_parents_are_planned_trained_once_and_trained_again_where_weights_are_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    knobs = "".join(f"  {path}: {json.dumps(value)}\n" for path, value in (XLM | {START: MASKED}).items())
    file = tmp_path / "translators.yaml"
    file.write_text(GRID.format(corpus=parallel_text(tmp_path / "text"), knobs=knobs), encoding="utf-8")
    grid, records = grids.read(file), Records(tmp_path / "results")
    found = plan(grid, "smoke", records=records)
    assert [run.seed for run in found.trunks] == [0, 1]
    assert len(found.runs) == len(found.costs) == 2 + 3 * 2
    random, encoder, both = (cell.runs for cell in found.cells)
    assert [run.parents for run in random] == [(), ()]
    assert [run.parents for run in encoder] == [run.parents for run in both] == [(run.id,) for run in found.trunks]
    assert not trunks.ask_different_questions([random, both]), "the rest of a translator is new in all arms"
    assert trunks.are_shared([encoder, both])
    assert not trunks.are_shared([random, both])
    summary = execute(found, records, "inline")
    assert (summary.executed, summary.outcomes) == (8, {"done": 8})
    child = both[0]
    record = records.get(child.id)
    assert record.run().by_role["start"].id == found.trunks[0].id, "derived from the record alone"
    assert list(record.provenance["start"]["new"]) == ["output", "source_attention"]
    shown = CliRunner().invoke(app, ["show", child.id, "--results-dir", str(records.folder)])
    assert "source_attention" in shown.output
    for path in (*(records.work_folder(run.id) / WEIGHTS for run in found.trunks), records.path(child.id)):
        path.unlink()
    left = plan(grid, "smoke", records=records)
    assert {run.id for run in retrained(left, records)} == {found.trunks[0].id}
    assert execute(left, records, "inline").outcomes == {"done": 8}
    assert records.get(child.id).metrics == record.metrics


@pytest.mark.parametrize("scale", ["laptop", "paper", "smoke"])
def test_the_random_arm_with_more_steps_has_the_flops_of_both_trainings(scale):
    grid = grids.read("translation_start")
    found = layout(grid, scale)
    shop = Workshop(grid, scale, found.baseline)
    systems = {values["start"]: shop.system(values) for values in found.kept}
    both, longer = systems["encoder and decoder"], systems["random, same FLOPs"]
    assert longer.flops() == pytest.approx(both.flops() + both.ancestor().flops(), rel=0.02)
    assert len({system.parameters() for system in systems.values()}) == 1


# --- what a parent of another kind has from its child


def test_a_parent_of_another_kind_has_the_knobs_that_both_have_but_for_the_direction(translator):
    ancestor = translator.but(**{START: MASKED, PARTS: ALL}).ancestor()
    assert isinstance(ancestor.model, Transformer)
    for name in Transformer.model_fields:
        if name not in ("kind", "direction"):
            assert getattr(ancestor.model, name) == getattr(translator.model, name), name
    assert ancestor.model.direction == "both"


def test_what_a_description_repeats_is_no_part_of_the_identity_and_what_it_changes_is(translator):
    system = translator.but(**{START: MASKED, PARTS: ALL})
    spelt = translator.but(**{START: MASKED | {"model.hidden_size": 16, "model.direction": "both"}, PARTS: ALL})
    assert identity(system.essence()) == identity(spelt.essence())
    assert system.resolved().resolved().essence() == system.essence()
    one_way = {"objectives.mlm": None, "objectives.lm": {"direction": "left_to_right"}, "format.languages": "apart"}
    causal = translator.but(**{START: MASKED | one_way | {"model.direction": "left_to_right"}, PARTS: ALL})
    others = [causal, system.but(**{PARTS: {"words": "words"}}), system.but(**{START: MASKED | {"training.steps": 6}})]
    assert len({identity(each.essence()) for each in (system, translator, *others)}) == 5
    assert causal.ancestor().model.direction == "left_to_right"
    assert System.read(causal.resolved().to_dict()).ancestor().essence() == causal.ancestor().essence()


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.tokenizer.vocab_size": 300}, r"start\.data\.tokenizer\.vocab_size: must be as here"),
        ({"model.hidden_size": 32}, r"start\.model\.hidden_size: is 32 and must be 16 as here, where .* from its"),
        ({"model.num_heads": 4}, r"start\.model\.num_heads: is 4 and must be 2"),
        ({"model.num_layers": 3}, r"start\.model\.num_layers: is 3 and must be 2"),
        ({"model.norm": "pre"}, r"start\.model\.norm: is 'pre' and must be 'post'"),
        ({"model.activation": "gelu"}, r"start\.model\.activation: is 'gelu' and must be 'relu'"),
        ({"model.embedding_scale": True}, r"start\.model\.embedding_scale: is True and must be False"),
        ({"model.languages": ["de", "en"]}, r"start\.model\.languages: is \('de', 'en'\) and must be \(\)"),
        ({"model.positions": "rotary"}, r"start_parts: 'positions' is no part of the model in training\.start"),
        ({"model.direction": "two_way"}, r"start_parts: 'layers' is no part of the model in training\.start"),
        ({"objectives.mlm.activation": "relu"}, r"start\.objectives\.mlm\.activation: is 'relu' and must be 'gelu'"),
        (
            {"model.kind": "lstm", "format.languages": "apart"},
            r"start\.model\.kind: is lstm, and training\.start_parts names parts of the kinds",
        ),
    ],
)
def test_a_parent_that_does_not_fit_is_refused_by_name(translator, changes, message):
    with pytest.raises(ConfigError, match=message):
        translator.but(**{START: MASKED | changes, PARTS: ALL})


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"encodr": "layers"}, r"'encodr' is no part of the model\. Did you mean 'encoder'"),
        ({"encoder": "layer"}, r"'layer' is no part of the model in training\.start\. Did you mean 'layers'"),
        ({"source_words": "words"}, r"'source_words' is no part of the model\. Allowed: decoder, encoder"),
        ({"source_attention": "layers"}, r"start_parts\.source_attention: consists of other weights than layers"),
        ({"words": "positions"}, r"start_parts\.words: consists of other weights than positions"),
    ],
)
def test_a_part_that_does_not_exist_or_fit_is_refused_by_name(translator, chosen, message):
    with pytest.raises(ConfigError, match=message):
        translator.but(**{START: MASKED, PARTS: chosen})


def test_a_parent_that_reads_no_second_language_is_refused(translator):
    (corpus,) = translator.data.corpora
    english = corpus.replace("en-de", "en")
    same_pieces = {"data.tokenizer.corpora": [corpus]}
    alone = MASKED | {"data.corpora": [english], "format.languages": "apart"}
    with pytest.raises(ConfigError, match=r"start\.data\.corpora: is in en, and what is translated is in en and de"):
        translator.but(**{**same_pieces, START: alone, PARTS: ALL})
    both = alone | {"data.corpora": [english, corpus.replace("en-de", "de")]}
    assert translator.but(**{**same_pieces, START: both, PARTS: ALL}).trunks


def test_a_start_of_another_kind_is_refused_with_the_knob_that_names_its_parts(translator):
    with pytest.raises(
        ConfigError, match=r"must be 'encoder_decoder' as here: .* Or name parts of it in training\.start_p"
    ):
        translator.but(**{START: MASKED})


def test_maps_without_a_start_or_with_chosen_layers_are_refused(translator):
    with pytest.raises(ConfigError, match="start_parts names parts of another model, and start is empty"):
        translator.but(**{PARTS: ALL})
    with pytest.raises(ConfigError, match=r"start_layers chooses layers .* set start_layers to \[\]"):
        translator.but(**{START: MASKED, PARTS: ALL, "training.start_layers": [0]})
    lstm = SYSTEMS["attention_lstm"].but(**{START: {"training.steps": 3}})
    with pytest.raises(ConfigError, match=r"model\.kind: is lstm_encoder_decoder"):
        lstm.but(**{PARTS: {"words": "words"}})


def test_a_file_that_lacks_a_weight_is_refused_by_its_name(translator, tmp_path):
    system = translator.but(**{START: MASKED, PARTS: ALL})
    weights = system.ancestor().build(0).state_dict()
    weights.pop("backbone.blocks.1.ffn.norm.weight")
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(ConfigError, match=r"encoder\.blocks\.1\.ffn\.norm\.weight: the weights .* lack it"):
        fit(system, 0, tmp_path / "child", start=tmp_path / WEIGHTS)
