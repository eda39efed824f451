"""Folders of five families: numbers equal to transformers' both ways, and round trips that lose nothing."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from ablations.core.store import Records
from ablations.inspection.ask import Asked
from ablations.inspection.models import opened
from lightning_modules import interop
from lightning_modules.batch import Example
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.finetuning.head_pruning import Heads
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_tokens

VOCAB, PAD = 70, {"bert": 0, "distilbert": 0, "roberta": 1, "roberta-prelayernorm": 1, "albert": 0}
SMALL = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 26, "initializer_range": 0.3, "layer_norm_eps": 1e-3, "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
}  # fmt: skip
OTHER = {
    "bert": {"hidden_act": "relu"},
    "distilbert": {
        "dim": 32,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 48,
        "dropout": 0.2,
        "attention_dropout": 0.3,
        "activation": "relu",
    },
    "roberta-prelayernorm": {"type_vocab_size": 1, "hidden_act": "relu"},
    "roberta": {"type_vocab_size": 1, "hidden_act": "gelu_new"},
    "albert": {"embedding_size": 12, "num_hidden_groups": 2, "hidden_act": "gelu_new"},
}
CLASSES = [
    "BertForPreTraining", "BertForMaskedLM", "BertModel", "RobertaForMaskedLM", "RobertaModel", "AlbertForPreTraining",
    "AlbertForMaskedLM", "AlbertModel", "RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNormModel",
    "DistilBertForMaskedLM", "DistilBertModel",
]  # fmt: skip


def theirs_of(cls, **other):
    """A random model of a class, its biases and norms away from 0 and 1, where a mistake would not show."""
    family = next(name for name in OTHER if cls.lower().startswith(name.replace("-", "")))
    config = getattr(transformers, cls).config_class
    torch.manual_seed(0)
    model = getattr(transformers, cls)(config(**{**SMALL, **OTHER[family], **other})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return family, model


def batch(family):
    """Two segments, and padding in every odd row, with the family's own number."""
    tokens = make_tokens(rows=4, length=20, vocab_size=VOCAB, padding=5)
    tokens.tables["segment"][:, 11:] = 1
    tokens.ids[~tokens.real] = PAD[family]
    types = tokens.tables["segment"] * (not family.startswith("roberta"))
    given = {"input_ids": tokens.ids, "attention_mask": tokens.real.long()}
    return tokens, given if family == "distilbert" else given | {"token_type_ids": types}


@torch.no_grad()
def assert_equal(checkpoint, theirs, family):
    """Last states, pooled vector, masked-LM logits and answers about pairs, as far as their model gives them."""
    tokens, given = batch(family)
    module, expected = checkpoint.build().eval(), theirs(**given, output_hidden_states=True)
    encoded, real = module(Example.of(tokens)), tokens.real
    inner = slice(1, -1)  # the last states have the last norm where norms come first
    pairs = [*zip(encoded.layers[inner], expected.hidden_states[inner], strict=True)]
    pairs.append((encoded.last, expected.hidden_states[-1]))
    for ours, wanted in pairs:
        assert (ours - wanted)[real].abs().max() <= 1e-5
    logits = expected.get("prediction_logits", expected.get("logits"))
    if logits is not None:
        head = module.heads["mlm"]["vocabulary"]
        assert (head(encoded.last[real], encoded) - logits[real]).abs().max() <= 1e-5
    answers = expected.get("seq_relationship_logits", expected.get("sop_logits"))
    if answers is not None:
        assert (module.heads["sentence"]["pair"](encoded.last[:, 0]) - answers).abs().max() <= 1e-5
    if expected.get("pooler_output") is not None:
        pooled = torch.tanh(module.heads["sentence"]["pair"].pooler(encoded.last[:, 0]))
        assert (pooled - expected.pooler_output).abs().max() <= 1e-5


def loaded(cls, folder):
    """What transformers loads, nothing missing or left over."""
    model, told = cls.from_pretrained(folder, output_loading_info=True)
    assert not told["mismatched_keys"]
    return model.eval(), told


