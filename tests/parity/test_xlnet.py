"""Folders of XLNet: both streams equal to transformers' with and without memory, padding on either side, both ways."""

import dataclasses
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, XLNetConfig, XLNetLMHeadModel, XLNetModel

from lightning_modules import interop
from lightning_modules.batch import Example, Queries, SegmentState, Tokens, Visibility
from lightning_modules.config import ConfigError
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.objectives.plm import visible
from lightning_modules.systems import SYSTEMS
from tests.messages import naming
from tests.parity.test_interop import MORE, TEXTS

VOCAB, ROWS, LENGTH = 70, 3, 12
SMALL = {
    "vocab_size": VOCAB, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48, "initializer_range": 0.3,
    "layer_norm_eps": 1e-3, "dropout": 0.2, "ff_activation": "gelu_new", "mem_len": 8, "pad_token_id": 0,
}  # fmt: skip


def theirs_of(cls=XLNetLMHeadModel, **other):
    """A random model, its biases and norms away from 0 and 1, where a mistake would not show."""
    torch.manual_seed(0)
    model = cls(XLNetConfig(**SMALL | other)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("xlnet")
    theirs_of().save_pretrained(path)
    return path


def rows(side="right", padding=4, seed=1):
    """Ids, what is real and segments; odd rows are padded on a side."""
    noise = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB, (ROWS, LENGTH), generator=noise)
    real = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    real[1::2, LENGTH - padding :] = False
    segments = torch.tensor([0] * 5 + [1] * 2 + [2] + [2] * 4).expand(ROWS, -1).clone()
    segments[0] = torch.tensor([0] * 6 + [1] * 5 + [2])
    if side == "left":
        ids, real, segments = (part.flip(1) for part in (ids, real, segments))
    return ids.masked_fill(~real, 0), real, segments


def permuted(ids, real, segments):
    """The rows in random orders of a few targets: ours, and what theirs takes."""
    noise = torch.Generator().manual_seed(2)
    order = torch.full_like(ids, -1)
    chosen = torch.zeros_like(real)
    for row in range(ROWS):
        (column,) = real[row].nonzero(as_tuple=True)
        some = column[torch.randperm(len(column), generator=noise)[:4]]
        order[row, some] = torch.arange(4)
        chosen[row, some] = True
    seen = visible(order)
    where = chosen.flatten().nonzero()[:, 0].view(ROWS, 4)
    column = where % LENGTH
    by_query = seen.gather(1, column[:, :, None].expand(-1, -1, LENGTH))
    tokens = Tokens(ids, ~real, real, torch.arange(ROWS), {"segment": segments})
    pairs = (seen | torch.eye(LENGTH, dtype=torch.bool))[:, None]
    ours = Example(tokens, Visibility(real=real, pairs=pairs), queries=Queries(where, by_query))
    mapping = torch.nn.functional.one_hot(column, LENGTH).float()
    return ours, {"perm_mask": (~seen).float(), "target_mapping": mapping}


def plain(ids, real, segments):
    return Example(Tokens(ids, ~real, real, torch.arange(ROWS), {"segment": segments}), Visibility(real=real))


def given(ids, real, segments):
    return {"input_ids": ids, "attention_mask": real.float(), "token_type_ids": segments}


@torch.no_grad()
def assert_equal(module, theirs, side="right"):
    """All states of both streams and the logits, of rows by themselves and of rows that follow others."""
    ids, real, segments = rows(side)
    expected = theirs(**given(ids, real, segments), output_hidden_states=True)
    encoded = module.backbone(plain(ids, real, segments))
    assert len(expected.hidden_states) == len(encoded.layers)
    for ours, wanted in zip(encoded.layers, expected.hidden_states, strict=True):
        assert (ours - wanted)[real].abs().max() <= 1e-5
    ours, more = permuted(ids, real, segments)
    encoded, wanted = module.backbone(ours), theirs(**given(ids, real, segments), **more, output_hidden_states=True)
    assert (encoded.queries - wanted.hidden_states[-1]).abs().max() <= 1e-5
    assert (encoded.last - wanted.hidden_states[-2])[real].abs().max() <= 1e-5
    if "logits" in wanted:
        logits = module.heads["plm"]["vocabulary"](encoded.queries.flatten(0, 1), encoded)
        assert (logits - wanted.logits.flatten(0, 1)).abs().max() <= 1e-5


