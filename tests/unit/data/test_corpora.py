"""Corpora: what they hold, how they are cleaned and split, and what is said when one is not at hand."""

import gzip
import json
import os
import re
import sys

import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data import CORPORA, Data, DataMismatch, fingerprints, open_store, pins
from lightning_modules.data.corpora import parallel
from lightning_modules.data.corpora.registry import corpus, unwrapped
from lightning_modules.data.corpora.wikipedia_mini import prose
from lightning_modules.places import cache


def documents(name, split):
    return list(corpus(name).documents(split))


class TestWikipediaMini:
    @pytest.mark.slow
    def test_is_what_was_pinned(self):
        pytest.importorskip("gensim")
        found = pins.measured("wikipedia-mini")
        assert found == pins.pinned()["wikipedia-mini"]
        assert 100 <= found["train"].documents + found["heldout"].documents <= 110
        assert 0.07 < found["heldout"].words / found["train"].words < 0.15

    def test_without_gensim_says_how_to_get_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "gensim.corpora.wikicorpus", None)
        with pytest.raises(ConfigError, match=r"pip install -e \.`.*'text:<glob>'"):
            documents("wikipedia-mini", "train")


@pytest.mark.slow
class TestWikipediaUnread:
    def test_is_what_was_pinned(self):
        pytest.importorskip("gensim")
        assert pins.measured("wikipedia-unread") == pins.pinned()["wikipedia-unread"]


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        (
            "'''Autism''' is a ''developmental'' disorder of childhood.",
            "Autism is a developmental disorder of childhood.",
        ),
        ("The word (from Greek () and ; , roots) is not so old.", "The word (from Greek and;, roots) is not so old."),
        ("He was born (; 12 May 1900) in a small town.", "He was born (12 May 1900) in a small town."),
        ("* A list entry that is a whole sentence, after all.", "A list entry that is a whole sentence, after all."),
        ("== A heading that ends as sentences do. ==", None),
        ("|- a row of a table that ends in a stop.", None),
        ("File:Cod.jpg|Cod have three dorsal fins and two others.", None),
        ("Category:Fish of the sea and of the rivers.", None),
        ("* Extraterrestrial life, life which does not originate from Earth", None),
        (" 92,709", None),
    ],
)
def test_prose_keeps_sentences_and_drops_lists_tables_headings(line, clean):
    assert prose(line) == clean


