"""Folders of GPT-2: numbers equal to transformers' both ways, round trips that lose nothing, refusals by name."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPT2Model, GPT2Tokenizer

from lightning_modules import interop
from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_tokens

VOCAB, END = 70, 69
SMALL = {
    "vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48, "n_positions": 26,
    "initializer_range": 0.3, "layer_norm_epsilon": 1e-3, "resid_pdrop": 0.2, "embd_pdrop": 0.15, "attn_pdrop": 0.3,
    "bos_token_id": END, "eos_token_id": END,
}  # fmt: skip
TEXTS = ["the cat sees a Dog", "don't stop; it's 12 km!", "old birds hear the young ones under red trees"]
MORE = [
    f"{a}{b} {b}{c}ing {c}{a}ed" for a in ("wal", "tal", "par", "lo") for b in ("k", "ms") for c in ("st", "bu", "ve")
]


def theirs_of(cls=GPT2LMHeadModel, **other):
    """A random model, its biases and norms away from 0 and 1, where a mistake would not show."""
    torch.manual_seed(0)
    model = cls(GPT2Config(**SMALL | other)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def assert_equal(checkpoint, theirs):
    """The states of every layer, and the logits of the next token if their model gives them."""
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=5)
    given = {"input_ids": tokens.ids, "attention_mask": tokens.real.long()}
    module, expected = checkpoint.build().eval(), theirs(**given, output_hidden_states=True)
    encoded, real = module(Example.of(tokens)), tokens.real
    pairs = [*zip(encoded.layers[:-1], expected.hidden_states[:-1], strict=True)]
    for ours, wanted in (*pairs, (encoded.last, expected.hidden_states[-1])):
        assert (ours - wanted)[real].abs().max() <= 1e-5
    if "logits" in expected:
        logits = module.heads["lm"]["vocabulary"](encoded.last[real], encoded)
        assert (logits - expected.logits[real]).abs().max() <= 1e-5


@pytest.mark.parametrize("cls", [GPT2LMHeadModel, GPT2Model])
def test_numbers_are_equal_both_ways_and_a_round_trip_loses_nothing(cls, tmp_path):
    theirs = theirs_of(cls)
    theirs.save_pretrained(tmp_path / "theirs")
    first = interop.read(tmp_path / "theirs")
    assert first.family.name == "gpt2"
    assert not first.notes
    assert_equal(first, theirs)

    interop.write(first, tmp_path / "ours")
    again, told = GPT2LMHeadModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    backbone, kept = again.transformer.state_dict(), getattr(theirs, "transformer", theirs).state_dict()
    assert backbone.keys() == kept.keys()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in backbone.items())
    assert_equal(first, again.eval())
    told, was = again.config.to_dict(), theirs.config.to_dict()
    assert {key: told[key] for key in SMALL} == {key: was[key] for key in SMALL}

    second = interop.read(tmp_path / "ours")
    assert second.system.but(name="") == first.system.but(name="")
    assert second.weights.keys() == first.weights.keys()
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in first.weights)


def test_what_a_configuration_omits_is_gpt2s_default(tmp_path):
    theirs_of(n_inner=None).save_pretrained(tmp_path / "wide")
    file = tmp_path / "wide" / "config.json"
    given = json.loads(file.read_text())
    assert given.pop("n_inner") is None
    assert given.pop("layer_norm_epsilon")
    file.write_text(json.dumps(given))
    model = interop.read(tmp_path / "wide").system.model
    assert (model.inner_size, model.norm_eps) == (128, 1e-5)


def test_the_released_files_are_read(tmp_path):
    """They have the backbone's names alone, half precision perhaps, and the causal mask as a tensor."""
    theirs = theirs_of()
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    released = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    for layer in range(3):
        released[f"h.{layer}.attn.bias"] = torch.ones(26, 26).tril()[None, None]
        released[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    released["lm_head.weight"] = released["wte.weight"].clone()
    save_file(released, file)
    assert_equal(interop.read(tmp_path), theirs)
    released["lm_head.weight"][0, 0] += 1
    save_file(released, file)
    with pytest.raises(ConfigError, match=r"lm_head\.weight is not tied"):
        interop.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: 'True' is not supported"),
        ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn: 'True' is not supported"),
        ({"scale_attn_weights": False}, "scale_attn_weights: 'False' is not supported. It must be True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: 'False' is not supported"),
        ({"activation_function": "silu"}, "activation_function: 'silu' is not supported. Allowed: gelu, gelu_new"),
        ({"n_inner": 50}, r"h\.0\.mlp\.c_fc\.weight has the shape \[32, 48\], but config.json makes it \[32, 50\]"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(changes, message, tmp_path):
    theirs_of().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ConfigError, match=message):
        interop.read(tmp_path)


OURS = SYSTEMS["gpt2"].but(
    **{
        "model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.max_positions": 24,
        "model.init_std": 0.3, "format.sequence_length": 24, "data.tokenizer.vocab_size": VOCAB,
    }
)  # fmt: skip


def test_our_own_network_is_loaded_by_transformers_and_generates_from_there(tmp_path):
    checkpoint = interop.of_run(OURS, OURS.build(0).state_dict())
    assert not checkpoint.notes
    interop.write(checkpoint, tmp_path / "out")
    theirs, told = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert isinstance(theirs, GPT2LMHeadModel)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert (theirs.config.eos_token_id, theirs.config.bos_token_id, theirs.config.pad_token_id) == (3, 3, None)
    assert_equal(checkpoint, theirs.eval())
    back = interop.read(tmp_path / "out")
    assert back.system.model.resolved().but(position_init_std=0.01, residual_init="scaled") == OURS.model.resolved()
    assert all(torch.equal(back.weights[name], tensor) for name, tensor in checkpoint.weights.items())
    with torch.no_grad():
        made = theirs.generate(torch.tensor([[7, 8, 9]]), max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert made.shape[1] <= 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.norm": "post"}, r"model\.norm: 'post' is not supported in checkpoints of gpt2\. It must be pre"),
        ({"model.embedding_norm": True}, r"model\.embedding_norm: 'true' is not supported .* false"),
        ({"objectives.lm.transform": "bert"}, r"objectives\.lm\.transform: 'bert' .* It must be none"),
        ({"objectives.lm.bias": True}, r"objectives\.lm\.bias: 'true' is not supported"),
        ({"model.positions": "rotary"}, r"model\.positions: 'rotary' is not supported"),
        ({"model.segment_types": 2}, r"model\.segment_types: '2' is not supported"),
        ({"model.sharing": "all"}, r"model\.sharing: 'all' is not supported"),
    ],
)
def test_what_transformers_cannot_express_is_refused_by_its_knob(changes, message):
    with pytest.raises(ConfigError, match=message):
        interop.of_run(OURS.but(**changes), {})