@pytest.mark.parametrize("cls", CLASSES)
def test_numbers_are_equal_both_ways_and_a_round_trip_loses_nothing(cls, tmp_path):
    family, theirs = theirs_of(cls)
    theirs.save_pretrained(tmp_path / "theirs")
    first = interop.read(tmp_path / "theirs")
    assert first.family.name == family
    assert_equal(first, theirs, family)

    interop.write(first, tmp_path / "ours")
    again, told = loaded(getattr(transformers, cls), tmp_path / "ours")
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == [cls]
    kept, unread = theirs.state_dict(), "position_embeddings" if family.startswith("roberta") else None
    for name, tensor in again.state_dict().items():
        skipped = PAD[family] + 1 if unread and unread in name and "ids" not in name else 0
        assert torch.equal(tensor[skipped:] if skipped else tensor, kept[name][skipped:] if skipped else kept[name])
    assert_equal(first, again, family)

    second = interop.read(tmp_path / "ours")
    assert second.system.but(name="") == first.system.but(name="")
    assert second.weights.keys() == first.weights.keys()
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in first.weights)


def test_what_is_missing_and_left_out_is_said(tmp_path):
    family, theirs = theirs_of("BertForSequenceClassification")
    theirs.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("ForSequenceClassification", "ForAnotherTask"))
    found = interop.read(tmp_path)
    left = "left out: classifier.bias, classifier.weight"
    assert found.notes == ("it has no masked-LM head", "it has no classifier of segment pairs", left)
    assert_equal(found, theirs.bert, family)
    assert found.build(1).state_dict().keys() > found.weights.keys()


def test_all_that_is_read_from_a_configuration_is_a_knob(tmp_path):
    theirs_of("AlbertModel")[1].save_pretrained(tmp_path)
    model = interop.read(tmp_path).system.model
    assert (model.num_layers, model.hidden_size, model.embedding_size, model.sharing_groups) == (3, 32, 12, 2)
    assert (model.num_heads, model.ffn_size, model.max_positions, model.segment_types) == (4, 48, 26, 2)
    assert (model.activation, model.norm_eps, model.init_std) == ("gelu_tanh", 1e-3, 0.3)
    assert (model.embedding_dropout, model.dropout, model.attention_dropout) == (0.2, 0.2, 0.3)
    theirs_of("RobertaModel")[1].save_pretrained(tmp_path / "roberta")
    assert interop.read(tmp_path / "roberta").system.model.max_positions == 24


def test_half_precision_and_old_names_are_read(tmp_path):
    family, theirs = theirs_of("BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
           for n, t in load_file(file).items()}  # fmt: skip
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    old["bert.embeddings.position_ids"] = torch.arange(26)[None]
    save_file(old, file)
    assert_equal(interop.read(tmp_path), theirs, family)
    save_file({n: t.half() for n, t in old.items()}, file)
    assert {t.dtype for t in interop.read(tmp_path).weights.values()} == {torch.float32}


SHAPE = {"model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.max_positions": 24,
         "model.init_std": 0.3, "format.sequence_length": 24, "data.tokenizer.vocab_size": VOCAB}  # fmt: skip
EPS = {"objectives.mlm.norm_eps": 1e-5}  # as the encoder's, so that transformers' head is the same
RUNS = {
    "bert": ("bert_base", {}, "BertForPreTraining"),
    "bert without segments": ("bert_base", {"model.segment_types": 0, "model.activation": "relu",
                                            "objectives.mlm.activation": "relu"}, "BertForPreTraining"),
    "roberta": ("roberta_base", EPS, "RobertaForMaskedLM"),
    "roberta, norm first": ("roberta_base", EPS | {"model.norm": "pre"}, "RobertaPreLayerNormForMaskedLM"),
    "roberta with segments": ("roberta_base", EPS | {"model.segment_types": 2}, "RobertaForMaskedLM"),
    "albert": ("albert_base", {"model.embedding_size": 12, "objectives.mlm.activation": "gelu_tanh"},
               "AlbertForPreTraining"),
    "albert, wide": ("albert_base", {"model.embedding_size": 32, "objectives.mlm.activation": "gelu_tanh"},
                     "AlbertForPreTraining"),
    "distilbert": ("distilbert", {"training.start": {}, "training.start_layers": [], "model.num_layers": 2},
                   "DistilBertForMaskedLM"),
    "narrow embeddings alone": ("bert_base", {"model.embedding_size": 12}, "AlbertForPreTraining"),
}  # fmt: skip


def test_two_texts_follow_each_other_as_probably_as_transformers_says(tmp_path):
    _, theirs = theirs_of("BertForPreTraining")
    theirs.save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(VOCAB - 5))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    found = Asked(opened(str(tmp_path), Records(tmp_path), scale=""), ["w1 w2", "w3"]).answer()
    for row in found:
        given = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))(
            row["first"], row["second"], return_tensors="pt"
        )
        with torch.no_grad():
            wanted = theirs(**given).seq_relationship_logits.softmax(1)[0, 0]
        assert row["follows"] == pytest.approx(wanted.item(), abs=1e-5)