class TestFolders:
    @pytest.fixture
    def home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
        return tmp_path

    def test_novels_have_no_bom_no_carriage_returns_and_whole_sentences(self, home):
        folder = home / "pretrain/english_novels_100"
        folder.mkdir(parents=True)
        for n in range(22):
            text = f"\ufeffBook {n}\r\n\r\nIt was a dark\r\nand stormy night. He  said\r\n"
            text += "nothing.\r\n\r\nThe end came.\r\n"
            (folder / f"A{n:02}.txt").write_bytes(text.encode())
        train, heldout = documents("novels", "train"), documents("novels", "heldout")
        assert train[0] == ["Book 0", "It was a dark and stormy night.", "He said nothing.", "The end came."]
        assert [d[0] for d in heldout] == ["Book 10"]
        assert len(train) == 21

    def test_paragraphs_of_the_three_layouts_of_books(self):
        line = "word " * 13
        assert unwrapped(f"{line}\nthe end.\n\n{line}\nmore.\n") == [
            f"{line.strip()} the end.",
            f"{line.strip()} more.",
        ]
        assert unwrapped(f"{line * 4}\nnext paragraph\n") == [(line * 4).strip(), "next paragraph"]
        unmarked = "\n".join([line.strip(), "a short end.", line.strip(), line.strip(), "done."])
        assert unwrapped(unmarked) == [f"{line.strip()} a short end.", f"{line}{line}done."]
        assert unwrapped("\r\n \r\n") == []

    def test_wikipedia_keeps_articles_and_holds_out_the_last_file(self, home):
        folder = home / "pretrain/wiki_en_2015"
        folder.mkdir(parents=True)
        for letter in "ABCD":
            (folder / f"wiki_A{letter}.txt").write_text(
                f'<doc id="1" url="u" title="T{letter}">\nT{letter}\n\n'
                f"Alpha () is the first &amp; best letter of {letter}. "
                "It leads.\nEarly history.\n</doc>\n"
                f'<doc id="2" url="u" title="U">\nU\n\nBeta follows alpha in every list{letter}.\n</doc>\n',
                encoding="utf-8",
            )
        first = ["Alpha is the first & best letter of A.", "It leads."]
        assert documents("wikipedia-2015", "train")[:2] == [first, ["Beta follows alpha in every listA."]]
        assert len(documents("wikipedia-2015", "train")) == 6
        assert [d[0][-2] for d in documents("wikipedia-2015", "heldout")] == ["D", "D"]

    @pytest.mark.parametrize("name", ["novels", "wikipedia-2015"])
    def test_a_missing_folder_names_the_ways(self, name, home, monkeypatch):
        with pytest.raises(ConfigError, match=rf"'{name}' was not found.*wikipedia-mini.*text:<glob>.*hub:"):
            documents(name, "train")
        monkeypatch.delenv("ABLATIONS_DATA")
        with pytest.raises(ConfigError, match="ABLATIONS_DATA is not set"):
            documents(name, "train")

    def test_text_that_is_not_the_pinned_one_is_refused(self, home):
        folder = home / "pretrain/english_novels_100"
        folder.mkdir(parents=True)
        for n in range(12):
            (folder / f"{n:02}.txt").write_text("A night of wind and rain. The wind fell. " * 9, encoding="utf-8")
        data = Data(corpora=("novels",)).but(**{"tokenizer.vocab_size": 64})
        with pytest.raises(DataMismatch, match=r"'novels' \(train\).*11 documents.* of sha256 60d615c9.*93 documents"):
            open_store(data, "train")
        assert not list(cache().glob("tokenizers/*/*.json")) + list(cache().glob("stores/*/train"))


