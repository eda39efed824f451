"""Tokenizers and token stores: exact, deterministic, and never half-built."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from lightning_modules.config import ConfigError
from lightning_modules.data import Data, Tokenizer, open_store, pins, store
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.places import project

STEMS = ["play", "walk", "talk", "listen", "Émile", "naïve", "paint", "count", "follow", "answer"]
ENDS = ["", "s", "ed", "ing", "er", "ers"]
KINDS = [
    (kind, lowercase) for kind in ("wordpiece", "byte_bpe", "unigram", "letter_bpe") for lowercase in (True, False)
]


def sentences(count, seed=0):
    draw = np.random.default_rng(seed)
    return [
        " ".join(draw.choice(STEMS) + draw.choice(ENDS) for _ in range(draw.integers(3, 12))) + "."
        for _ in range(count)
    ]


def make_data(folder, kind="wordpiece", size=100, lowercase=True):
    size += {"wordpiece": 0, "byte_bpe": 256, "unigram": -20, "letter_bpe": 0}[kind]
    lines = sentences(150)
    documents = ["\n".join(lines[n : n + 5]) for n in range(0, len(lines), 5)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return Data(
        corpora=(f"text:{folder}/text.txt",),
        tokenizer=Tokenizer(kind=kind, vocab_size=size, lowercase=lowercase),
    )


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    found = {}
    for kind, lowercase in KINDS:
        wanted = Tokenizer(
            kind=kind,
            vocab_size={"wordpiece": 120, "byte_bpe": 300, "unigram": 80, "letter_bpe": 120}[kind],
            lowercase=lowercase,
        )
        path = tmp_path_factory.mktemp("tokenizers") / "tokenizer.json"
        path.write_text(tokenizer.train(wanted, sentences(300)).to_str(), encoding="utf-8")
        found[kind, lowercase] = Encoder(path, kind)
    return found


@pytest.mark.parametrize("form", KINDS)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=5))
@example(
    texts=[
        "it 's 'tis don't [MASK] [SEP] ##ing Ġx a▁b ▁c",
        "''a'' ``b ¨ x¨ ¨y ﬁ",
        "日本語 text",
        "e\u0301 \u0301x",
        "ΑΣ ΣΑΣ",
        "a\x00 \x00 b",
        "İI",
    ]
)
def test_encoding_words_once_equals_the_librarys_encoding_of_sentences(encoders, form, texts):
    encoder = encoders[form]
    lines = [line for text in texts if (line := " ".join(text.split()))]
    if not lines:
        return
    ids, sizes = encoder(lines)
    for found, line in zip(np.split(ids, np.cumsum(sizes)[:-1]), lines, strict=True):
        assert found.tolist() == encoder.fast.encode(line, add_special_tokens=False).ids
    assert not np.isin(ids, [0, 2, 3, 4]).any()  # no text writes a special piece


def test_encoding_goes_on_when_the_words_remembered_are_forgotten(encoders, monkeypatch):
    encoder = encoders["wordpiece", True]
    expected = encoder(sentences(20))[0]
    monkeypatch.setattr("lightning_modules.data.text.encode._MOST_WORDS", 3)
    assert encoder(sentences(20))[0].tolist() == expected.tolist()


@pytest.mark.slow
def test_training_a_tokenizer_is_deterministic():
    """In processes with other hash seeds and other numbers of threads."""
    code = """
import hashlib, json, sys
from lightning_modules.data import Tokenizer
from lightning_modules.data.text import tokenizer
lines = json.load(sys.stdin)
for kind, size in (("wordpiece", 110), ("byte_bpe", 290), ("unigram", 80), ("letter_bpe", 110)):
    found = tokenizer.train(Tokenizer(kind=kind, vocab_size=size), lines).to_str()
    print(hashlib.sha256(found.encode()).hexdigest())