@pytest.mark.parametrize("case", RUNS)
def test_our_own_networks_are_loaded_by_transformers(case, tmp_path):
    base, changes, cls = RUNS[case]
    system = SYSTEMS[base].but(**SHAPE | changes)
    checkpoint = interop.of_run(system, system.build(0).state_dict())
    assert not checkpoint.notes
    interop.write(checkpoint, tmp_path / "out")
    theirs, told = loaded(getattr(transformers, cls), tmp_path / "out")
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    family, (tokens, _) = checkpoint.family.name, batch("bert")
    if system.model.segment_types == 0:
        tokens.tables["segment"][:] = 0
    given = {"input_ids": tokens.ids, "attention_mask": tokens.real.long()}
    if family != "distilbert":
        given["token_type_ids"] = tokens.tables["segment"]
    with torch.no_grad():
        encoded, module = checkpoint.build().eval()(Example.of(tokens)), checkpoint.build().eval()
        expected = theirs(**given, output_hidden_states=True)
        logits = module.heads["mlm"]["vocabulary"](encoded.last[tokens.real], encoded)
    assert (encoded.last - expected.hidden_states[-1])[tokens.real].abs().max() <= 1e-5
    wanted = expected.get("prediction_logits", expected.get("logits"))
    assert (logits - wanted[tokens.real]).abs().max() <= 1e-5
    back = interop.read(tmp_path / "out")
    assert back.system.model.resolved().but(init=system.model.init) == system.model.resolved()
    assert back.weights.keys() == checkpoint.weights.keys()
    assert all(torch.equal(back.weights[name], tensor) for name, tensor in checkpoint.weights.items()), family


TEXTS = ["the cat sees a Dog", "don't stop; it's 12 km!", "old birds hear the young ones under red trees"]
MORE = [
    f"{a}{b} {b}{c}ing {c}{a}ed" for a in ("wal", "tal", "par", "lo") for b in ("k", "ms") for c in ("st", "bu", "ve")
]
TOKENIZERS = {
    "wordpiece": ("bert_base", Tokenizer(kind="wordpiece", vocab_size=70)),
    "byte_bpe": ("roberta_base", Tokenizer(kind="byte_bpe", vocab_size=290, lowercase=False)),
    "no segments": ("distilbert", Tokenizer(kind="wordpiece", vocab_size=70)),
    "unigram": ("albert_base", Tokenizer(kind="unigram", vocab_size=64)),
    "unigram, cased": ("albert_base", Tokenizer(kind="unigram", vocab_size=64, lowercase=False)),
}


def exported(name, folder):
    """The family of a system with a tokenizer that is trained and written, and the tokenizer's file."""
    base, settings = TOKENIZERS[name]
    path = folder / "tokenizer.json"
    path.write_text(train(settings, (TEXTS + MORE) * 40).to_str())
    system = SYSTEMS[base].but(
        **SHAPE
        | {"model.embedding_size": 12 if base == "albert_base" else None}
        | ({"training.start": {}, "training.start_layers": []} if base == "distilbert" else {})
        | {"data.tokenizer": settings, "model.max_positions": 64}
    )
    interop.write(interop.of_run(system, system.build(0).state_dict()), folder / "out", path)
    return base.split("_")[0], path


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_exported_tokenizer_gives_our_pieces(name, tmp_path):
    """Ids of single texts and pairs are those that we feed, special pieces included, and the model takes them."""
    (family, path), kind = exported(name, tmp_path), TOKENIZERS[name][1].kind
    fast, ours = AutoTokenizer.from_pretrained(tmp_path / "out"), Encoder(path, kind)
    ids, counts = ours(TEXTS[:2])
    first, second = ids[: counts[0]].tolist(), ids[counts[0] :].tolist()
    assert fast(TEXTS[0])["input_ids"] == [2, *first, 3]
    pair = fast(*TEXTS[:2])
    assert pair["input_ids"] == [2, *first, 3, *second, 3]
    assert fast.convert_tokens_to_ids(fast.mask_token) == 4
    assert fast("the [MASK] sees")["input_ids"].count(4) == 1
    if name == "no segments":
        assert pair.keys() == {"input_ids", "attention_mask"}
    elif kind != "byte_bpe":
        assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    if kind == "wordpiece":
        assert (tmp_path / "out" / "vocab.txt").read_text().splitlines()[:5] == list(ours.vocabulary.pieces[:5])
    for auto in (AutoModel, AutoModelForMaskedLM):
        assert auto.from_pretrained(tmp_path / "out")(**fast(*TEXTS[:2], return_tensors="pt"))[0].isfinite().all()
    own = interop.own_encoder(tmp_path / "out", family, TOKENIZERS[name][1].vocab_size)
    assert own(TEXTS[:2])[0].tolist() == ids.tolist()
    assert [getattr(own.vocabulary, name) for name in ("pad", "unk", "cls", "sep", "mask")] == [0, 1, 2, 3, 4]


