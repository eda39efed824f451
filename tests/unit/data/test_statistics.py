"""Statistics of tokenizers: counted by hand on a text of a few words, and shares that are shares."""

import pytest
from tokenizers import models

from lightning_modules.data import Tokenizer
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.statistics import measured

PIECES = [*tokenizer.SPECIALS, "the", "cat", "un", "##aff", "##able", ".", "a", "##x"]


@pytest.fixture
def encoder(tmp_path):
    settings = Tokenizer(vocab_size=64)
    model = models.WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]")
    fast = tokenizer._shell(settings, model)
    (tmp_path / "tokenizer.json").write_text(fast.to_str())
    return Encoder(tmp_path / "tokenizer.json", "wordpiece")


def test_counts_are_those_by_hand(encoder):
    """the | cat . | un aff able | the | [UNK] of three bytes: eight pieces of five words."""
    found = measured(encoder, ["the cat. unaffable", "the ☃"])
    assert found.words == 5
    assert found.pieces_per_word == 8 / 5
    assert found.one_piece_words == 2 / 3, "the, unaffable, the: signs are not counted"
    assert found.continuations == 2 / 5
    assert found.unknown == 1 / 8
    assert found.bytes_per_piece == (4 + 5 + 10 + 4 + 4) / 8
    assert found.unused == pytest.approx(2 / 8), "a and ##x"
    assert (found.specials, found.letters) == (5, 3), "the letters are a, x and the full stop"
    assert found.longest == ("able", "aff", "cat", "the", "un")
    assert found.words_per_second > 0


def test_a_text_without_plain_words_has_no_shares_of_them(encoder):
    found = measured(encoder, ["☃ ."])
    assert (found.one_piece_words, found.continuations, found.unknown) == (0, 0, 0.5)


def test_the_longest_pieces_of_bytes_are_those_of_most_letters(tmp_path):
    """In bytes the Greek word is longer."""
    lines = ["elephants αθήνα été"] * 200
    settings = Tokenizer(kind="byte_bpe", vocab_size=283)
    (tmp_path / "tokenizer.json").write_text(tokenizer.train(settings, lines).to_str())
    longest = measured(Encoder(tmp_path / "tokenizer.json", "byte_bpe"), lines).longest
    assert longest[0] == "elephants"
    assert all(piece in lines[0] for piece in longest)


@pytest.mark.parametrize(("kind", "size", "letters"), [("wordpiece", 64, 3), ("byte_bpe", 265, 256)])
def test_letters_are_counted_without_the_marks_of_their_kind(tmp_path, kind, size, letters):
    words = ["".join("ab"[n >> place & 1] for place in range(6)) for n in range(64)] * 3
    lines = [f"{word}. a b" for word in words]
    (tmp_path / "tokenizer.json").write_text(tokenizer.train(Tokenizer(kind=kind, vocab_size=size), lines).to_str())
    assert measured(Encoder(tmp_path / "tokenizer.json", kind), lines[:2]).letters == letters
