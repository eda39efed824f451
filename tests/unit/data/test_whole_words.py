"""Whole hidden words: the same under every tokenizer, each piece asked once and given those before it."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.data import Data, Tokenizer
from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.whole_words import hidden_words, stretches

KINDS = {"wordpiece": 120, "byte_bpe": 300, "unigram": 70, "letter_bpe": 120}
STEMS = ["play", "walk", "talk", "listen", "Émile", "naïve", "paint", "count", "follow", "don't", "x2", "b2b", "(play)"]
ENDS = ["", "s", "ed", "ing", "ers", "ers,", "...", "'s"]
LENGTH = 40


def words(count, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.choice(STEMS) + draw.choice(ENDS) for _ in range(count)]


def texts(count=60, seed=1):
    drawn = words(12 * count, seed)
    return [" ".join(drawn[n : n + 12]) for n in range(0, len(drawn), 12)]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    lines = [" ".join(words(8, seed)) for seed in range(300)]
    found = {}
    for kind, size in KINDS.items():
        path = tmp_path_factory.mktemp("tokenizers") / "tokenizer.json"
        path.write_text(tokenizer.train(Tokenizer(kind=kind, vocab_size=size), lines).to_str())
        found[kind] = Encoder(path, kind)
    return found


def asked(hidden, encoder):
    """The hidden words of each stretch as text, put together from the rows that ask for their pieces."""
    mask, pieces, rows = encoder.vocabulary.mask, encoder.vocabulary.pieces, []
    for example in hidden.examples:
        ids, target = example.inputs.ids.numpy(), example.targets["mlm"]
        assert (ids.reshape(-1)[target.where.numpy()] == mask).all(), "what is asked is hidden"
        for place, wanted in zip(target.where.tolist(), target.ids.tolist(), strict=True):
            row, column = divmod(place, ids.shape[1])
            rows.append((int(example.inputs.sample[row]), ids[row], column, wanted))
    words = [(sample, ids, column, [wanted]) for sample, ids, column, wanted in rows[: hidden.words]]
    for sample, ids, column, wanted in rows[hidden.words :]:
        (known,) = (
            spelt
            for other, base, start, spelt in words
            if sample == other and np.flatnonzero(base != ids).tolist() == [*range(start, column)]
        )
        start = column - len(known)
        assert ids[start:column].tolist() == known, "the pieces before it are shown, and nothing else"
        known.append(wanted)
    bare = [piece.removeprefix("##").removesuffix("</w>").lstrip("Ġ▁") for piece in pieces]
    return [(sample, "".join(bare[n] for n in spelt)) for sample, _, _, spelt in words]


def test_the_same_words_are_hidden_under_every_tokenizer(encoders):
    found = {
        kind: hidden_words(texts(), encoder, length=LENGTH * 3, rate=0.3, batch_size=16)
        for kind, encoder in encoders.items()
    }
    listed = {kind: asked(hidden, encoders[kind]) for kind, hidden in found.items()}
    first = listed["wordpiece"]
    assert len(first) > 50
    assert listed["byte_bpe"] == first
    assert listed["unigram"] == first
    assert listed["letter_bpe"] == first
    for hidden in found.values():
        assert hidden.words == len(first)
        assert hidden.bytes == sum(len(word) + 1 for _, word in first)
        assert hidden.unknown == 0
    allowed = {stem.split("'")[0].strip("()") + end.strip(",.").split("'")[0] for stem in STEMS for end in ["", *ENDS]}
    assert {word for _, word in first} <= {word.lower() for word in allowed}
    assert not {word for _, word in first if not word.isascii() or word.endswith("2") or word.startswith("(")}


def test_all_other_hidden_words_stay_hidden(encoders):
    """In every row as many hidden words are whole as the row has, less the one whose pieces are shown."""
    encoder = encoders["wordpiece"]
    hidden = hidden_words(texts(), encoder, length=LENGTH * 3, rate=0.3, batch_size=16)
    mask, base = encoder.vocabulary.mask, {}
    for example in hidden.examples:
        for row, sample in zip(example.inputs.ids.numpy(), example.inputs.sample.tolist(), strict=True):
            base.setdefault(sample, row == mask)
            assert not ((row == mask) & ~base[sample]).any(), "nothing is hidden that was not"
            shown = base[sample] & (row != mask)
            runs = np.flatnonzero(np.diff(np.concatenate([[False], shown]).astype(int)) == 1)
            assert len(runs) <= 1, "the pieces of one word at most are shown"
    rows = sum(len(example.inputs.ids) for example in hidden.examples)
    pieces = sum(int(example.targets["mlm"].count()) for example in hidden.examples)
    assert rows == len(base) + pieces - hidden.words, "one row a stretch, and one for each further piece"


def test_a_stretch_that_does_not_fit_is_divided_between_words(encoders):
    wide = hidden_words(texts(), encoders["byte_bpe"], length=120, rate=0.3, batch_size=16)
    narrow = hidden_words(texts(), encoders["byte_bpe"], length=LENGTH // 2, rate=0.3, batch_size=16)
    assert (narrow.words, narrow.bytes) == (wide.words, wide.bytes)
    assert asked(narrow, encoders["byte_bpe"]) != []
    assert all(example.inputs.ids.shape[1] == LENGTH // 2 for example in narrow.examples)
    count = {n: sum(e.targets["mlm"].count() for e in hidden.examples) for n, hidden in enumerate((wide, narrow))}
    assert count[0] == count[1]


def test_a_lower_rate_hides_some_of_the_same_words(encoders):
    some, more = (
        set(
            asked(
                hidden_words(texts(), encoders["wordpiece"], length=120, rate=rate, batch_size=16),
                encoders["wordpiece"],
            )
        )
        for rate in (0.1, 0.4)
    )
    assert some < more


def test_numbers_of_pieces_cost_their_entropy(encoders):
    """Words of which one half has one piece and the other two, hidden or not."""
    encoder = encoders["wordpiece"]
    by_size = {}
    for word in ("play", "walk", "players", "talking", "counts", "paints", "listened"):
        by_size.setdefault(len(encoder([word])[0]), word)
    assert len(by_size) > 1
    (one, first), (two, second) = sorted(by_size.items())[:2]
    found = hidden_words([f"{first} {second}"] * 30, encoder, length=LENGTH, rate=1.0, batch_size=8)
    assert found.words == 60
    assert found.length_nats == pytest.approx(60 * np.log(2))
    assert sum(example.targets["mlm"].count() for example in found.examples) == 30 * (one + two)
    same = hidden_words([first] * 30, encoder, length=LENGTH, rate=1.0, batch_size=8)
    assert same.length_nats == 0


def test_text_without_words_to_hide_is_refused(encoders):
    with pytest.raises(ConfigError, match=r"no word to hide: evaluation\.words needs words of ASCII letters"):
        hidden_words(["日本 1990 naïve 'tis"], encoders["wordpiece"], length=LENGTH, rate=1.0, batch_size=8)


def test_stretches_do_not_depend_on_the_tokenizer_and_fit_by_their_bytes(tmp_path, monkeypatch):
    lines = texts(400)
    text = "\n\n".join("\n".join(lines[n : n + 8]) for n in range(0, len(lines), 8))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    data = [
        Data(corpora=(f"text:{tmp_path}/text.txt",), tokenizer=Tokenizer(kind=kind, vocab_size=KINDS[kind]))
        for kind in KINDS
    ]
    found = stretches(data[0], 64, 1000)
    assert all(62 < sum(len(word.encode()) + 1 for word in stretch.split(" ")) <= 124 for stretch in found)
    assert all(stretches(other, 64, 1000) == found for other in data)
    assert stretches(data[0], 64, 3) == found[:3]
    held = " ".join(text.split())
    assert all(stretch in held for stretch in found)
    assert stretches(data[0], 32, 1000) != found
