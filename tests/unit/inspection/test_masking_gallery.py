"""The gallery of masking schemes: pictures of a sentence, and numbers of a text beside their formulas."""

import pytest

from ablations.inspection.masking_gallery import SCHEMES, Gallery, expected_words
from lightning_modules.data import Data, Tokenizer
from lightning_modules.objectives import Masking
from lightning_modules.objectives.masking import Spans
from tests import tiny

SENTENCE = "the old cat sees Mary Jones under the young dog"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return Data(corpora=(tiny.text(tmp_path / "text", documents=200),), tokenizer=Tokenizer(vocab_size=70))


def drawn(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_a_picture_shows_the_sentence_once_a_scheme_and_masks_in_it(data):
    text = drawn(Gallery(SENTENCE, data).picture())
    assert all(name in text for name in SCHEMES)
    assert text.count("[MASK]") >= len(SCHEMES)
    nothing = {"as it is": Masking(mask=0.0, same=1.0, random=0.0)}
    assert "[MASK]" not in drawn(Gallery(SENTENCE, data, nothing).picture())


def test_schemes_hide_their_share_and_stand_together_as_their_formulas_say(data):
    numbers = Gallery(SENTENCE, data, sequences=400).measured().data.set_index("scheme")
    assert numbers.loc["BERT, single pieces", "hidden"] == pytest.approx(0.15, abs=0.01)
    assert numbers.loc["BERT, single pieces", "mask"] == pytest.approx(0.8, abs=0.06)
    assert numbers.loc["BERT, whole words", "words"] == 1
    assert numbers.loc["SpanBERT, spans", "words"] > numbers.loc["ALBERT, n-grams", "words"] > 1
    assert expected_words(Masking(units=Spans())) == pytest.approx(3.797, abs=0.001)
