"""Bytes behind pieces: every byte of a text has one piece, whatever the tokenizer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.data import Data, Tokenizer, open_store
from lightning_modules.data.annotations import token_bytes
from lightning_modules.data.formats.text import RunningText, arrange
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder, piece_bytes, piece_starts
from lightning_modules.measures.per_byte import predicted_bytes
from lightning_modules.objectives import MaskedLM

KINDS = {"wordpiece": 120, "byte_bpe": 300, "unigram": 80, "letter_bpe": 120}
STEMS = ["play", "walk", "talk", "listen", "Émile", "naïve", "paint", "count", "follow", "answer"]


def sentences(count, seed=0):
    draw = np.random.default_rng(seed)
    ends = ["", "s", "ed", "ing", "er", "ers"]
    return [
        " ".join(draw.choice(STEMS) + draw.choice(ends) for _ in range(draw.integers(3, 12))) + "."
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    found = {}
    for kind, size in KINDS.items():
        path = tmp_path_factory.mktemp("tokenizers") / "tokenizer.json"
        path.write_text(tokenizer.train(Tokenizer(kind=kind, vocab_size=size), sentences(300)).to_str())
        found[kind] = Encoder(path, kind)
    return found


def test_pieces_own_their_letters_and_words_the_space_before_them(encoders):
    encoder = encoders["wordpiece"]
    pieces = [encoder.vocabulary.pieces[n] for n in encoder(["naïve talks"])[0]]
    behind = dict(zip(pieces, piece_bytes(encoder, ["naïve talks"]).tolist(), strict=True))
    assert sum(behind.values()) == len("naïve talks".encode()) + 1
    first = pieces.index(next(piece for piece in pieces if piece.startswith("t")))
    assert sum(piece_bytes(encoder, ["naïve talks"])[:first]) == 1 + 6, "two bytes of ï"
    assert sum(piece_bytes(encoder, ["naïve talks"])[first:]) == 1 + 5


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_the_bytes_of_a_text_are_the_same_under_every_tokenizer(encoders, kind, texts):
    encoder = encoders[kind]
    lines = [line for text in texts if (line := " ".join(text.split()))]
    if not lines or not len(encoder(lines)[0]):
        return
    found = piece_bytes(encoder, lines)
    assert len(found) == len(encoder(lines)[0])
    assert (found >= 0).all()
    assert found.sum() == sum(len(line.encode()) + 1 for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_a_piece_starts_where_its_letters_do(encoders, kind):
    encoder = encoders[kind]
    for word in ("playing", "counters", "listened"):
        (starts,) = piece_starts(encoder, [word])
        pieces = [encoder.vocabulary.pieces[n] for n in encoder([word])[0]]
        bare = [piece.removeprefix("##").removesuffix("</w>").lstrip("Ġ▁") for piece in pieces]
        assert "".join(bare) == word
        ends = np.cumsum([len(piece) for piece in bare])
        assert starts == [0, *(int(end) + 1 for end in ends[:-1])]


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_own_the_bytes_of_their_tokens(tmp_path, kind):
    """Of held-out examples, against the words of the text counted one by one."""
    lines = sentences(600)
    text = "\n\n".join("\n".join(lines[n : n + 5]) for n in range(0, len(lines), 5))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    data = Data(corpora=(f"text:{tmp_path}/text.txt",), tokenizer=Tokenizer(kind=kind, vocab_size=KINDS[kind]))
    store = open_store(data, "heldout")
    behind = token_bytes(data, "heldout", store)
    assert len(behind) == len(store.ids)
    assert np.array_equal(behind, token_bytes(data, "heldout", store)), "the second time from the cache"
    sequences = RunningText(store, arrange(store, 16, "sentences"), 16)
    every = MaskedLM(masking={"rate": 1.0, "mask": 1.0, "same": 0.0, "random": 0.0})
    heldout = HeldOut(
        sequences,
        len(sequences),
        7,
        lambda tokens, draws, vocabulary: every.mask_inputs(_example(tokens), draws, vocabulary),
    )
    assert predicted_bytes(sequences, behind, heldout, "mlm") == behind.sum()


def _example(tokens):
    from lightning_modules.batch import Example

    return Example.of(tokens)