class TestOwnText:
    def write(self, folder, count, blank=True):
        texts = [f"Text {n} starts. It ends." for n in range(count)]
        if blank:
            (folder / "a.txt").write_text("\n\n\n".join(texts), encoding="utf-8")
        else:
            for n, text in enumerate(texts):
                (folder / f"{n:03}.txt").write_text(text.replace(". ", ".\n"), encoding="utf-8")
        return f"text:{folder}/*.txt"

    @pytest.mark.parametrize("blank", [True, False])
    @pytest.mark.parametrize(("count", "held"), [(2, [1]), (19, [18]), (20, [19]), (41, [19, 39])])
    def test_every_20th_document_is_held_out_and_at_least_one(self, tmp_path, count, held, blank):
        name = self.write(tmp_path, count, blank)
        train, heldout = documents(name, "train"), documents(name, "heldout")
        assert [d[0] for d in heldout] == [f"Text {n} starts." for n in held]
        assert [d[0] for d in train] == [f"Text {n} starts." for n in range(count) if n not in held]
        assert all(d[1] == "It ends." for d in train + heldout)

    def test_nothing_or_one_document_is_refused(self, tmp_path):
        with pytest.raises(ConfigError, match=r"No file matches '.*nothing\*'"):
            documents(f"text:{tmp_path}/nothing*", "train")
        with pytest.raises(ConfigError, match=r"one document\. A corpus needs at least two documents"):
            documents(self.write(tmp_path, 1), "heldout")
        (tmp_path / "a.txt").write_text("\n\n")
        with pytest.raises(ConfigError, match=r"no text\. A corpus needs at least two documents"):
            documents(f"text:{tmp_path}/*.txt", "train")

    @pytest.mark.parametrize("before", [b"caf", b"\xef\xbb\xbfcaf", "Ein Täfelchen.\r\n".encode() * 5_000])
    @pytest.mark.parametrize("wrong", [b"\xe9\n\nb", b"\0 b", b"\xe2\x82"])
    def test_bytes_that_are_no_text_are_named_by_file_and_place(self, tmp_path, before, wrong):
        (tmp_path / "latin.txt").write_bytes(before + wrong)
        place = rf"byte {len(before) + 1:,}, in line {before.count(10) + 1:,}\)"
        with pytest.raises(ConfigError, match=rf"latin\.txt is not UTF-8 text \({place}"):
            documents(f"text:{tmp_path}/*.txt", "train")

    @pytest.mark.parametrize("name", ["notes", "notes.txt", "notes.md", "chapter.v2", "page.tex"])
    def test_readable_text_is_read_under_any_other_suffix(self, tmp_path, name):
        (tmp_path / name).write_text("[1] {a} < b, says the first.\n\n{{A second}} ends.", encoding="utf-8")
        assert documents(f"text:{tmp_path}/*", "train") == [["[1] {a} < b, says the first."]]

    @pytest.mark.parametrize(
        "first",
        [
            '{"Hello," said he.}',
            '[ "Sir," he said ]',
            "['Tis late, she said, and 'twas.]",
            '["Sir," "Madam," they said.]',
            "[1]",
            "[12, 13]",
            "[Illustration]",
            "<Enter the king>",
            "<unk> was a <unk>",
            "<b>Cod</b> is a fish.",
            "<|endoftext|>",
            "PK is a name.",
        ],
    )
    def test_prose_in_brackets_is_read(self, tmp_path, first):
        (tmp_path / "a.txt").write_text(f"{first}\n\nAnother.\n", encoding="utf-8")
        assert documents(f"text:{tmp_path}/*", "train") == [[first]]

    @pytest.mark.parametrize(
        "name",
        [
            *("a.jsonl", "a.json", "a.csv", "a.TSV", "a.html", "a.xml", "a.txt.gz", "a.pdf"),
            *("a.yaml", "a.yml", "a.toml", "a.ini", "a.sql", "a.json5", "a.vtt"),
        ],
    )
    def test_a_file_of_another_format_is_refused_by_its_suffix(self, tmp_path, name):
        (tmp_path / "b.txt").write_text("A text.\n\nAnother.", encoding="utf-8")
        (tmp_path / name).write_text("one,two\n\nthree,four", encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"/{re.escape(name)} is .*not plain text"):
            documents(f"text:{tmp_path}/*", "train")

    @pytest.mark.parametrize(
        "content",
        [
            json.dumps({"text": "Prose."}).encode(),
            json.dumps([{"text": "Prose."}], indent=1).encode(),
            b"\xef\xbb\xbf<!DOCTYPE html>\n<p>Prose.",
            b'\n<?xml version="1.0"?>\n<p>Prose.</p>',
            b'<doc id="12" title="Cod">\nProse.',
            b'["Prose.", "More."]\n["Other."]\n',
            b'[["Prose.", 1]]',
            json.dumps(["Prose. " * 2_000] * 2).encode(),
            b"{'text': 'Prose.'}\n",
            b"<p>Prose.</p>\n<p>More.</p>",
            b"<!-- a page\n of mine -->\n<html><body>Prose.",
            b"<!-- a page --><html>",
            b"<corpus><s>Prose.</s></corpus>\n",
            b"<text id=1>\r\nProse.",
            b'<TEI xmlns="http://www.tei-c.org/ns/1.0"\n  xml:id="a">\nProse.',
            b"WEBVTT\n\n00:01 --> 00:02\nProse.",
            b"WEBVTT - Prose\n\n00:01 --> 00:02\nProse.",
            gzip.compress(b"Prose.", mtime=0),
            b"PK\x03\x04 and so on",
            b"%PDF-1.7\n%",
        ],
    )
    def test_a_file_of_another_format_is_refused_by_its_first_bytes(self, tmp_path, content):
        for number in range(3):
            (tmp_path / f"{number}.txt").write_bytes(content)
        with pytest.raises(ConfigError, match=r"/0\.txt \(and 2 more of 3 files\) is .*not plain text"):
            documents(f"text:{tmp_path}/*.txt", "train")

    def test_json_lines_are_refused_with_the_way_to_read_them(self, tmp_path):
        pytest.importorskip("datasets")
        for number in range(3):
            (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": f"Poem {number} begins."}))
        with pytest.raises(ConfigError, match="not plain text") as refused:
            documents(f"text:{tmp_path}/*.jsonl", "train")
        (way,) = re.findall(r"'(hub:[^']*)'", str(refused.value))
        assert documents(way, "train") == [["Poem 0 begins."], ["Poem 1 begins."]]

    @pytest.mark.parametrize("hours", [0, 1])
    def test_so_does_a_change_that_keeps_size_and_time_or_sets_it_back(self, tmp_path, hours):
        data, file = Data(corpora=(self.write(tmp_path, 3),)), tmp_path / "a.txt"
        before, state = fingerprints(data), file.stat()
        text = file.read_text(encoding="utf-8")
        file.write_text(text.translate(str.maketrans("aeiou", "eioua")), encoding="utf-8")
        assert file.stat().st_size == state.st_size
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns - hours * 3600 * 10**9))
        assert fingerprints(data) != before


