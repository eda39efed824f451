"""Probes of words in their context: agreement, the case of pronouns, words put in from elsewhere, word classes."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from lightning_modules.probing.made.sentences import Example, Sentence, chance, is_plain, matched, short, shuffled

FORMS = {"is": "are", "was": "were", "has": "have", "does": "do"}
_OTHER = FORMS | {plural: singular for singular, plural in FORMS.items()}
_CASES = {"he": "him", "they": "them", "we": "us", "him": "he", "them": "they", "us": "we"}
# after these a form has no number of its own: infinitives, questions with an auxiliary, subjunctives
_GOVERNED = {"to", "not", "would", "could", "should", "must", "might", "may", "can", "will", "shall"}
_GOVERNED |= {"did", "do", "does", "if", "though", "wish", "let", "and", "or", "i'd", "you'd", "i", "you"}
# closed word classes, which are lists
DETERMINERS = frozenset({"the", "a", "an", "my", "your", "our", "their", "its", "his", "every", "each", "another"})
PREPOSITIONS = frozenset(
    {"of", "in", "on", "with", "by", "from", "at", "into", "for", "to", "over", "through", "about"}
)
AUXILIARIES = frozenset({"can", "could", "may", "might", "must", "shall", "should", "will", "would", "cannot"})
AUXILIARIES |= {"be", "am", "is", "are", "was", "were", "been", "have", "has", "had", "do", "does", "did", "not"}
PRONOUNS = frozenset({"i", "you", "he", "she", "we", "they", "who"})
CONJUNCTIONS = frozenset({"and", "or", "but", "if", "that", "than", "as", "when", "while", "because"})
_BEFORE_VERBS = PRONOUNS | {"can", "could", "may", "might", "must", "shall", "should", "will", "would", "cannot"}
_NEXT = {word: kind for kind, words in enumerate((DETERMINERS, PREPOSITIONS, CONJUNCTIONS)) for word in words}
_CLOSED = DETERMINERS | PREPOSITIONS | CONJUNCTIONS | PRONOUNS | AUXILIARIES | {"more", "one", "only"}
_SPARE = 1.3  # sentences drawn for each that is needed: some find no other word
_RANKS = range(150, 4000)  # of the words that are replaced, by frequency


def agreement(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Has the verb the wrong number: is for are, was for were, has for have, does for do, or the reverse?

    A sentence has exactly one of these eight forms, not in front, and not after a word that governs it; it is read at
    the verb. Each form is as frequent right as wrong, at each place and for each length in steps of four words, so that
    neither the form nor the lengths say anything. Noise: "were" of the subjunctive, collective nouns ("the team are"),
    nouns such as "the does".
    """
    candidates = []
    for number, sentence in enumerate(shuffled(short(sentences, 23), purpose)):
        words = sentence.words
        places = [i for i, word in enumerate(words) if word in _OTHER]
        if len(places) == 1 and places[0] > 0 and words[places[0] - 1].lower() not in _GOVERNED:
            example = _exchanged(words, places[0], _OTHER, number % 2)
            candidates.append((example, (example.words[places[0]], places[0], len(words) // 4)))
    return matched(candidates, count, purpose)


def pronoun_case(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Has the pronoun the wrong case: him for he, them for they, us for we, or the reverse?

    A sentence has exactly one of these six, neither among the first two words nor the last, and is read at it. Each is
    as frequent right as wrong, at each place, two by two, and for each length in steps of four words. Noise: "taller
    than he".
    """
    candidates = []
    for number, sentence in enumerate(shuffled(short(sentences, 28), purpose)):
        words = sentence.words
        places = [i for i, word in enumerate(words) if word.lower() in _CASES]
        if len(places) == 1 and 2 <= places[0] < len(words) - 1 and words[places[0]] in _CASES:
            example = _exchanged(words, places[0], _CASES, number % 2)
            candidates.append((example, (example.words[places[0]], places[0] // 2, len(words) // 4)))
    return matched(candidates, count, purpose)


def word_class(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Is the word a noun or a verb?

    Classes are known by lists of closed ones. A noun (class 0) follows a determiner: "the play". A verb (class 1)
    follows a modal auxiliary or a pronoun, "they play". It also follows "to", where it has no -s and follows one of
    these elsewhere. Either is of small letters, and a determiner, a preposition or a conjunction comes next. Each form
    is as frequent in either class, for each of these three, each place in steps of eight words and each length in steps
    of sixteen. So the form says nothing, and what follows very little. A reader needs the word in front. Noise: a few
    nouns after "to" count as verbs ("addition to work"), and a few adjectives as nouns.
    """
    found = [
        (sentence.words, place, before, word, _NEXT[after])
        for sentence in shuffled(short(sentences, 32), purpose)
        for place, (before, word, after) in enumerate(
            zip(sentence.words, sentence.words[1:], sentence.words[2:], strict=False), 1
        )
        if is_plain(word) and word not in _CLOSED and after in _NEXT
    ]
    found = [(words, place, before.lower(), word, kind) for words, place, before, word, kind in found]
    verbs = {word for _, _, before, word, _ in found if before in _BEFORE_VERBS and not word.endswith("s")}
    candidates = []
    for words, place, before, word, kind in found:
        is_verb = before in _BEFORE_VERBS or (before == "to" and word in verbs)
        if is_verb or before in DETERMINERS:
            candidates.append((Example(words, int(is_verb), place), (word, kind, place // 8, len(words) // 16)))
    return matched(candidates, count, purpose)


def _exchanged(words: tuple[str, ...], place: int, other: Mapping[str, str], label: int) -> Example:
    """The words as they are, or in class 1 with another form of the one that is read."""
    shown = other[words[place]] if label else words[place]
    return Example((*words[:place], shown, *words[place + 1 :]), label, place)


def odd_word(sentences: Sequence[Sentence], count: int, purpose: str) -> list[Example]:
    """Was a word exchanged for one of another sentence (Conneau et al. 2018: semantic odd man out)?

    Words of small letters and of middling frequency change places between sentences of class 1, with words of about
    the same frequency and with the same last two letters, so that the words of both classes have the same counts; the
    word is read, or in class 0 one drawn in the same way. Noise: a few words fit where they come.
    """
    frequency = Counter(word for sentence in sentences for word in sentence.words if is_plain(word))
    ranks = {word: rank for rank, (word, _) in enumerate(frequency.most_common())}
    drawn: list[tuple[Sentence, int]] = []
    for sentence in shuffled(short(sentences, 13), purpose):
        places = [i for i, word in enumerate(sentence.words) if i and len(word) > 3 and ranks.get(word, 0) in _RANKS]
        if places:
            drawn.append((sentence, places[chance(purpose, sentence.number, len(places))]))
    half = min(len(drawn) // 2, count // 2)
    whole, odd = drawn[:half], drawn[half : half + round(half * _SPARE)]
    groups: defaultdict[tuple[str, int], list[tuple[Sentence, int]]] = defaultdict(list)
    for sentence, place in odd:
        word = sentence.words[place]
        groups[word[-2:], ranks[word].bit_length()].append((sentence, place))
    changed = shuffled([example for group in groups.values() for example in _moved(group)], f"{purpose} changed")
    kept = [Example(sentence.words, 0, place) for sentence, place in whole]
    return [example for pair in zip(kept, changed, strict=False) for example in pair]


def _moved(group: Sequence[tuple[Sentence, int]]) -> list[Example]:
    """The sentences of a group, each with the word of another; those without another word to take drop out."""
    ordered = sorted(group, key=lambda item: item[0].words[item[1]])
    shift = max(Counter(sentence.words[place] for sentence, place in ordered).values())
    changed = []
    for n, (sentence, place) in enumerate(ordered):
        donor, at = ordered[(n + shift) % len(ordered)]
        if donor.words[at] != sentence.words[place]:
            changed.append(Example((*sentence.words[:place], donor.words[at], *sentence.words[place + 1 :]), 1, place))
    return changed
