"""A checkpoint's own tokenizer: pieces as its library gives them, special pieces by number, misfits refused."""

import json

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from lightning_modules import interop
from lightning_modules.config import ConfigError
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.texts import TextExamples, TextInputs

WORDS = ["the", "cat", "un", "##aff", "##able", "caf", "##e", "##é", "Ca", "!", "'", "t", "don", ",", "中"]
TEXTS = ["the Cat don't , unaffable !", "cafe Café 中cat", "the [MASK] cat"]
SPLIT, SPACED = pre_tokenizers.Split("t c", "isolated"), pre_tokenizers.Metaspace()
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]


def wordpiece(folder, specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), **settings):
    """A folder with vocab.txt, its special pieces at 0, 100 and so on as BERT's."""
    unused = [f"[unused{n}]" for n in range(98)]
    pieces = [specials[0], *unused, "x", *specials[1:], *WORDS]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    return folder, len(pieces)


def byte_level(folder):
    """A folder with vocab.json and merges.txt, numbered as RoBERTa's."""
    fast = tokenizers.Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=ROBERTA, initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator(TEXTS * 20, trainer)
    folder.mkdir(exist_ok=True)
    fast.model.save(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(vocabulary | {"<mask>": len(vocabulary)}))
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder, len(vocabulary) + 1