class TestHub:
    def test_a_folder_of_the_same_name_comes_before_the_hub(self, tmp_path, monkeypatch):
        pytest.importorskip("datasets")
        monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        (tmp_path / "poems").mkdir()
        rows = [json.dumps({"text": f"Poem {n} begins.\nIt ends."}) for n in range(3)]
        (tmp_path / "poems" / "train.jsonl").write_text("\n".join(rows))
        assert documents("hub:poems", "train") == [[f"Poem {n} begins.", "It ends."] for n in (0, 1)]
        assert documents("hub:poems", "heldout") == [["Poem 2 begins.", "It ends."]]

    def test_what_cannot_be_read_names_the_ways(self, monkeypatch):
        datasets = pytest.importorskip("datasets")

        def offline(*_, **__):
            raise ConnectionError("no route to the hub")

        monkeypatch.setattr(datasets, "load_dataset", offline)
        with pytest.raises(ConfigError, match=r"no route to the hub.*ABLATIONS_DATA.*wikipedia-mini"):
            documents("hub:someone/something", "train")
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ConfigError, match=r"pip install -e \.\[hub\]"):
            documents("hub:someone/something", "train")

    def test_wikitext_lines_become_articles(self, monkeypatch):
        datasets = pytest.importorskip("datasets")
        lines = ["", " = One = ", "", " First text . ", " = = Part = = ", " More text . ", " = Two = ", " Second . "]
        rows = [{"text": line} for line in lines]
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: {"train": rows, "validation": rows[:4]})
        name = "hub:Salesforce/wikitext/wikitext-103-raw-v1"
        assert documents(name, "train") == [["First text .", "More text ."], ["Second ."]]
        assert documents(name, "heldout") == [["First text ."]]


class TestNames:
    def test_the_order_of_names_does_not_matter(self):
        assert Data(corpora=("wikipedia-2015", "novels")) == Data(corpora=("novels", "wikipedia-2015"))

    def test_every_named_corpus_is_pinned_and_planned_without_its_text(self):
        described = (*(f"{kind}:" for kind in parallel.NAMED), "made:", "made-pairs:", "cipher:")
        assert {name for name in pins.pinned() if not name.startswith(described)} == set(CORPORA)
        found = fingerprints(Data(corpora=tuple(CORPORA)))
        assert all(len(sha) == 64 for sha in found.values())
        assert len(set(found.values())) == len(CORPORA)