@pytest.mark.parametrize("cls", [XLNetLMHeadModel, XLNetModel])
def test_numbers_are_equal_both_ways_and_a_round_trip_loses_nothing(cls, tmp_path):
    theirs = theirs_of(cls)
    theirs.save_pretrained(tmp_path / "theirs")
    first = interop.read(tmp_path / "theirs")
    assert first.family.name == "xlnet"
    assert first.notes == (() if cls is XLNetLMHeadModel else ("it has no permutation-LM head",))
    for side in ("right", "left"):
        assert_equal(first.build().eval(), theirs, side)

    interop.write(first, tmp_path / "ours")
    again, told = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    kept = theirs.state_dict()
    assert again.state_dict().keys() == kept.keys()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in again.state_dict().items())
    told, was = again.config.to_dict(), theirs.config.to_dict()
    assert {key: told[key] for key in SMALL if key != "mem_len"} == {k: was[k] for k in SMALL if k != "mem_len"}

    second = interop.read(tmp_path / "ours")
    assert second.system.but(name="") == first.system.but(name="")
    assert second.weights.keys() == first.weights.keys()
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in first.weights)


@pytest.mark.parametrize("reuse", [None, 256])
def test_the_length_of_a_memory_is_written_and_no_weight_depends_on_it(folder, tmp_path, reuse):
    stream = {"format.kind": "stream", "format.frame": "none", "model.memory_length": 8, "format.reuse_length": reuse}
    read = interop.read(folder)
    interop.write(dataclasses.replace(read, system=read.system.but(**stream)), tmp_path)
    config = XLNetModel.from_pretrained(tmp_path).config
    assert (config.mem_len, config.reuse_len) == (8, reuse)
    assert interop.read(tmp_path).system.model == read.system.model
    assert interop.read(tmp_path).weights.keys() == read.weights.keys()


def test_its_one_rate_of_dropout_is_that_of_the_layers_and_others_are_told(folder, tmp_path):
    read = interop.read(folder)
    other = {"model.dropout": 0.3, "model.attention_dropout": 0.1, "model.embedding_dropout": 0.3}
    system = read.system.but(**other)
    assert read.family.differences(system) == ["the dropout of attention weights is 0.1 here and 0.3 there"]
    interop.write(dataclasses.replace(read, system=system), tmp_path)
    assert XLNetModel.from_pretrained(tmp_path).config.dropout == 0.3


@torch.no_grad()
@pytest.mark.parametrize("memory", [8, 20])
def test_what_is_remembered_is_the_same(folder, memory):
    """Three segments one after the other, each with targets. Theirs hides nothing in memory, so nothing is padded."""
    theirs = theirs_of(mem_len=memory)
    backbone = interop.read(folder).build().eval().backbone
    backbone.memory_length = memory
    carry, mems = backbone.begin(ROWS), None
    for seed in (1, 2, 3):
        ids, real, segments = rows(padding=0, seed=seed)
        ours, more = permuted(ids, real, segments)
        encoded = backbone(ours, carry)
        wanted = theirs(**given(ids, real, segments), **more, mems=mems, output_hidden_states=True)
        assert (encoded.queries - wanted.hidden_states[-1]).abs().max() <= 1e-5
        assert (encoded.last - wanted.hidden_states[-2]).abs().max() <= 1e-5
        carry, mems = encoded.carry, wanted.mems
    for ours, layer in zip(carry.layers, mems, strict=True):
        assert (ours - layer.transpose(0, 1)).abs().max() <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("reuse", [None, 5])
def test_rows_that_follow_others_may_be_padded_on_either_side(folder, side, reuse):
    """Two full segments, then one with padding. What theirs remembers of padding is not hidden, so none follows."""
    theirs = theirs_of(mem_len=20, reuse_len=reuse)
    backbone = interop.read(folder).build().eval().backbone
    backbone.memory_length = 20
    carry, mems = backbone.begin(ROWS), None
    for seed, padding in ((1, 0), (2, 0), (3, 4)):
        ids, real, segments = rows(side, padding, seed)
        ours, more = permuted(ids, real, segments)
        ours.inputs.segment_state = SegmentState(reuse=reuse)
        encoded = backbone(ours, carry)
        wanted = theirs(**given(ids, real, segments), **more, mems=mems, output_hidden_states=True)
        assert (encoded.queries - wanted.hidden_states[-1]).abs().max() <= 1e-5
        assert (encoded.last - wanted.hidden_states[-2])[real].abs().max() <= 1e-5
        carry, mems = encoded.carry, wanted.mems


