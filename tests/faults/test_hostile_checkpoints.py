"""Checkpoints that are damaged, of another kind or malicious: refused with a message, and nothing in them is run."""

import json
import os
import pickle
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightning_modules import interop
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests.messages import naming

SHAPE = {"model.num_layers": 2, "model.hidden_size": 16, "model.num_heads": 2, "model.max_positions": 24,
         "format.sequence_length": 24, "data.tokenizer.vocab_size": 64}  # fmt: skip
WORDS, WEIGHTS = "bert.embeddings.word_embeddings.weight", "model.safetensors"


@pytest.fixture(scope="module")
def sound(tmp_path_factory, text_file):
    """Folders of sound checkpoints, by family."""
    folders, shape = {}, SHAPE | {"data.corpora": [f"text:{text_file}"]}
    for family, base in (
        ("bert", "bert_base"),
        ("roberta", "roberta_base"),
        ("albert", "albert_base"),
        ("gpt2", "gpt2"),
    ):
        system = SYSTEMS[base].but(**shape | ({"model.embedding_size": 8} if family == "albert" else {}))
        folders[family] = tmp_path_factory.mktemp(family) / "checkpoint"
        interop.write(interop.of_run(system, system.build(0).state_dict()), folders[family])
    return folders


@pytest.fixture
def folder(sound, tmp_path):
    """A copy of the BERT to be spoilt."""
    return shutil.copytree(sound["bert"], tmp_path / "copy")


