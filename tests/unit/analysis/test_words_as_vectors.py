"""Words as vectors: rows of the embedding table, states in sentences, nearest words."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_modules.analysis.words_as_vectors import (
    WordVectors,
    nearest_alike,
    nearest_occurrences,
    word_states,
)
from lightning_modules.config import ConfigError
from lightning_modules.data import Vocabulary
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder, as_example
from tests.unit.data.byte_level import spelt


@pytest.fixture(params=[("wordpiece", 64), ("byte_bpe", 300), ("unigram", 64)], ids=str)
def asked(tiny, request):
    """An untrained model and its tokenizer."""
    kind, size = request.param
    system = tiny.but(**{"data.tokenizer.kind": kind, "data.tokenizer.vocab_size": size})
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    return system.build(0).eval(), encoder


def test_words_are_whole_words_with_their_rows(asked):
    module, encoder = asked
    words = WordVectors.of(module, encoder)
    table = module.backbone.embeddings.word.weight.detach().numpy()
    pieces = encoder.vocabulary.pieces
    assert words.words
    for word, vector in zip(words.words, words.vectors, strict=True):
        assert word.isalpha()
        piece = {"wordpiece": "", "byte_bpe": "Ġ", "unigram": "▁"}[encoder.kind] + word
        assert np.array_equal(vector, table[pieces.index(piece)])
    with pytest.raises(ConfigError, match="not whole words of the vocabulary: xyzzy"):
        words.take([words.words[0], "xyzzy"])


def test_where_ends_are_marked_words_are_pieces_with_the_mark():
    table = torch.nn.Embedding(5, 2)
    backbone = torch.nn.ModuleDict({"embeddings": torch.nn.ModuleDict({"word": table})})
    vocabulary = Vocabulary.of(["[SEP]", "cat</w>", "cat", "1</w>", "s</w>"], "letter_bpe")
    words = WordVectors.of(SimpleNamespace(backbone=backbone), SimpleNamespace(vocabulary=vocabulary))
    assert words.words == ("cat", "s")
    assert np.array_equal(words.vectors, table.weight.detach().numpy()[[1, 4]])


def test_words_of_byte_level_pieces_are_those_that_their_bytes_spell():
    """Every part of a word that begins it is a piece, too; those that cut a letter are no word."""
    words = ["café", "naïf", "élan", "שלום", "です", "カード", "ναι"]
    cuts = [spelt(" " + word, end) for word in words for end in range(2, len(word.encode()) + 2)]
    vocabulary = Vocabulary.of(["[SEP]", *dict.fromkeys(cuts), spelt("é"), spelt(" a1")], "byte_bpe")
    table = torch.nn.Embedding(vocabulary.size, 2)
    backbone = torch.nn.ModuleDict({"embeddings": torch.nn.ModuleDict({"word": table})})
    found = WordVectors.of(SimpleNamespace(backbone=backbone), SimpleNamespace(vocabulary=vocabulary))
    assert found.words == tuple(word[:end] for word in words for end in range(1, len(word) + 1))
    rows = table.weight.detach().numpy()
    for word in words:
        assert np.array_equal(found.take([word])[0], rows[vocabulary.pieces.index(spelt(" " + word))])


def test_neighbours_are_by_angle_around_the_mean():
    far = np.array([100.0, 100.0])
    vectors = far + np.array([[1.0, 0.0], [5.0, 0.5], [0.0, 1.0], [-6.0, -1.5]])
    words = WordVectors(("a", "b", "c", "d"), vectors)
    assert [near.word for near in words.neighbours("a", 3)] == ["b", "c", "d"]
    assert words.neighbours("a", 1)[0].cosine == pytest.approx(5 / np.hypot(5, 0.5), abs=1e-12)
    assert all(-1 <= near.cosine <= 1 for near in words.neighbours("c", 3))
    with pytest.raises(ConfigError, match="not whole words"):
        words.neighbours("e")


def test_states_are_those_of_the_word_in_its_sentence(asked):
    module, encoder = asked
    sentences = ["w03 w11. w20", "W11 w05"]
    found = word_states(module, encoder, sentences, "w11")
    assert found.shape == (2, 2, 16)
    ids = encoder.fast.encode(sentences[0], add_special_tokens=False).ids
    alone, before = (encoder([text])[0].tolist() for text in ("w11", "w03"))
    if encoder.kind == "wordpiece":  # the pieces of words in a row are those of each word
        assert ids[len(before) : len(before) + len(alone)] == alone
        with torch.no_grad():
            layers = module.backbone(as_example(ids, encoder.vocabulary)).layers
        for layer, states in zip(layers, found[:, 0], strict=True):
            own = layer[0, 1 + len(before) : 1 + len(before) + len(alone)]
            assert np.allclose(own.mean(0), states, atol=1e-6)
    with pytest.raises(ConfigError, match="'w11' is not in the sentence 'w1 1'"):
        word_states(module, encoder, ["w1 1"], "w11")
    with pytest.raises(ConfigError, match=r"too long.*max_positions is 16"):
        word_states(module, encoder, ["w11 " * 40], "w11")


def test_how_many_have_their_nearest_in_their_own_group():
    vectors = np.array([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    assert nearest_alike(vectors, "aabb") == 4
    assert nearest_alike(vectors, "abab") == 0
    assert nearest_alike(vectors * 3, "aabb") == 4
    assert nearest_alike(np.ones((4, 2)), "aabb") is None


def test_words_by_characters_have_vectors_and_neighbours_too(tiny):
    own = {
        "model.kind": "lstm", "model.characters": {"filters": [4, 8], "size": 4, "highways": 1}, "model.hidden_size": 8,
        "model.embedding_size": 8, "model.direction": "two_way", "model.num_layers": 2, "objectives.mlm": None,
        "objectives.lm": {"direction": "two_way", "units": "words"},
    }  # fmt: skip
    system = tiny.but(**own)
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    module = system.build(0).eval()
    words = WordVectors.of(module, encoder)
    assert words.vectors.shape == (len(words.words), 8)
    assert len({vector.tobytes() for vector in words.vectors}) == len(words.words)
    text = ["w01 w02 w03", "w11 w12", "w02 w30"]
    found = nearest_occurrences(module, encoder, "w05 w02", "w02", [*text, "w05 w02"], layer=0, count=2)
    assert {(one.word, one.sentence) for one in found} == {("w02", text[0]), ("w02", text[2])}, "layer 0 has no context"
    assert found[1].cosine == pytest.approx(1.0, abs=1e-5)
    above = nearest_occurrences(module, encoder, "w05 w02", "w02", text)
    assert [one.cosine for one in above] == sorted((one.cosine for one in above), reverse=True)
    assert above[0].cosine < 1.0 - 1e-6
    with pytest.raises(ConfigError, match="the word 'w40' is not in the sentence"):
        nearest_occurrences(module, encoder, "w01", "w40", text)
