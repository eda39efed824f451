"""What is measured of translations: scores by length, copies, repetitions, and methods without a network."""

import numpy as np
import pytest

from lightning_modules.data.baselines.translations import HeldOutText, heldout_text, lexicon, nearest, word_by_word
from lightning_modules.data.store import open_store
from lightning_modules.measures.translated import measured
from tests.translations import parallel_text, tiny_system

ENGLISH = ["a dog runs.", "a cat sleeps.", "the dog sleeps here.", "the old cat runs there now."]
GERMAN = ["ein Hund läuft.", "eine Katze schläft.", "der Hund schläft hier.", "die alte Katze läuft jetzt dort."]


def text(**simple):
    return HeldOutText(ENGLISH, GERMAN, simple or {"copy": ENGLISH})


def scores(written, **simple):
    return measured(written, np.arange(len(written)), text(**simple)).metrics


def test_perfect_translations_have_every_point_and_no_copied_word():
    found = scores(GERMAN)
    assert found["bleu"] == found["chrf"] == pytest.approx(100)
    assert (found["copied_words"], found["translation_length"], found["translations"]) == (0, 1, 4)
    assert found["bleu_long_minus_short"] == pytest.approx(0)
    assert found["bleu_copy"] < 10


def test_long_sources_are_a_part_of_their_own():
    found = scores([*GERMAN[:3], "falsch und noch einmal falsch"])
    assert found["bleu_short"] == pytest.approx(100)
    assert found["bleu_long"] == 0
    assert found["bleu_long_minus_short"] == pytest.approx(-100)


def test_copies_and_repetitions_are_counted_where_the_reference_has_none():
    found = scores(["a dog runs.", GERMAN[1], GERMAN[2], "die Katze die Katze die Katze"])
    assert found["copied_words"] == pytest.approx(3 / 19), "the full stop is in the reference"
    assert found["repeated_bigrams"] == pytest.approx(3 / 15)
    assert found["repeated_bigrams_reference"] == 0


def test_the_best_of_the_simple_methods_is_named():
    found = scores(ENGLISH, copy=ENGLISH, nearest=GERMAN)
    assert found["bleu_best_simple"] == found["bleu_nearest"] == pytest.approx(100)


def test_some_of_the_pairs_are_scored_by_their_own_references():
    found = measured(GERMAN[2:], np.array([2, 3]), text())
    assert found.metrics["bleu"] == pytest.approx(100)
    assert [row["reference"] for row in found.kept["shown"]] == GERMAN[2:]


def test_a_lexicon_learns_which_words_belong_together_whatever_their_order():
    noise = np.random.default_rng(0)
    pairs = [noise.integers(9, size=5) for _ in range(200)]
    sources = [" ".join(f"e{n}" for n in pair) for pair in pairs]
    targets = [" ".join(f"d{n}" for n in pair[::-1]) for pair in pairs]
    assert lexicon(sources, targets) == {f"e{n}": f"d{n}" for n in range(9)}
    assert word_by_word(["e3 unknown e1."], sources, targets) == ["d3 unknown d1."]


def test_the_nearest_source_lends_its_translation():
    assert nearest(["the old dog runs there now."], ENGLISH, GERMAN) == [GERMAN[3]]
    assert nearest(["nothing known"], ENGLISH, GERMAN) == [GERMAN[0]]


def test_held_out_text_is_that_of_the_corpus_in_the_order_of_its_store(tmp_path, shared_cache):
    data = tiny_system(parallel_text(tmp_path / "text")).data
    store = open_store(data, "heldout")
    found = heldout_text(data, store)
    assert len(found.sources) == len(found.targets) == len(store.documents) - 1
    assert found.simple["copy"] == found.sources
    assert all(line.endswith(".") for line in found.targets)
    assert {len(lines) for lines in found.simple.values()} == {len(found.sources)}
