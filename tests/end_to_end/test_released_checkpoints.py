"""Checkpoints that transformers has saved, under grids of fine-tunings: one row each, the same numbers."""

import json

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from typer.testing import CliRunner

from ablations.commands.checkpoints import exported
from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.pages.publishing import publish
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules import checkpoints, interop
from lightning_modules.batch import Example, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun
from lightning_modules.training.weights import load_weights
from tests.depth import some

LETTERS = tokenizers.pre_tokenizers.ByteLevel.alphabet()
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 32}
FEW = {"finetuning.head_pruning.share": 3, "recipe": 2}  # values of an axis
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def folder_of(family, place):
    """A checkpoint of random weights and single letters, as transformers and tokenizers save it."""
    place.mkdir()
    if family == "bert":
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
        (place / "vocab.txt").write_text("\n".join(pieces) + "\n")
    elif family == "roberta":
        pieces = [*SPECIALS, *LETTERS]
        (place / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
        (place / "merges.txt").write_text("#version: 0.2\n")
    else:
        pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁", *LETTERS]
        unigram = tokenizers.models.Unigram([(piece, -1.0) for piece in pieces], 1)
        fast = tokenizers.Tokenizer(unigram)
        fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        fast.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, vocab_size=len(pieces), max_position_embeddings=80, **SIZES)
    transformers.AutoModel.from_config(config).save_pretrained(place)
    return place


@pytest.fixture
def named(tmp_path, monkeypatch):
    """The names of three checkpoints, given by the command."""
    ours = checkpoints.files()
    monkeypatch.setattr(checkpoints, "files", lambda: [*ours, tmp_path / "checkpoints.yaml"])
    monkeypatch.setenv(checkpoints.HOME, str(tmp_path))
    names = ["bert", "roberta", "albert"]
    for family in names:
        words = ["data", "add-checkpoint", str(folder_of(family, tmp_path / family))]
        assert CliRunner().invoke(app, words).exit_code == 0
        assert checkpoints.known()[family].folder == family, "below the folder that the variable names"
    return names


def planned(grid, name, records, **knobs):
    """By day of a part of its cells."""
    chosen = {"checkpoint": name, "finetuning.max_length": 16, "finetuning.train_examples": 64, **knobs}
    read = grids.read(grid)
    filters = {axis: some(read.axes[axis], few) for axis, few in FEW.items() if axis in read.axes}
    return plan(read, "smoke", seeds=2, records=records, set=chosen, filters=filters)


def test_three_families_go_under_grids_by_a_row_each(named, tmp_path):
    """All seeds have one parent, whose weights are those of the folder; a fine-tuned one goes back to transformers."""
    records = Records(tmp_path / "results")
    for name, asked in zip(named, (("head_pruning", "fine_tuning_stability"), *2 * [("head_pruning",)]), strict=True):
        for grid in asked:
            found = planned(grid, name, records)
            assert execute(found, records, "inline").outcomes.keys() == {"done"}, (name, grid)
            parents = [run for run in found.runs if run.kind == "checkpoint"]
            assert len(parents) == 1, "it has no seed"
            (records.folder / "bars").mkdir(exist_ok=True)  # of other grids, which ask for held-out words
            page = next(path for path in publish(grid, found, records).values() if path.name == "README.md")
            assert f"**Holds for** {name} (2 layers of 16" in page.read_text()
        released, kept = interop.read(tmp_path / name), load_weights(records.weights(parents[0].id))
        assert records.get(parents[0].id).cost["parameters"] == sum(w.numel() for w in released.weights.values())
        assert all(torch.equal(kept[key], tensor) for key, tensor in released.weights.items())
        tuned = next(run for run in found.runs if run.task)
        exported(tuned.id, tmp_path / f"{name}-tuned", records.folder)
        assert_as_ours(tuned, load_weights(records.weights(tuned.id)), tmp_path / f"{name}-tuned")


