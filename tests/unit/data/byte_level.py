"""Byte-level BPE of texts in several alphabets, with vocabularies so small that most letters are cut."""

from lightning_modules.data.text import tokenizer
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, byte_letters

LOWER = {  # lower-case letters alone, where there is a case
    "French": "été à côté élève naïf garçon île où œuvre ça près hôtel âge ère",
    "Hebrew": "שלום עולם בית ספר גדול ילדים אמא תפוח",
    "kana": "これ は カタカナ と ひらがな の ことば です",
    "Greek": "ελλάδα είναι όμορφη χώρα στην ευρώπη ἡ ἀρχὴ",
}
SIZES = (261, 275)  # single bytes, and pieces with parts of letters


def encoder(folder, text, size):
    """An encoder that was trained on a text alone, repeated."""
    path = folder / "tokenizer.json"
    path.write_text(tokenizer.train(Tokenizer(kind="byte_bpe", vocab_size=size), [text] * 50).to_str())
    return Encoder(path, "byte_bpe")


def spelt(text, end=None):
    """The piece of a text's bytes, or of so many of them."""
    letters = {byte: letter for letter, byte in byte_letters().items()}
    return "".join(letters[chr(byte)] for byte in text.encode()[:end])