"""
    found = set()
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed, "PYTHONPATH": str(project())}
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(sentences(400)),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_vocabulary_has_the_special_pieces_first_and_knows_word_starts(tmp_path):
    for kind in ("wordpiece", "byte_bpe", "unigram", "letter_bpe"):
        vocabulary = open_store(make_data(tmp_path, kind), "train").vocabulary
        assert vocabulary.pieces[:5] == tokenizer.SPECIALS
        assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (0, 1, 2, 3, 4)
        assert (
            vocabulary.size
            == len(set(vocabulary.pieces))
            == {"wordpiece": 100, "byte_bpe": 356, "unigram": 80, "letter_bpe": 100}[kind]
        )
        assert vocabulary.begins_word[:5].all()
        inner = [p for p, starts in zip(vocabulary.pieces, vocabulary.begins_word, strict=True) if not starts]
        if kind == "letter_bpe":
            assert not inner, "any may; the piece before says which does"
            assert {"s", "s</w>"} <= set(vocabulary.pieces)
        else:
            assert all(piece.startswith("##") for piece in inner) if kind == "wordpiece" else "s" in inner


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "letter_bpe"])
def test_a_vocabulary_without_room_for_the_letters_says_how_many_pieces_it_needs(kind):
    many = "".join(chr(0x4E00 + n) for n in range(60)) + "abcdefghijklmnopqrstuvwxyz"
    with pytest.raises(ConfigError, match=r"needs at least \d+") as caught:
        tokenizer.train(Tokenizer(kind=kind, vocab_size=64), [many, many])
    needed = int(str(caught.value).split("at least ")[1].split(".")[0])
    with pytest.raises(ConfigError, match=rf"needs at least {needed}"):
        tokenizer.train(Tokenizer(kind=kind, vocab_size=needed - 1), [many, many])
    assert tokenizer.train(Tokenizer(kind=kind, vocab_size=needed), [many, many]).get_vocab_size() == needed


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "letter_bpe"])
def test_the_store_is_the_text(tmp_path, kind):
    data = make_data(tmp_path, kind)
    for split in ("train", "heldout"):
        found = open_store(data, split)
        texts = list(corpus(data.corpora[0]).documents(split))
        assert np.diff(found.documents).tolist() == [len(document) for document in texts]
        decoded = [
            "".join(found.vocabulary.pieces[i] for i in found.ids[a:b])
            for a, b in zip(found.sentences[:-1], found.sentences[1:], strict=True)
        ]
        plain = [text.replace("##", "") if kind == "wordpiece" else text for text in decoded]
        expected = [line.lower().replace(" ", "" if kind == "wordpiece" else "Ġ") for d in texts for line in d]
        if kind == "letter_bpe":
            split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
            lines = [line.lower() for d in texts for line in d]
            assert decoded == ["".join(f"{word}</w>" for word, _ in split(line)) for line in lines], "accents stay"
        elif kind == "wordpiece":
            assert plain == [line.replace("é", "e").replace("ï", "i") for line in expected]
        elif kind == "unigram":
            words = [line.lower().replace("é", "e").replace("ï", "i").split(" ") for d in texts for line in d]
            assert plain == ["".join(f"▁{word}" for word in line) for line in words]
        else:
            assert [text.count("Ġ") - 1 for text in plain] == [line.count("Ġ") for line in expected]
        assert found.words == sum(line.count(" ") + 1 for d in texts for line in d)
        assert found.ids.dtype == np.uint16


def test_a_large_vocabulary_is_stored_in_four_bytes():
    assert tokenizer.Vocabulary(("x",) * 65_536, np.ones(65_536, bool)).dtype is np.uint16
    assert tokenizer.Vocabulary(("x",) * 65_537, np.ones(65_537, bool)).dtype is np.uint32


def test_the_second_opening_reads_no_text_and_trains_no_tokenizer(tmp_path, monkeypatch):
    data = make_data(tmp_path)
    first = open_store(data, "train")

    def never(*_, **__):
        raise AssertionError("was opened")

    monkeypatch.setattr(store, "corpus", never)
    monkeypatch.setattr(tokenizer, "train", never)
    assert np.array_equal(open_store(data, "train").ids, first.ids)
    assert np.array_equal(pickle.loads(pickle.dumps(first)).ids, first.ids)
    assert len(pickle.dumps(first)) < 1000  # a worker maps the files


def test_a_build_that_dies_leaves_nothing_that_is_used(tmp_path, monkeypatch):
    data = make_data(tmp_path)
    whole = open_store(data, "heldout")

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store.np, "save", die)
        with pytest.raises(Killed):
            open_store(data, "train")
    left = [p.name for p in whole.folder.parent.iterdir() if p.is_dir() and p.name.startswith("train")]
    assert left
    assert "train" not in left
    train = open_store(data, "train")
    assert len(train.ids) > len(whole.ids)
    assert sorted(p.name for p in whole.folder.parent.iterdir() if p.is_dir()) == ["heldout", "train"]


def test_a_long_text_trains_its_tokenizer_on_a_fixed_sample(tmp_path, monkeypatch):
    data = make_data(tmp_path)
    everything = list(store._tokenizer_text(data.tokenized_by))
    monkeypatch.setattr(tokenizer, "TRAINING_WORDS", 500)
    some = list(store._tokenizer_text(data.tokenized_by))
    assert 0.25 < sum(map(len, some)) / sum(map(len, everything)) < 0.75
    assert some == list(store._tokenizer_text(data.tokenized_by))


def test_text_is_read_by_the_tokenizer_of_another(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = make_data(tmp_path / "a"), make_data(tmp_path / "b")
    text = tmp_path / "b/text.txt"
    text.write_text(text.read_text().replace("a", "o") + "\n\nquite other words\n\nquite other words here")
    read = two.but(**{"tokenizer.corpora": one.corpora})
    assert store.tokenizer_file(read) == store.tokenizer_file(one) != store.tokenizer_file(two)
    ours, theirs, own = (open_store(data, "train") for data in (read, one, two))
    assert ours.vocabulary.pieces == theirs.vocabulary.pieces != own.vocabulary.pieces
    assert (ours.words, ours.folder == own.folder) == (own.words, False)
    both = one.but(corpora=[*one.corpora, *two.corpora])
    assert len(open_store(both.but(**{"tokenizer.corpora": one.corpora}), "train").documents) > len(ours.documents)


def test_documents_of_several_corpora_follow_each_other(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    one, two = make_data(tmp_path / "a"), make_data(tmp_path / "b")
    both = open_store(one.but(corpora=list(two.corpora + one.corpora)), "train")
    single = open_store(one, "train")
    assert (both.corpora, single.corpora) == ((len(single.documents) - 1,), ())
    assert len(both.documents) - 1 == 2 * (len(single.documents) - 1)
    assert both.words == 2 * single.words
    assert set(pins.fingerprints(one).values()) == set(pins.fingerprints(two).values())
