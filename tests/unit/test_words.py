"""Where words begin is the same for every kind of pieces."""

import random

import numpy as np
import pytest
from tokenizers.pre_tokenizers import BertPreTokenizer

from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, Vocabulary
from lightning_modules.words import beginnings, is_part, is_punctuation
from tests.unit.data import byte_level

SENTENCES = [
    'The cat (an old, grey cat) said: "Never again" and went away.',
    "It cost 3,500 dollars; about 20% more than x-rays in 1998.",
    "Don't step on the dog's tail, it's well-known for biting.",
    "See www.example.com/a_page or e.g. section 4.2 (p. 17) too.",
    "Caf\u00e9s \u2014 \u201cgood ones\u201d \u2014 are few.",
] * 40
OFTEN = SENTENCES[4:5] * 400  # so that byte-level pieces hold its quotation marks whole
# what BERT's tokenizer makes of the sentences before it cuts words
EXPECTED = [
    "the cat ( an old , grey cat ) said : \" never again \" and went away .",
    "it cost 3 , 500 dollars ; about 20 % more than x - rays in 1998 .",
    "don ' t step on the dog ' s tail , it ' s well - known for biting .",
    "see www . example . com / a _ page or e . g . section 4 . 2 ( p . 17 ) too .",
    "caf\u00e9s \u2014 \u201c good ones \u201d \u2014 are few .",
]  # fmt: skip


@pytest.fixture(scope="module", params=["wordpiece", "byte_bpe", "letter_bpe"])
def encoder(request, tmp_path_factory):
    size = {"wordpiece": 130, "byte_bpe": 330, "letter_bpe": 130}[request.param]  # so small that most words are cut
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(tokenizer.train(Tokenizer(kind=request.param, vocab_size=size), SENTENCES + OFTEN).to_str())
    return Encoder(path, request.param)


def words(encoder, sentence):
    ids, _ = encoder([sentence])
    begins = beginnings(encoder.vocabulary.word_edges, ids[None], np.ones((1, len(ids)), bool))[0]
    pieces = [encoder.vocabulary.pieces[number] for number in ids]
    parts = np.split(pieces, np.flatnonzero(begins)[1:])
    if encoder.kind == "wordpiece":
        return ["".join(part).replace("##", "") for part in parts]
    if encoder.kind == "letter_bpe":
        assert all("</w>" not in piece for part in parts for piece in part[:-1])
        return ["".join(part).removesuffix("</w>") for part in parts]
    return [encoder.fast.decoder.decode(list(part)).strip() for part in parts]


@pytest.mark.parametrize("number", range(5))
def test_words_are_those_of_berts_tokenizer(encoder, number):
    expected = EXPECTED[number]
    if encoder.kind == "wordpiece":  # which strips accents
        expected = expected.replace("\u00e9", "e")
    found = " ".join(words(encoder, SENTENCES[number]))
    if encoder.kind == "byte_bpe":  # its 's is one piece
        expected = expected.replace("' s", "'s").replace("' t", "'t") if "'s" in found else expected
    assert found == expected


BLOCKS = {  # first and last letter
    "Latin": ("\u00c0", "\u024f"),
    "Latin Extended Additional": ("\u1e00", "\u1eff"),
    "Greek": ("\u0370", "\u03ff"),
    "Greek Extended": ("\u1f00", "\u1fff"),
    "Cyrillic": ("\u0400", "\u052f"),
    "kana": ("\u3041", "\u30ff"),
    "Gothic to Shavian": ("\U00010330", "\U0001047f"),  # of four bytes
}
MARKS = [
    "",
    ".",
    "(",
    *"\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u037e\u2014\u201c\u201d\u2026\u3001\u3002\u30fb\U00010100",
]


def made_of(block):
    """Sentences in which each letter is at the beginning, in the middle and at the end of words, with marks around."""
    draws, (first, last) = random.Random(0), map(ord, BLOCKS[block])
    letters = [letter for letter in map(chr, range(first, last + 1)) if letter.isalpha()]
    for letter in letters:
        a, b, c, d = draws.choices(letters, k=4)
        words = [letter + a, b + letter + c, d + letter, letter]
        yield " ".join(draws.choice(MARKS) + word + draws.choice(MARKS) for word in words)


