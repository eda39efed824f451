"""Words by their characters: against the released code's recipe, word by word, for every kind of tokenizer."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Tokens
from lightning_modules.data.settings import Data
from lightning_modules.data.store import open_store
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.tasks.reading.layout import Segments
from lightning_modules.tasks.reading.pieces import Pieces

LONG = "x" * 60
TEXTS = ["a 🙂 sat .", LONG + " wab wac", "wad , ( wae ) “ naïve ”", "", "waf waf waf"]


def slowly(word: bytes) -> list[int]:
    """A word as bilm-tf's UnicodeCharsVocabulary writes it."""
    row = [258, *word[:48], 259]
    return row + [260] * (50 - len(row))


SIZES = {"wordpiece": 90, "byte_bpe": 325, "letter_bpe": 95}


@pytest.fixture(scope="module")
def encoder(request, tmp_path_factory):
    rng = np.random.default_rng(0)
    lines = [
        " ".join(
            [f"w{chr(97 + n // 8)}{chr(97 + n % 8)}" for n in rng.integers(59, size=9)] + [",", "(", ")", "“", "”"]
        )
        for _ in range(900)
    ]
    settings = Tokenizer(kind=request.param, vocab_size=SIZES[request.param], lowercase=False)
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    file.write_text(train(settings, lines).to_str(), encoding="utf-8")
    return Encoder(file, settings.kind)


def rows(encoder, texts):
    pieces = Pieces.of(texts, encoder)
    parts = np.array([(pieces.bounds[:-1], pieces.bounds[1:])])
    tokens = Segments(pieces.ids, parts, encoder.vocabulary).tokens(np.arange(len(texts)))
    return spelt(tokens, encoder.vocabulary)


def words(tokens: Tokens, row: int) -> list[list[int]]:
    which = tokens.characters.words[row]
    return tokens.characters.spelt[which[which >= 0]].tolist()


@pytest.mark.parametrize("encoder", ["byte_bpe"], indirect=True)
def test_words_are_their_bytes_whatever_they_are(encoder):
    """One letter, sixty, an emoji, punctuation of one byte and of three, letters beyond ASCII, and no word."""
    tokens = rows(encoder, TEXTS)
    first, last = slowly(b"\0"), slowly(b"\0")
    first[1], last[1] = 256, 257
    expected = [
        ["a", "🙂", "sat", "."], [LONG, "wab", "wac"], ["wad", ",", "(", "wae", ")", "“", "naïve", "”"], [],
        ["waf", "waf", "waf"],
    ]  # fmt: skip
    for row, text in enumerate(expected):
        assert words(tokens, row) == [first, *(slowly(word.encode()) for word in text), last]
    assert len(tokens.characters.spelt) == len({bytes(row.numpy()) for row in tokens.characters.spelt})
    assert (tokens.characters.words[~tokens.real] == -1).all()


@pytest.mark.parametrize("encoder", ["wordpiece", "byte_bpe", "letter_bpe"], indirect=True)
def test_words_are_alike_in_every_kind_of_pieces(encoder):
    tokens = rows(encoder, ["waf wbe , wcd"])
    assert words(tokens, 0)[1:-1] == [slowly(word.encode()) for word in ("waf", "wbe", ",", "wcd")]


@pytest.mark.parametrize("encoder", ["wordpiece", "byte_bpe"], indirect=True)
def test_a_word_is_its_piece_and_any_other_is_unknown(encoder):
    tokens = rows(encoder, ["waf (waf wafa"])
    found = dict(zip(map(bytes, tokens.characters.spelt.numpy()), tokens.characters.ids.tolist(), strict=True))
    pieces = encoder.vocabulary.pieces
    own = {name: found[np.array(slowly(name.encode()), np.int16).tobytes()] for name in ("waf", "(", "wafa")}
    assert pieces[own["waf"]] in ("waf", "Ġwaf")
    assert encoder.vocabulary.texts[own["("]] == "("
    assert own["wafa"] == encoder.vocabulary.unk


@pytest.mark.parametrize("encoder", ["byte_bpe"], indirect=True)
def test_a_word_that_a_row_cuts_is_what_the_row_shows_of_it(encoder):
    (ids,) = encoder.fast.encode_batch_fast([LONG], add_special_tokens=False)
    part = torch.tensor([ids.ids[:2]])
    none = torch.zeros_like(part, dtype=torch.bool)
    tokens = spelt(Tokens(part, none, ~none, sample=torch.zeros(1, dtype=torch.long)), encoder.vocabulary)
    shown = "".join(encoder.vocabulary.texts[n] for n in ids.ids[:2])
    assert words(tokens, 0) == [slowly(shown.encode())]


def test_a_store_is_spelt_as_its_text(tmp_path):
    """From the text to characters and back, for all words of a store."""
    text = "The cat (a tabby, 3.5 kg) sat. “Où?” said Ann-Marie — naïvely…\nIt 🙂 purred."
    (tmp_path / "text.txt").write_text("\n\n".join([text] * 200), encoding="utf-8")
    tokenizer = Tokenizer(kind="byte_bpe", vocab_size=300, lowercase=False)
    store = open_store(Data(corpora=(f"text:{tmp_path}/text.txt",), tokenizer=tokenizer), "train")
    start, end = store.document_starts[:2]
    ids = torch.from_numpy(store.ids[start:end].astype(np.int64))[None]
    none = torch.zeros_like(ids, dtype=torch.bool)
    characters = spelt(Tokens(ids, none, ~none, sample=torch.zeros(1, dtype=torch.long)), store.vocabulary).characters
    which = characters.words[characters.words >= 0]
    back = [bytes(c for c in row if c < 256).decode() for row in characters.spelt[which].tolist()]
    said = "The cat ( a tabby , 3 . 5 kg ) sat . “ Où ?” said Ann - Marie — naïvely … It 🙂 purred ."
    assert " ".join(back) == said