def unigram(folder):
    """A folder with tokenizer.json, as ALBERT's."""
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁", "c", "a", "t", "▁cat", "e", "f", "d", "o", "n"]
    pieces += list("'!,[]msukbl")
    fast = tokenizers.Tokenizer(models.Unigram([(piece, -float(n)) for n, piece in enumerate(pieces)], unk_id=1))
    fast.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    fast.add_special_tokens(pieces[:5])
    folder.mkdir(exist_ok=True)
    fast.save(str(folder / "tokenizer.json"))
    return folder, len(pieces)


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_from_a_list_of_pieces(tmp_path, lower):
    folder, size = wordpiece(tmp_path / "bert", do_lower_case=lower)
    own, theirs = interop.own_encoder(folder, "bert", size), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS[:2]:
        assert own([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    vocabulary = own.vocabulary
    assert [vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask] == [0, 100, 101, 102, 103]
    assert vocabulary.mask not in own([TEXTS[2]])[0], "what is written in a text is text"
    starts = {piece: bool(start) for piece, start in zip(vocabulary.pieces, vocabulary.begins_word, strict=True)}
    assert (starts["cat"], starts["##aff"], starts["[CLS]"]) == (True, False, True)


def test_a_task_is_laid_out_with_its_special_pieces(tmp_path):
    folder, size = wordpiece(tmp_path / "bert")
    own, theirs = interop.own_encoder(folder, "bert", size), AutoTokenizer.from_pretrained(folder)
    examples = TextExamples(TEXTS[:1] * 2, ["the cat", "cafe cafe"], np.zeros(2, int))
    pieces = Pieces.of(examples.texts(), own)
    batch = TextInputs(examples, pieces, own.vocabulary, FineTuning().max_length).batch([0, 1]).inputs
    wanted = theirs(examples.first, examples.second, padding=True)
    assert batch.ids.tolist() == wanted["input_ids"]
    assert batch.tables["segment"].tolist() == wanted["token_type_ids"]
    assert batch.real.long().tolist() == wanted["attention_mask"]


def test_byte_level_pieces_of_two_files(tmp_path):
    folder, size = byte_level(tmp_path / "roberta")
    own, theirs = interop.own_encoder(folder, "roberta", size), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert own([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    assert [getattr(own.vocabulary, n) for n in ("cls", "pad", "sep", "unk", "mask")] == [0, 1, 2, 3, size - 1]
    theirs.save_pretrained(tmp_path / "saved")
    again = interop.own_encoder(tmp_path / "saved", "roberta", size)
    assert again(TEXTS)[0].tolist() == own(TEXTS)[0].tolist()


@pytest.mark.parametrize("name", ["<pad>", "<unk>", "[MASK]"])
def test_a_special_piece_that_a_text_spells_out_is_text(tmp_path, name):
    """Its letters are unknown or dear here, so that the special piece would have the best score."""
    folder, size = unigram(tmp_path / "albert")
    data = json.loads((folder / "tokenizer.json").read_text())
    data["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(data))
    own = interop.own_encoder(folder, "albert", size)
    assert not np.isin(own([f"the {name} cat{name}"])[0], [0, 2, 3, 4]).any()


def test_a_length_that_a_file_sets_cuts_nothing(tmp_path):
    """A length for other texts stayed in the file and cut what was read with it (vllm-project/llm-compressor#2917)."""
    folder, size = unigram(tmp_path / "albert")
    whole, fast = (
        interop.own_encoder(folder, "albert", size)(TEXTS)[0].tolist(),
        tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json"),
    )
    fast.enable_truncation(2)
    fast.enable_padding(length=20)
    fast.save(f"{folder}/tokenizer.json")
    own = interop.own_encoder(folder, "albert", size)
    assert own(TEXTS)[0].tolist() == whole
    assert own.fast.encode(TEXTS[0]).ids == own(TEXTS[:1])[0].tolist()


def test_the_first_merge_counts_and_so_do_those_of_number_signs(tmp_path):
    """The first line of merges was skipped, whatever it held (pytorch/text#1632)."""
    folder, size = byte_level(tmp_path / "roberta")
    header, *merges = (folder / "merges.txt").read_text().splitlines()
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(vocabulary | {"##": size}))
    pieces = {}
    for name, lines in (("headed", [header, "# #", *merges]), ("bare", ["# #", *merges])):
        (folder / "merges.txt").write_text("\n".join(lines))
        pieces[name] = interop.own_encoder(folder, "roberta", size + 1)([*TEXTS, "a##b"])[0].tolist()
    assert header.startswith("#version")
    assert pieces["bare"] == pieces["headed"]
    assert size in pieces["bare"]


class TestMisfits:
    @pytest.mark.parametrize("letters", [["Ã", "©"], ["z"]])
    def test_bytes_without_a_piece(self, tmp_path, letters):
        """Byte-level pieces lost letters without a word (huggingface/tokenizers#278)."""
        folder, size = byte_level(tmp_path / "roberta")
        (folder / "merges.txt").write_text("")
        vocabulary = json.loads((folder / "vocab.json").read_text())
        kept = {piece: number for piece, number in vocabulary.items() if piece not in letters}
        (folder / "vocab.json").write_text(json.dumps(kept))
        with pytest.raises(ConfigError, match=rf"has no piece for {len(letters)} of the 256 bytes \('{letters[-1]}'"):
            interop.own_encoder(folder, "roberta", size)

    def test_letters_without_a_piece_for_the_unknown(self, tmp_path):
        """BPE of letters without unk_token loses them as silently."""
        folder, size = byte_level(tmp_path / "roberta")
        fast = tokenizers.Tokenizer(models.BPE({"<unk>": 0, "a</w>": 1}, [], end_of_word_suffix="</w>"))
        fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        fast.save(str(folder / "tokenizer.json"))
        with pytest.raises(ConfigError, match="no unk_token, so texts would lose unknown letters"):
            interop.own_encoder(folder, "roberta", size)

    def test_none_at_all(self, tmp_path):
        with pytest.raises(ConfigError, match=r"has no tokenizer: neither tokenizer\.json, nor vocab\.txt, nor"):
            interop.own_encoder(tmp_path, "bert", 100)
        (tmp_path / "spiece.model").write_bytes(b"")
        with pytest.raises(ConfigError, match=r"Convert spiece\.model"):
            interop.own_encoder(tmp_path, "albert", 100)

    def test_more_pieces_than_rows(self, tmp_path):
        folder, size = wordpiece(tmp_path / "bert")
        with pytest.raises(ConfigError, match=r"has 2 pieces .* without a row in the word table of \d+"):
            interop.own_encoder(folder, "bert", size - 2)

    def test_no_special_pieces(self, tmp_path):
        folder, size = wordpiece(tmp_path / "bert", ("[PAD]", "[UNK]", "[CLS]", "y", "z"))
        with pytest.raises(ConfigError, match=r"has no piece '\[SEP\]' for sep") as caught:
            interop.own_encoder(folder, "bert", size)
        assert len(caught.value.problems) == 2

    def test_a_piece_twice(self, tmp_path):
        folder, size = wordpiece(tmp_path / "bert")
        with open(folder / "vocab.txt", "a") as file:
            file.write("cat\n")
        with pytest.raises(ConfigError, match=r"vocab\.txt has the piece 'cat' twice"):
            interop.own_encoder(folder, "bert", size + 1)

    @pytest.mark.parametrize("text", ["{}", "[]", '{"model": {"type": "Magic"}}', '{"model": 3}', "nothing"])
    def test_no_tokenizer_inside(self, tmp_path, text):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ConfigError, match=r"tokenizer\.json (is no|is not|must hold)"):
            interop.own_encoder(tmp_path, "bert", 100)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t: t.add_tokens([AddedToken("New York")]), "'New York' match across word boundaries"),
            (lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Split(" ", "removed")), "Split, no Metaspace"),
            (
                lambda t: setattr(
                    t, "pre_tokenizer", pre_tokenizers.Sequence([SPLIT, pre_tokenizers.WhitespaceSplit(), SPACED])
                ),
                "Split: not supported",
            ),
            (
                lambda t: setattr(t, "normalizer", normalizers.Prepend("▁")),
                "Prepend: not supported, because words must be encoded",
            ),
        ],
    )
    def test_words_that_depend_on_each_other(self, tmp_path, change, message):
        folder, size = unigram(tmp_path / "albert")
        fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        change(fast)
        fast.save(str(folder / "tokenizer.json"))
        with pytest.raises(ConfigError, match=message):
            interop.own_encoder(folder, "albert", size + 1)
