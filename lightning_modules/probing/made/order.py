"""Probes of order: were neighbours swapped, or distant words, or clauses; how far apart is a copy?"""

from collections import Counter
from collections.abc import Mapping, Sequence

from lightning_modules.probing.made.sentences import Example, Sentence, chance, is_plain, matched, short, shuffled

_JOINS = ("and", "but", "or", "nor", "yet", "so")
_SHORTEST_PART = 3  # words
_APART = 3  # places
_NEAR, _FAR = 1, 4  # places


def word_order(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Were two neighbouring words swapped (Conneau et al. 2018: bigram shift)?

    Only words of small letters are swapped, none among the first two or the last two. Class 1 has the swap; classes
    are dealt out without a look at the sentence, so lengths and words say nothing. Noise: some swaps leave good
    English ("not only", "only not"), some sentences of the text are odd as they are.
    """
    examples: list[Example] = []
    for sentence in shuffled(short(sentences, 12), purpose):
        words = sentence.words
        places = [i for i in range(2, len(words) - 3) if is_plain(words[i]) and is_plain(words[i + 1])]
        places = [i for i in places if words[i] != words[i + 1]]
        if places and len(examples) < count:
            label, place = len(examples) % 2, places[chance(purpose, sentence.number, len(places))]
            swapped = (*words[:place], words[place + 1], words[place], *words[place + 2 :])
            examples.append(Example(swapped if label else words, label))
    return examples


def far_order(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Were two words exchanged that are at least three places apart?

    As `word_order`, but neither word has a neighbour that alone would reveal the swap.
    """
    examples: list[Example] = []
    for sentence in shuffled(short(sentences, 13), purpose):
        words, label = list(sentence.words), len(examples) % 2
        places = [i for i in range(2, len(words) - 2) if is_plain(words[i])]
        pairs = [(i, j) for i in places for j in places if j - i >= _APART and words[i] != words[j]]
        if pairs and len(examples) < count:
            i, j = pairs[chance(purpose, sentence.number, len(pairs))]
            if label:
                words[i], words[j] = words[j], words[i]
            examples.append(Example(words, label))
    return examples


def coordination(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Were the parts around a comma with a conjunction exchanged (Conneau et al. 2018: coordination inversion)?

    A sentence has one such place, with at least three words on either side; first words change their capitals when
    they move. Classes are equally frequent for each first word and for each pair of lengths, in steps of a few words,
    *as shown*: neither the opening nor the lengths nor the place of the comma say much. Noise: some parts may be
    exchanged freely; lists ("a, b, and c") are broken, not exchanged. What a second clause begins with ("was", "then")
    reveals a little: a bag of words is right in 53 %, of novels and Wikipedia.
    """
    known = Counter(word for sentence in sentences for word in sentence.words[1:])
    candidates = []
    for number, sentence in enumerate(shuffled(sentences, purpose)):
        if (parts := _parts(sentence.words, known)) is not None:
            first, join, second = parts
            shown = (second, join, first) if number % 2 else (first, join, second)
            example = Example(_joined(*shown, sentence.words[-1][-1]), number % 2)
            candidates.append((example, (example.words[0], len(shown[0]) // 3, len(example.words) // 4)))
    return matched(candidates, count, purpose)


def _parts(words: tuple[str, ...], known: Mapping[str, int]) -> tuple[tuple[str, ...], str, tuple[str, ...]] | None:
    """First part, conjunction and second part without comma and full stop; None if a sentence has another form."""
    ends = [i for i in range(len(words) - 1) if words[i][-1] == "," and words[i + 1] in _JOINS]
    if len(ends) != 1:
        return None
    (end,) = ends
    opening = words[0].lower() if known.get(words[0].lower(), 0) > known.get(words[0], 0) else words[0]
    first, second = (opening, *words[1:end], words[end][:-1]), (*words[end + 2 : -1], words[-1][:-1])
    return (first, words[end + 1], second) if min(len(first), len(second)) >= _SHORTEST_PART else None


def _joined(first: tuple[str, ...], join: str, second: tuple[str, ...], mark: str) -> tuple[str, ...]:
    opening = first[0][:1].upper() + first[0][1:]
    return (opening, *first[1:-1], f"{first[-1]},", join, *second[:-1], f"{second[-1]}{mark}")


def distance(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Is a word repeated at once, or farther away?

    One word of a sentence is put in a second time, one place before or after the first or four; it is chosen, with
    room for either, without a look at the class, so that lengths, words, first and last words say nothing. It is read
    where it stood. Noise: none in the label.
    """
    examples: list[Example] = []
    for sentence in shuffled(short(sentences, 15), purpose):
        words, label = sentence.words, len(examples) % 2
        inner = range(_FAR + 1, len(words) - _FAR - 1)
        places = [i for i in inner if is_plain(words[i]) and words.count(words[i]) == 1]
        if places and len(examples) < count:
            place = places[chance(purpose, sentence.number, len(places))]
            gap = (_FAR if label else _NEAR) * (1 if chance(f"{purpose} side", sentence.number, 2) else -1)
            at = place + gap if gap > 0 else place + gap + 1
            examples.append(Example((*words[:at], words[place], *words[at:]), label, place + (gap < 0)))
    return examples