def configured(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def reweighted(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS)


class Malicious:
    """A pickle that leaves a file when it is opened."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


class TestLinks:
    @pytest.mark.parametrize("name", ["config.json", WEIGHTS])
    def test_a_file_that_is_linked_out_of_the_folder(self, folder, tmp_path, name):
        shutil.move(folder / name, tmp_path / "elsewhere")
        (folder / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ConfigError, match=rf"{re.escape(name)}.* is a link out of"):
            interop.read(folder)

    def test_the_cache_of_the_hub_links_its_snapshots_to_its_blobs(self, folder, tmp_path):
        snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
        snapshot.mkdir(parents=True)
        for path in shutil.copytree(folder, tmp_path / "models--a--b" / "blobs").iterdir():
            (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
        (tmp_path / "linked").symlink_to(snapshot)
        for place in (snapshot, tmp_path / "linked"):
            assert interop.read(place).family.name == "bert"
            assert interop.fingerprint(place) == interop.fingerprint(folder)
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to(folder / "config.json")
        with pytest.raises(ConfigError, match="is a link out of"):
            interop.read(snapshot)


class TestPickles:
    @pytest.fixture
    def mark(self, tmp_path):
        """What a pickle that was opened leaves."""
        path = tmp_path / "executed"
        yield path
        assert not path.exists()

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "pytorch_model.bin.index.json"])
    def test_a_folder_with_a_pickle_alone(self, folder, mark, name):
        (folder / WEIGHTS).unlink()
        (folder / name).write_bytes(pickle.dumps(Malicious(mark)))
        with pytest.raises(ConfigError, match=rf"has no model\.safetensors\. {re.escape(name)} is not opened: pickles"):
            interop.read(folder)

    @pytest.mark.parametrize("protocol", range(6))
    def test_a_pickle_under_another_name(self, folder, mark, protocol):
        (folder / WEIGHTS).write_bytes(pickle.dumps(Malicious(mark), protocol=min(protocol, 5)))
        with pytest.raises(ConfigError, match=r"pickle|not in the safetensors format"):
            interop.read(folder)

    def test_an_archive_of_torch_under_another_name(self, folder, mark):
        torch.save({"x": Malicious(mark)}, folder / WEIGHTS)
        with pytest.raises(ConfigError, match="is a pickle or an archive under another name"):
            interop.read(folder)

    def test_a_pickle_beside_the_weights_is_left_alone(self, folder, mark):
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(mark)))
        interop.read(folder)

    def test_code_that_a_configuration_names(self, folder, mark):
        configured(folder, auto_map={"AutoModel": "evil.Model"})
        (folder / "evil.py").write_text(f"import os; os.mkdir({str(mark)!r})")
        with pytest.raises(ConfigError, match=r"auto_map: .* it names custom code, which is never run"):
            interop.read(folder)


@pytest.mark.parametrize("size", [0, 4, 8, 9, 100, 0.5, -1])
def test_a_file_that_is_cut_short(folder, size):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(size * len(data)) if isinstance(size, float) else size])
    with pytest.raises(ConfigError, match=r"model\.safetensors is (damaged or )?cut short"):
        interop.read(folder)


@pytest.mark.parametrize("header", [1 << 62, (1 << 64) - 1, 7])
def test_a_header_that_lies_about_its_length(folder, header):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(header.to_bytes(8, "little") + data[8:])
    with pytest.raises(ConfigError, match="cut short"):
        interop.read(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "t5"},
            "model_type: 't5' is not supported. Allowed: bert, roberta, roberta-prelayernorm, albert",
        ),
        ({"model_type": None}, "model_type: 'None' is not supported"),
        ({"model_type": ["bert"]}, "model_type: .* is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: 'relative_key' is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention: 'True' is not supported. It must be False"),
        ({"is_decoder": True}, "is_decoder: 'True' is not supported"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads: .* is not supported"),
        ({"quantization_config": {"bits": 8}}, "quantization_config: .* is not supported"),
        ({"hidden_act": "silu"}, "hidden_act: 'silu' is not supported. Allowed: gelu, gelu_new, relu"),
        ({"hidden_act": ["gelu"]}, "hidden_act: .* is not supported"),
        ({"vocab_size": 10**15}, "vocab_size: must be a whole number from 1 to 1,048,576"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be a whole number from 1 to 1,000"),
        ({"hidden_size": "16"}, "hidden_size: must be a whole number"),
        ({"max_position_embeddings": -3}, "max_position_embeddings: must be a whole number"),
        ({"pad_token_id": 99}, "pad_token_id: must be a small whole number, not 99"),
        ({"pad_token_id": [0]}, "pad_token_id: must be a small whole number"),
        ({"num_attention_heads": 3}, "hidden_size 16 is not a multiple of num_heads 3"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob: "),
        ({"layer_norm_eps": 0}, "layer_norm_eps: "),
        ({"num_attention_heads": {}}, "num_attention_heads: "),
    ],
)
def test_a_configuration_that_cannot_be_expressed_is_refused_by_name(folder, changes, message):
    configured(folder, **changes)
    with pytest.raises(ConfigError, match=message):
        interop.read(folder)


def test_several_problems_are_said_at_once(folder):
    configured(folder, is_decoder=True, hidden_act="silu", vocab_size=0)
    with pytest.raises(ConfigError) as caught:
        interop.read(folder)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "[" * 100_000, '{"model_type": "bert"', "\x00\xff"])
def test_a_configuration_that_is_none(folder, text):
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json (is not|must hold)"):
        interop.read(folder)


def test_a_missing_configuration(tmp_path):
    with pytest.raises(ConfigError, match=naming("there is no config.json", "save_pretrained")):
        interop.read(tmp_path)


class TestTensors:
    @pytest.mark.parametrize("key", ["vocab_size", "max_position_embeddings", "intermediate_size", "type_vocab_size"])
    def test_shapes_that_the_configuration_contradicts(self, folder, key):
        configured(folder, **{key: 71})
        with pytest.raises(ConfigError, match=r"has the shape \[.*\], but config\.json makes it \[.*71"):
            interop.read(folder)

    def test_a_missing_one_and_a_layer_too_many(self, folder):
        reweighted(folder, lambda weights: weights.pop(WORDS))
        configured(folder, num_hidden_layers=1)
        with pytest.raises(ConfigError, match=f"{WORDS} is missing") as caught:
            interop.read(folder)
        assert "bert.encoder.layer.1.attention.output.dense.bias is a part of an unsupported encoder" in str(
            caught.value
        )
        assert "more tensors are wrong" in str(caught.value)

    def test_an_encoder_with_more_to_it(self, folder):
        name = "bert.encoder.layer.0.crossattention.self.query.weight"
        reweighted(folder, lambda weights: weights.update({name: torch.zeros(16, 16)}))
        with pytest.raises(ConfigError, match=f"{name} is a part of an unsupported encoder"):
            interop.read(folder)

    def test_an_output_table_of_its_own(self, folder):
        name = "cls.predictions.decoder.weight"
        reweighted(folder, lambda weights: weights.update({name: weights[WORDS] + 1}))
        with pytest.raises(ConfigError, match=r"decoder\.weight is not tied"):
            interop.read(folder)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_numbers_that_are_none(self, folder, value):
        reweighted(folder, lambda weights: weights[WORDS].fill_(value))
        with pytest.raises(ConfigError, match="has values that are not finite"):
            interop.read(folder)

    def test_whole_numbers(self, folder):
        reweighted(folder, lambda weights: weights.update({WORDS: weights[WORDS].to(torch.int8)}))
        with pytest.raises(ConfigError, match="is of type I8"):
            interop.read(folder)

    def test_one_under_two_names(self, folder):
        name = WORDS.removeprefix("bert.")
        reweighted(folder, lambda weights: weights.update({name: weights[WORDS].clone()}))
        with pytest.raises(ConfigError, match="twice"):
            interop.read(folder)

    def test_half_a_head(self, folder):
        reweighted(folder, lambda weights: weights.pop("cls.predictions.transform.dense.weight"))
        with pytest.raises(ConfigError, match=r"transform\.dense\.weight is missing"):
            interop.read(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.positions": "sided_linear_bias"}, r"model\.positions: 'sided_linear_bias' .* It must be learned"),
        ({"model.norm": "pre"}, r"model\.norm: 'pre' is not supported in checkpoints of bert\. It must be post"),
        ({"model.sharing": "attention"}, r"model\.sharing: 'attention' .* It must be none or all"),
    ],
)
def test_what_transformers_cannot_express_is_not_written(changes, message):
    with pytest.raises(ConfigError, match=message):
        interop.of_run(SYSTEMS["bert_base"].but(**SHAPE | changes), {})


def test_nothing_is_written_over(sound):
    checkpoint = interop.read(sound["bert"])
    before = {path.name: path.read_bytes() for path in sound["bert"].iterdir()}
    with pytest.raises(ConfigError, match="exists already and is not an empty folder"):
        interop.write(checkpoint, sound["bert"])
    assert before == {path.name: path.read_bytes() for path in sound["bert"].iterdir()}
