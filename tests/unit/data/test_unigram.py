"""ALBERT's pieces: what a text goes through, which pieces there are, and what is never a special piece."""

import numpy as np
import pytest

from lightning_modules.data import Tokenizer
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder

STEMS = ["play", "walk", "talk", "listen", "naïve", "café", "paint", "count", "Follow"]
ENDS = ["", "s", "ed", "ing", "er"]
SIZE = 95


def lines(count=400, seed=0):
    draw = np.random.default_rng(seed)
    words = [draw.choice(STEMS) + draw.choice(ENDS) + draw.choice(["", "", ",", ".", ")"]) for _ in range(8 * count)]
    words = [f"{draw.integers(10, 99)}," if draw.random() < 0.05 else word for word in words]
    return [" ".join(words[n : n + 8]) for n in range(0, len(words), 8)]


def encoder_of(folder, lowercase=True):
    wanted = Tokenizer(kind="unigram", vocab_size=SIZE, lowercase=lowercase)
    (folder / "tokenizer.json").write_text(tokenizer.train(wanted, lines()).to_str(), encoding="utf-8")
    return Encoder(folder / "tokenizer.json", "unigram")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return encoder_of(tmp_path_factory.mktemp("lower"))


@pytest.fixture(scope="module")
def cased(tmp_path_factory):
    return encoder_of(tmp_path_factory.mktemp("cased"), lowercase=False)


def pieces(encoder, text):
    return [encoder.vocabulary.pieces[number] for number in encoder([text])[0]]


def test_a_text_is_decomposed_lowercased_and_loses_its_accents(encoder):
    assert "".join(pieces(encoder, "NAÏVE Café ﬁnt")) == "▁naive▁cafe▁fint"
    assert pieces(encoder, "naïve") == pieces(encoder, "NAIVE")
    assert pieces(encoder, "``paint''") == pieces(encoder, '"paint"')


def test_frequent_words_are_one_piece_and_signs_stay_alone(encoder):
    assert pieces(encoder, "talk") == ["▁talk"]
    assert pieces(encoder, "talk).") == ["▁talk", ")", "."]
    signs = set('()"-.–£€')
    assert not [piece for piece in encoder.vocabulary.pieces[5:] if len(piece) > 1 and signs & set(piece)]


def test_a_number_is_split_from_its_comma(encoder):
    assert pieces(encoder, "57,")[-1] == ","
    assert pieces(encoder, "99,")[-1] == ","


def test_what_no_piece_spells_is_unknown(encoder):
    assert pieces(encoder, "日本 talk") == ["▁", "[UNK]", "▁talk"]


@pytest.mark.parametrize("name", tokenizer.SPECIALS)
def test_a_special_piece_that_a_text_spells_out_is_text(cased, name):
    """All of its letters are unknown here, so that the cheapest pieces would be the special one."""
    assert name not in pieces(cased, f"x{name}y {name}")[2:] or name == "[UNK]"
    ids = cased([f"{name} talk{name}"])[0]
    assert not np.isin(ids, [0, 2, 3, 4]).any()