@pytest.mark.parametrize("size", [261, 350, 600])  # single bytes, and pieces with letters and parts of others
@pytest.mark.parametrize("block", BLOCKS)
def test_letters_and_marks_whose_bytes_are_in_several_pieces(block, size, tmp_path):
    """Words by pieces are words by text, in rows of any length."""
    sentences = list(made_of(block))
    path = tmp_path / "tokenizer.json"
    settings = Tokenizer(kind="byte_bpe", vocab_size=size, lowercase=False)
    path.write_text(tokenizer.train(settings, sentences * 3).to_str())
    encoder = Encoder(path, "byte_bpe")
    ids, counts = encoder(sentences)
    inside = np.arange(counts.max()) < counts[:, None]
    rows = np.zeros(inside.shape, dtype=np.int64)
    rows[inside] = ids
    begins = beginnings(encoder.vocabulary.word_edges, rows, inside)
    for row, count, begin, sentence in zip(rows, counts, begins, sentences, strict=True):
        parts = np.split([encoder.vocabulary.pieces[n] for n in row[:count]], np.flatnonzero(begin[:count])[1:])
        found = [encoder.fast.decoder.decode(list(part)).strip() for part in parts]
        assert found == [word for word, _ in BertPreTokenizer().pre_tokenize_str(sentence)]


def test_parts_of_letters_at_the_edges_of_rows_join_nothing():
    """A row may begin and end within a letter, and so may a text within it."""
    vocabulary = Vocabulary.of(("[PAD]", "[SEP]", "\u0120\u00e2", "\u0122", "\u013f", "\u0120a", "b"), "byte_bpe")
    ids = np.array([[5, 2, 3, 4, 6], [6, 6, 5, 2, 3], [4, 6, 5, 2, 3], [5, 2, 1, 3, 6]])  # 2, 3, 4 are a quotation mark
    begins = beginnings(vocabulary.word_edges, ids, ids != 1)
    assert begins.astype(int).tolist() == [[1, 1, 0, 0, 1], [1, 0, 1, 1, 0], [1, 0, 1, 1, 0], [1, 1, 0, 1, 0]]


@pytest.mark.parametrize("size", byte_level.SIZES)
@pytest.mark.parametrize("language", byte_level.LOWER)
def test_the_letters_of_byte_level_pieces_are_those_of_the_text(language, size, tmp_path):
    """A part of a letter is no other letter, and all pieces together spell the text."""
    text = byte_level.LOWER[language]
    encoder = byte_level.encoder(tmp_path, text, size)
    found = "".join(encoder.vocabulary.texts[number] for number in encoder([text])[0])
    assert all(letter in text or is_part(letter) for letter in found)
    assert found.encode("utf-8", "surrogateescape").decode() == text.replace(" ", "")


def test_marks_in_one_piece_are_one_word():
    vocabulary = Vocabulary(
        ("\u0120said", '."', "\u0120\u00e2\u0122\u013f", "and"), np.array([True, False, True, False]), "\u0120"
    )
    ids = np.array([[0, 1, 3, 2, 3]])
    assert beginnings(vocabulary.word_edges, ids, np.ones_like(ids, bool))[0].tolist() == [True] * 5


def test_a_space_alone_belongs_to_what_follows():
    """As unigram models may cut: the mark of the space, then punctuation or letters."""
    vocabulary = Vocabulary(("\u2581", "(", "ab", "\u2581c"), np.array([True, False, False, True]), "\u2581")
    ids = np.array([[0, 1, 2, 3, 0, 2]])
    assert beginnings(vocabulary.word_edges, ids, np.ones_like(ids, bool))[0].astype(int).tolist() == [1, 0, 1, 1, 1, 0]


def test_punctuation_is_what_berts_tokenizer_isolates():
    split = BertPreTokenizer()
    for letter in [*map(chr, range(33, 127)), *"\u2014\u2019\u00bf\u00a7\u3002\u00e9\u00df\u20ac\u00b0"]:
        alone = len(split.pre_tokenize_str(f"a{letter}b")) == 3
        assert is_punctuation(letter) == alone, letter