def test_what_a_configuration_omits_is_xlnets_default(tmp_path):
    theirs_of(ff_activation="gelu").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    told = json.loads(file.read_text())
    del told["ff_activation"], told["layer_norm_eps"]
    file.write_text(json.dumps(told))
    model = interop.read(tmp_path).system.model
    assert (model.activation, model.norm_eps) == ("gelu", 1e-12)


def test_an_output_layer_of_its_own_is_refused(tmp_path):
    theirs_of().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["lm_loss.weight"] = weights["transformer.word_embedding.weight"].clone()
    save_file(weights, file)
    assert interop.read(tmp_path).weights
    weights["lm_loss.weight"][0, 0] += 1
    save_file(weights, file)
    with pytest.raises(ConfigError, match=r"lm_loss\.weight is not tied"):
        interop.read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("attn_type", "uni"), ("clamp_len", 10), ("bi_data", True), ("same_length", True),
                       ("untie_r", False), ("ff_activation", "swish")],
)  # fmt: skip
def test_what_our_network_does_not_have_is_refused_by_its_key(folder, tmp_path, key, value):
    told = json.loads((folder / "config.json").read_text()) | {key: value}
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ConfigError, match=naming(key, str(value))):
        interop.read(tmp_path)


def test_a_weight_of_another_shape_is_named(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    weights["transformer.layer.1.rel_attn.q"] = weights["transformer.layer.1.rel_attn.q"].flatten(1)
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ConfigError, match=naming("layer.1.rel_attn.q", "[32, 32]", "[32, 4, 8]")):
        interop.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.segment_relation": False}, ("model.segment_relation", "true")),
        ({"model.positions": "rotary", "model.query_biases": "shared"}, ("model.positions", "relative")),
        ({"objectives.plm.transform": "bert"}, ("objectives.plm.transform", "none")),
        ({"model.clamp_length": 9}, ("model.clamp_length", "0")),
    ],
)
def test_a_run_that_is_no_xlnet_is_refused_by_its_knobs(changes, words):
    small = SYSTEMS["xlnet_base"].but(**{"model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2})
    with pytest.raises(ConfigError, match=naming(*words)):
        interop.of_run(small.but(**changes), {})


def test_a_run_is_exported_with_its_tokenizer(tmp_path):
    """[CLS] is last, padding stands on the left, and segments are numbered as here."""
    settings = Tokenizer(kind="unigram", vocab_size=64, lowercase=False)
    path = tmp_path / "tokenizer.json"
    path.write_text(train(settings, (TEXTS + MORE) * 40).to_str())
    system = SYSTEMS["xlnet_base"].but(
        **{"model.num_layers": 2, "model.hidden_size": 16, "model.num_heads": 2, "data.tokenizer.vocab_size": 64}
    )
    module = system.build(0).eval()
    interop.write(interop.of_run(system, module.state_dict()), tmp_path / "folder", path)
    theirs = XLNetLMHeadModel.from_pretrained(tmp_path / "folder").eval()
    told = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert isinstance(told, transformers.PreTrainedTokenizerBase)
    both = told([("the cat", "a Dog"), ("old", "birds hear the young ones")], padding=True, return_tensors="pt")
    assert (both["input_ids"][:, -1] == 2).all()
    assert (both["token_type_ids"][:, -1] == 2).all()
    assert not both["attention_mask"][0, 0]
    ids, real, segments = both["input_ids"], both["attention_mask"].bool(), both["token_type_ids"]
    with torch.no_grad():
        ours = module.backbone(
            Example(Tokens(ids, ~real, real, torch.arange(2), {"segment": segments}), Visibility(real=real))
        )
        wanted = theirs.transformer(**both).last_hidden_state
    assert (ours.last - wanted)[real].abs().max() <= 1e-5
