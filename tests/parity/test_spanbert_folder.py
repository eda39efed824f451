"""A folder of SpanBERT (Joshi et al. 2020) is one of BERT: an encoder, a pooler that nothing trained, cased pieces.

The released folders have no masked-LM head and no head of the span boundary objective; every segment is of type 0.
"""

import json

import pytest
import torch
import transformers
from transformers import AutoTokenizer, BertModel

from lightning_modules import interop
from lightning_modules.batch import Example
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_tokens

WORDS = ["the", "The", "cat", "un", "##aff", "##able", "caf", "##é", ",", "?", "##t"]
PIECES = ["[PAD]", *(f"[unused{n}]" for n in range(1, 100)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
# what the released config.json says beside the sizes
RELEASED = {
    "directionality": "bidi", "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform", "type_vocab_size": 2,
}  # fmt: skip
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 26, "initializer_range": 0.3}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Tiny random weights in the form of the released folders."""
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(PIECES), **SIZES)
    BertModel(config).save_pretrained(tmp_path / "spanbert")
    path = tmp_path / "spanbert" / "config.json"
    kept = {key: json.loads(path.read_text())[key] for key in ("model_type", "vocab_size", *SIZES)}
    path.write_text(json.dumps(kept | RELEASED))
    (tmp_path / "spanbert" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (tmp_path / "spanbert" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return tmp_path / "spanbert"


@torch.no_grad()
def states(checkpoint, tokens):
    """Last states and the pooled vector."""
    module = checkpoint.build().eval()
    last = module(Example.of(tokens)).last
    return last, torch.tanh(module.heads["sentence"]["pair"].pooler(last[:, 0]))


def tokens_of_one_type():
    tokens = make_tokens(rows=4, length=20, vocab_size=len(PIECES), padding=5)
    tokens.tables["segment"][:] = 0
    tokens.ids[~tokens.real] = 0
    return tokens


def test_numbers_are_equal_both_ways(folder, tmp_path):
    checkpoint, tokens = interop.read(folder), tokens_of_one_type()
    assert checkpoint.family.name == "bert"
    assert checkpoint.notes == ("it has no masked-LM head", "it has no classifier of segment pairs")
    interop.write(checkpoint, tmp_path / "ours")
    last, pooled = states(checkpoint, tokens)
    for place in (folder, tmp_path / "ours"):
        theirs, told = BertModel.from_pretrained(place, output_loading_info=True)
        assert not told["missing_keys"] | told["unexpected_keys"]
        with torch.no_grad():
            expected = theirs.eval()(input_ids=tokens.ids, attention_mask=tokens.real.long())
        assert (last - expected.last_hidden_state)[tokens.real].abs().max() <= 1e-5
        assert (pooled - expected.pooler_output).abs().max() <= 1e-5
    again = interop.read(tmp_path / "ours")
    assert again.weights.keys() == checkpoint.weights.keys()
    assert all(torch.equal(again.weights[name], tensor) for name, tensor in checkpoint.weights.items())


def test_a_folder_without_a_pooler_is_read_and_written(folder, tmp_path):
    BertModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(tmp_path / "bare")
    checkpoint = interop.read(tmp_path / "bare")
    assert checkpoint.notes == ("it has no masked-LM head", "it has no pooler", "it has no classifier of segment pairs")
    assert not [name for name in checkpoint.weights if name.startswith("heads.")]
    interop.write(checkpoint, tmp_path / "ours")
    _, told = BertModel.from_pretrained(tmp_path / "ours", add_pooling_layer=False, output_loading_info=True)
    assert not told["missing_keys"] | told["unexpected_keys"]


def test_cased_pieces_are_those_of_transformers(folder):
    own, theirs = interop.own_encoder(folder, "bert", len(PIECES)), AutoTokenizer.from_pretrained(folder)
    for text in ("The cat, the unaffable café?", "THE cat"):
        assert own([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    assert own.vocabulary.pieces[own(["The"])[0][0]] == "The"


def test_a_head_that_transformers_lacks_is_left_out_and_named(tmp_path):
    """As that of the span boundary objective: its weights have no place in BERT's classes."""
    system = SYSTEMS["bert_base"].but(
        **{"model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "data.tokenizer.vocab_size": 70}
        | {"objectives.sentence": None, "format.kind": "full_sentences"}
    )
    weights = system.build(0).state_dict() | {"heads.boundary.transform.dense.weight": torch.ones(2, 2)}
    checkpoint = interop.of_run(system, weights)
    assert checkpoint.notes == ("left out, because transformers has no such head: boundary",)
    interop.write(checkpoint, tmp_path / "out")
    back = interop.read(tmp_path / "out")
    assert back.weights.keys() == weights.keys() - {"heads.boundary.transform.dense.weight"}