def test_a_tokenizer_of_gpt2s_two_files_and_of_its_json_gives_transformers_pieces(tmp_path):
    """But for the space that every first word gets here."""
    made = train(Tokenizer(kind="byte_bpe", vocab_size=290, lowercase=False), (TEXTS + MORE) * 40)
    model = json.loads(made.to_str())["model"]
    kept = [piece for piece, number in sorted(model["vocab"].items(), key=lambda item: item[1]) if number >= 5]
    vocabulary = {piece: number for number, piece in enumerate([*kept, "<|endoftext|>"])}
    merges = [tuple(pair) for pair in model["merges"]]
    theirs = GPT2Tokenizer(vocab=vocabulary, merges=merges)
    theirs.save_pretrained(tmp_path / "json")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "two" / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges))
    (tmp_path / "openai").mkdir()
    for name, old in {"encoder.json": "vocab.json", "vocab.bpe": "merges.txt"}.items():
        (tmp_path / "openai" / name).write_bytes((tmp_path / "two" / old).read_bytes())
    interop.copy_tokenizer(tmp_path / "openai", tmp_path / "copy")
    for folder in ("json", "two", "openai", "copy"):
        own = interop.own_encoder(tmp_path / folder, "gpt2", len(vocabulary))
        for text in TEXTS:
            assert own([text])[0].tolist() == theirs(f" {text}")["input_ids"]
            assert own.fast.decode(own([text])[0].tolist()) == f" {text}"
        assert {getattr(own.vocabulary, name) for name in ("pad", "unk", "cls", "sep", "mask")} == {len(vocabulary) - 1}


def test_an_exported_tokenizer_gives_our_pieces_without_a_frame(tmp_path):
    settings, path = Tokenizer(kind="byte_bpe", vocab_size=290, lowercase=False), tmp_path / "tokenizer.json"
    path.write_text(train(settings, (TEXTS + MORE) * 40).to_str())
    system = OURS.but(**{"data.tokenizer": settings})
    interop.write(interop.of_run(system, system.build(0).state_dict()), tmp_path / "out", path)
    fast, ours = AutoTokenizer.from_pretrained(tmp_path / "out"), Encoder(path, "byte_bpe")
    for text in TEXTS:
        assert fast(text)["input_ids"] == ours([text])[0].tolist()
    assert (fast.eos_token_id, fast.bos_token_id, fast.pad_token_id) == (3, 3, 0)
    given = fast(TEXTS[:2], return_tensors="pt", padding=True)
    logits = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")(
        input_ids=given["input_ids"], attention_mask=given["attention_mask"]
    ).logits
    assert logits.isfinite().all()
    own = interop.own_encoder(tmp_path / "out", "gpt2", 290)
    assert own(TEXTS)[0].tolist() == ours(TEXTS)[0].tolist()
    assert (own.vocabulary.sep, own.vocabulary.pad) == (3, 0)