def assert_as_ours(run, weights, folder):
    """What transformers computes from a fine-tuned model is what ours does."""
    checkpoint = interop.read(folder)
    encoder = interop.own_encoder(folder, checkpoint.family.name, checkpoint.system.data.tokenizer.vocab_size)
    pieces = encoder.vocabulary
    ids = torch.tensor([[pieces.cls, *encoder(["a text of words"])[0].tolist(), pieces.sep]])
    backbone, _ = run.system.networks()
    backbone.load_state_dict({key[9:]: value for key, value in weights.items() if key.startswith("backbone.")})
    special, numbers = np.zeros(ids.shape, bool), ids.numpy()
    tokens = Tokens.of(numbers, special, ~special, np.arange(1), {"segment": 0 * numbers})
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(folder).eval()(ids).last_hidden_state
        own = backbone.eval()(Example.of(tokens)).last
    assert (own - theirs).abs().max() <= 1e-5


def test_what_a_checkpoint_cannot_be_asked_is_refused_by_name(named, tmp_path, monkeypatch):
    records = Records(tmp_path / "results")
    cases = {
        "there is no checkpoint 'brt'. Did you mean 'bert'": lambda: planned("head_pruning", "brt", records),
        "model.num_layers: 2 comes with the checkpoint bert": lambda: planned(
            "head_pruning", "bert", records, **{"model.num_layers": 4}
        ),
        "objectives.mlm.masking.rate": lambda: planned("masking_ratio", "bert", records),
        "there is no task": lambda: planned("model_depth", "bert", records),
    }
    wrong = []
    for said, ask in cases.items():
        try:
            ask()
            wrong.append(f"{said}: not refused")
        except ConfigError as error:
            wrong += [] if said in str(error) else [f"{said}: {error}"]
    assert not wrong
    found = planned("head_pruning", "bert", records)
    (tmp_path / "bert" / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(ConfigError, match=r"vocab.txt in .* is not as its row"):
        execute(found, records, "inline")
    monkeypatch.setenv(checkpoints.HOME, str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="there is no bert in ABLATIONS_CHECKPOINTS"):
        execute(found, records, "inline")
    assert planned("head_pruning", "bert", records).counts == found.counts, "a plan needs no file"


def test_the_files_of_a_checkpoint_are_part_of_what_a_run_is(named, tmp_path):
    before = planned("head_pruning", "bert", None)
    rows = tmp_path / "checkpoints.yaml"
    rows.write_text(rows.read_text().replace(checkpoints.known()["bert"].digests["vocab.txt"], "f" * 64))
    after = planned("head_pruning", "bert", None)
    assert not {run.id for run in before.runs} & {run.id for run in after.runs}


def test_a_student_is_cut_out_of_a_checkpoint_and_taught_by_all_of_it(named, tmp_path):
    records = Records(tmp_path / "results")
    teacher = {"finetuning.layers_kept": None}
    cut = {"finetuning.layers_kept": [1], "finetuning.distillation.weight": 0.5}
    found = planned("fine_tuning_stability", "bert", records, **cut, **{"finetuning.distillation.teacher": teacher})
    student = next(run for run in found.runs if run.finetuning and run.finetuning.taught)
    assert student.by_role["teacher"].finetuning.layers_kept is None
    assert execute(found, records, "inline").outcomes.keys() == {"done"}
    weights = {role: load_weights(records.weights(parent.id)) for role, parent in student.by_role.items()}
    parts = FinetuningRun(
        student.system, student.task, student.finetuning, 0, records.weights(student.by_role["start"].id)
    )
    backbone, _ = parts.networks()
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, weights["start"][f"backbone.{name.replace('blocks.0.', 'blocks.1.')}"]), name
    counts = {run.id: records.get(run.id).cost["flops"] for run in (student, student.by_role["teacher"])}
    assert len(set(counts.values())) == 2
    with pytest.raises(ConfigError, match="has 2, and the model has the layers 0 to 1"):
        planned("fine_tuning_stability", "bert", records, **{"finetuning.layers_kept": [0, 2]})
