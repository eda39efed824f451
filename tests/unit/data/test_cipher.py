"""Two made languages: word by word the same sentences, with as many words in common as the name says."""

import itertools

import pytest

from lightning_modules.data.corpora import cipher
from lightning_modules.data.corpora.made import WORDS
from lightning_modules.data.corpora.registry import corpus

SWITCHES = "agreement=3,length=8,documents=4"


def read(name, split="train"):
    return list(corpus(name).documents(split))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_second_language_has_another_word_for_each_and_a_share_in_common(share):
    words = cipher.words(share)
    assert set(words) == set(WORDS)
    assert len(set(words.values())) == len(WORDS), "no two words become one"
    assert sum(word == other for word, other in words.items()) == round(share * len(WORDS))
    assert cipher.pieces(share) == 5 + 2 * 21 + len({*words, *words.values()})


def test_pairs_are_the_two_languages_in_the_same_order():
    pairs = read(f"cipher:a-b:share=0.25,{SWITCHES}")
    words = cipher.words(0.25)
    for one, other in pairs:
        assert [words[word] for word in one.split()] == other.split()
    alone = [read(f"cipher:{language}:share=0.25,{SWITCHES}") for language in "ab"]
    assert [[one, other] for (one,), (other,) in zip(*alone, strict=True)] == pairs
    assert read(f"cipher:b-a:share=0.25,{SWITCHES}") == [pair[::-1] for pair in pairs]
    heldout = {one for one, _ in read(f"cipher:a-b:share=0.25,{SWITCHES}", "heldout")}
    assert not heldout & {one for one, _ in pairs}


def test_letters_do_not_tell_which_word_stands_for_which():
    words = cipher.words(0.0)
    alike = [len(set(one) & set(other)) for one, other in words.items()]
    chance = [len(set(one) & set(other)) for one, other in itertools.product(words, words.values())]
    assert sum(alike) / len(alike) == pytest.approx(sum(chance) / len(chance), abs=0.15)