HARD = ["``Naïve'' CAFÉ ﬁt 1,000, x", "日本 don't; (ÉÉ-1990) ¨ x¨ ¨y", "a\u00a0b  c\td", "ΑΣ ΣΑΣ İI", "e\u0301 \u0301x"]


@pytest.mark.parametrize("name", ["unigram", "unigram, cased"])
def test_unigram_pieces_are_those_of_alberts_own_class(name, tmp_path):
    """Also where that class is built anew from the vocabulary, with its own normaliser."""
    _, path = exported(name, tmp_path)
    theirs, ours = transformers.AlbertTokenizerFast.from_pretrained(tmp_path / "out"), Encoder(path, "unigram")
    usual = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in (*TEXTS, *HARD):
        words = " ".join(text.split())
        assert theirs(words, add_special_tokens=False)["input_ids"] == ours([words])[0].tolist(), text
        assert usual(text)["input_ids"] == theirs(text)["input_ids"]
    theirs.save_pretrained(tmp_path / "again")
    back = interop.own_encoder(tmp_path / "again", "albert", 64)
    assert back(TEXTS)[0].tolist() == ours(TEXTS)[0].tolist()


def test_a_folder_with_alberts_own_pieces_is_read(tmp_path):
    """With the names of its special pieces, and its tokenizer.json as transformers writes it."""
    _, path = exported("unigram", tmp_path)
    listed = [(piece, score) for piece, score in json.loads(path.read_text())["model"]["vocab"]]
    listed[:2] = [("<pad>", 0.0), ("<unk>", 0.0)]
    theirs = transformers.AlbertTokenizerFast(vocab=listed)
    theirs.save_pretrained(tmp_path / "albert")
    own = interop.own_encoder(tmp_path / "albert", "albert", 64)
    for text in (*TEXTS, *HARD):
        words = " ".join(text.split())
        assert own([words])[0].tolist() == theirs(words, add_special_tokens=False)["input_ids"], text
    assert (own.kind, own.vocabulary.pad, own.vocabulary.mask) == ("unigram", 0, 4)


def test_a_head_of_another_kind_is_written_and_said(tmp_path):
    system = SYSTEMS["roberta_base"].but(**SHAPE | {"model.embedding_dropout": 0.0})
    notes = interop.of_run(system, {}).notes
    assert any("LayerNorm adds 1e-12 here and 1e-05 there" in note for note in notes)
    assert any("dropout of the embeddings is 0.0 here and 0.1 there" in note for note in notes)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert_base", "albert_base", "roberta_base"])
@pytest.mark.parametrize("gone", [{1}, {0, 2, 3}, {0, 1, 2, 3}], ids=str)
def test_removed_heads_are_zeros_in_full_shape(tmp_path, name, gone):
    system = SYSTEMS[name].but(
        **{
            "model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.max_positions": 26,
            "model.ffn_size": None, "data.tokenizer.vocab_size": VOCAB, "format.sequence_length": 20,
        }
    )  # fmt: skip
    module = system.build(0).eval()
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    tokens, given = batch(name.partition("_")[0])
    whole = module.backbone(Example.of(tokens)).last
    Heads.of(module.backbone).remove(gone)
    left = {"head.output.weight": torch.zeros(2, 32), **module.state_dict()}
    checkpoint = interop.of_run(system, left)
    assert f"{len(gone)} heads that were removed are zeros" in checkpoint.notes
    interop.write(checkpoint, tmp_path / "folder")
    theirs = AutoModel.from_pretrained(tmp_path / "folder").eval()
    if name == "roberta_base":
        given["input_ids"] = tokens.ids.masked_fill(~tokens.real, theirs.config.pad_token_id)
    ours, expected = module.backbone(Example.of(tokens)).last, theirs(**given).last_hidden_state
    assert (ours - expected)[tokens.real].abs().max() <= 1e-5
    assert (whole - expected)[tokens.real].abs().max() > 1e-3
    again = interop.read(tmp_path / "folder").build().backbone.eval()
    assert (again(Example.of(tokens)).last - expected)[tokens.real].abs().max() <= 1e-5
