"""Files that somebody made to be endless: long lines, long words, deep or wide JSON, links that lead back."""

import json
import os
import struct

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.own_text import text_documents, text_files
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import SPECIALS, Tokenizer, train
from lightning_modules.interop import folder
from lightning_modules.interop.own_tokenizer import own_encoder
from lightning_modules.tasks.reading.lines import made, numbered, table
from tests.faults.limits import limited
from tests.messages import naming

KINDS = ["wordpiece", "byte_bpe", "letter_bpe", "unigram"]
WORDS = ["".join(chr(97 + n // 7**place % 7) for place in range(2 + n % 4)) for n in range(3000)]
SENTENCES = [" ".join(WORDS[first : first + 10]) for first in range(0, 3000, 10)] * 2


def pieces(kind, sentences):
    return train(Tokenizer(kind=kind, vocab_size=400), sentences).to_str()


class TestWords:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_word_of_a_million_letters_changes_no_vocabulary(self, kind):
        endless = "".join(WORDS) * 90  # of the same letters
        assert limited(pieces, kind, [*SENTENCES, f"ab {endless} cd"]) == pieces(kind, [*SENTENCES, "ab cd"])

    @pytest.mark.parametrize("kind", ["wordpiece", "letter_bpe"])
    def test_short_words_without_spaces_are_read(self, kind):
        assert pieces(kind, ["-".join(WORDS)] * 2) == pieces(kind, [" - ".join(WORDS)] * 2)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_word_of_a_million_letters_is_encoded(self, kind, tmp_path):
        (tmp_path / "tokenizer.json").write_text(pieces(kind, SENTENCES))
        _, counts = limited(Encoder(tmp_path / "tokenizer.json", kind), ["".join(WORDS) * 90])
        assert len(counts) == 1


class TestLines:
    def test_a_line_of_three_hundred_megabytes(self, tmp_path):
        file = tmp_path / "data.jsonl"
        file.write_bytes(b'{"text": "a", "label": 1}\n')
        with file.open("ab") as end:
            end.truncate(300 << 20)  # zeros, which take no room on the disk
        line = limited(lambda: list(numbered(file))[1], megabytes=100)
        assert (line.number, line.fields) == (2, [""])
        assert f"{(300 << 20) - 26:,}" in line.fault
        assert "1,048,576" in line.fault

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
    def test_the_longest_line_is_read(self, tmp_path, end, mark):
        file = tmp_path / "data.txt"
        file.write_bytes(mark + b"x" * (1 << 20) + end)
        assert [line.fault for line in numbered(file)] == [""]
        file.write_bytes(mark + b"x" * (1 + (1 << 20)) + end + b"y")
        first, *_ = numbered(file)
        assert "1,048,577" in first.fault or not end

    def test_three_hundred_thousand_wrong_lines(self, tmp_path):
        file = tmp_path / "data.tsv"
        file.write_text("text\tlabel\n" + "a, b, c, d, e, f; g; h; i\n" * 300_000)
        with pytest.raises(ConfigError, match=naming("lines 2, 3, 4", "read no further")) as raised:
            limited(lambda: list(made(file, table(file, ["text", "label"]), str)), seconds=1)
        assert len(str(raised.value)) < 10_000

    def test_a_line_of_a_text_that_is_no_line(self, tmp_path):
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).write_text("word " * (40 << 18))
        with pytest.raises(ConfigError, match=naming("a.txt", "16,777,216")):
            limited(lambda: list(text_documents(f"{tmp_path}/*.txt")))


class TestLinks:
    def test_links_that_lead_back(self, tmp_path):
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "a.txt").write_text("a")
        for name in ("one", "two"):
            (tmp_path / name).symlink_to(".", target_is_directory=True)
        assert limited(text_files, f"{tmp_path}/**/*.txt") == [tmp_path / "inner" / "a.txt"]

    def test_what_a_pattern_matches(self, tmp_path):
        """As in a shell: hidden folders are named to be entered, and so are links."""
        for name in ("a.txt", "b/a.txt", "b/c/a.txt", "b/c/d.text", ".h/a.txt", "b/.h.txt", "[x]/a.txt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("a")
        (tmp_path / "link").symlink_to("b", target_is_directory=True)
        os.symlink("b/a.txt", tmp_path / "to.txt")
        found = {
            "*.txt": ["a.txt", "to.txt"],
            "**/*.txt": ["[x]/a.txt", "a.txt", "b/a.txt", "b/c/a.txt", "to.txt"],
            "b/**/*.txt": ["b/a.txt", "b/c/a.txt"],
            "**/c/*": ["b/c/a.txt", "b/c/d.text"],
            "**/c/**": ["b/c/a.txt", "b/c/d.text"],
            "b/**": ["b/a.txt", "b/c/a.txt", "b/c/d.text"],
            "**/**/d.*": ["b/c/d.text"],
            "link/**/*.txt": ["link/a.txt", "link/c/a.txt"],
            ".h/**/*.txt": [".h/a.txt"],
        }
        for pattern, names in found.items():
            assert text_files(f"{tmp_path}/{pattern}") == [tmp_path / name for name in names], pattern


def written(at, normalizer, kind=None):
    """A folder with a tokenizer of single letters."""
    letters = [*SPECIALS, *map(chr, range(97, 123)), *("##" + chr(n) for n in range(97, 123))]
    fast = tokenizers.Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(letters)}, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    fast.save(str(at / "tokenizer.json"))
    return at


class TestCheckpoints:
    @pytest.mark.parametrize(
        "steps",
        [
            [normalizers.Replace("e", "e" * 1000)] * 3,
            [normalizers.Replace(tokenizers.Regex(""), "e")] * 20,
            [normalizers.Replace(tokenizers.Regex("e"), "eee")],
            [normalizers.NFKD()] * 9,
            [normalizers.Lowercase()] * 100,
        ],
        ids=["letters", "places", "a pattern", "forms", "steps"],
    )
    def test_texts_that_grow_without_limit(self, tmp_path, steps):
        source = written(tmp_path, normalizers.Sequence(steps))
        with pytest.raises(ConfigError, match=naming("tokenizer.json", "32", "Replace")):
            limited(lambda: own_encoder(source, "bert", 100)(["see the tree"]))

    def test_steps_that_checkpoints_have(self, tmp_path):
        steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                 normalizers.Lowercase(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]  # fmt: skip
        ids, counts = own_encoder(written(tmp_path, normalizers.Sequence(steps)), "bert", 100)(["Sé"])
        assert (len(ids), list(counts)) == (2, [2])

    def test_a_tokenizer_of_empty_lists(self, tmp_path):
        (tmp_path / "tokenizer.json").write_text('{"model": [' + "[]," * (20 << 20) + "[]]}")
        with pytest.raises(ConfigError, match=naming("tokenizer.json", "4,194,304")):
            limited(lambda: own_encoder(tmp_path, "bert", 100))

    def test_a_million_tensors(self, tmp_path):
        one = '"%d":{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
        header = ("{" + ",".join(one % n for n in range(1_200_000)) + "}").encode()
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))

        def opened():
            with folder.tensors(tmp_path) as tensors:
                return len(tensors.shapes)

        with pytest.raises(ConfigError, match=naming("model.safetensors", f"{len(header):,}", "4 MiB")):
            limited(opened)

    def test_a_large_vocabulary_is_read(self, tmp_path):
        (tmp_path / "vocab.json").write_text(json.dumps({f"p{n}": n for n in range(1 << 18)}))
        assert len(folder.json_object(tmp_path / "vocab.json")) == 1 << 18
