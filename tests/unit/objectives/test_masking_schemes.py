"""Who is hidden: every scheme equals a slow and obvious one, row by row, and keeps its promises."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Unsupported
from lightning_modules.data import Vocabulary
from lightning_modules.objectives import Masking
from lightning_modules.objectives.masking import Bionic, NGrams, Pieces, Spans, SpreadSpans, Tagged, Text, WholeWords
from tests.conftest import make_draws, make_tokens

SIZE = 60
VOCABULARY = Vocabulary(
    tuple(f"##{n}" if n > 4 and n % 3 == 0 else str(n) for n in range(SIZE)),
    np.array([n < 5 or n % 3 != 0 for n in range(SIZE)]),
)
TAGGED = Tagged(annotator="capitalised")
UNITS = [Pieces(), WholeWords(), NGrams(), NGrams(longest=5), Spans(), Spans(p=0.5, longest=4), TAGGED,
         TAGGED.but(share=1.0), TAGGED.but(share=0.0), Bionic(), SpreadSpans(),
         SpreadSpans(longest=3, counted="words")]  # fmt: skip
EXACT = [units for units in UNITS if isinstance(units, (Pieces, Spans, Tagged))]
FILLED = [*EXACT, *(units for units in UNITS if isinstance(units, SpreadSpans))]
named = pytest.mark.parametrize("units", UNITS, ids=str)


def text(rows=6, length=24, padding=5, seed=0, separators=True):
    """Pieces of words, in some rows two texts with [SEP] between them, in some no [CLS] before them; tags at random."""
    tokens = make_tokens(rows, length, SIZE, padding, seed)
    tokens.ids[1::3, 0], tokens.special[1::3, 0] = 7, False
    if separators:
        middle = length // 2
        tokens.ids[::3, middle], tokens.special[::3, middle] = 3, True
    noise = torch.Generator().manual_seed(seed)
    tags = torch.multinomial(torch.tensor([0.7, 0.15, 0.15]), rows * length, replacement=True, generator=noise)
    return replace(tokens, marks={("capitalised", "entities"): tags.reshape(rows, length)})


def chosen(units, tokens, draws, **knobs):
    return Masking(units=units, **knobs).choose(tokens, draws, VOCABULARY)


# One row at a time: ids, which positions may be hidden, tags, budget, draws of the row -> group of each position


def words_of(row):
    """The words of a row, each a list of positions; a special position ends a word and a text."""
    words, texts = [], []
    for at, (piece, free) in enumerate(zip(row.ids, row.free, strict=True)):
        if not free:
            continue
        if at == 0 or not row.free[at - 1]:
            texts.append([])
        if not texts[-1] or not VOCABULARY.pieces[piece].startswith("##"):
            words.append([])
            texts[-1].append(words[-1])
        words[-1].append(at)
    return words, texts


def by_words(row, units):
    groups = [-1] * len(row.ids)
    rest = row.budget
    words, _ = words_of(row)
    if isinstance(units, Bionic):
        words = [word[1:] for word in words if len(word) > 1]
    for word in sorted(words, key=lambda word: row.choose[word[0]]):
        if len(word) <= rest:
            rest -= len(word)
            for at in word:
                groups[at] = word[0]
    return groups


def by_ngrams(row, units):
    groups, rest = [-1] * len(row.ids), row.budget
    words, texts = words_of(row)
    for word in sorted(words, key=lambda word: row.choose[word[0]]):
        (within,) = [t for t in texts if word in t]
        grams = [list(chain(*within[i : i + n])) for i in [within.index(word)] for n in range(1, units.longest + 1)
                 if i + n <= len(within)]  # fmt: skip
        weights = [1 / n for n in range(1, len(grams) + 1)]
        total, drawn = 0.0, 0
        for n, weight in enumerate(weights):
            total += weight / sum(weights)
            drawn = n
            if row.length[word[0]] < total:
                break
        while drawn >= 0 and len(grams[drawn]) > rest:
            drawn -= 1
        if drawn < 0 or any(groups[at] >= 0 for at in grams[drawn]):
            continue
        rest -= len(grams[drawn])
        for at in grams[drawn]:
            groups[at] = word[0]
    return groups


def joined(hidden):
    groups = []
    for at, gone in enumerate(hidden):
        groups.append(-1 if not gone else groups[-1] if at and hidden[at - 1] else at)
    return groups


def span_at(row, anchor, count):
    """The positions from the start of a position's word on, so many words, within its text."""
    _, texts = words_of(row)
    for within in texts:
        for n, word in enumerate(within):
            if anchor in word:
                return list(chain(*within[n : n + count]))
    raise AssertionError


def by_spans(row, units):
    hidden = [False] * len(row.ids)
    shares = [units.p * (1 - units.p) ** n for n in range(units.longest)]
    for anchor in sorted(np.flatnonzero(row.free), key=lambda at: row.choose[at]):
        if hidden[anchor]:
            continue
        count = 1 + sum(row.length[anchor] >= sum(shares[: n + 1]) / sum(shares) for n in range(units.longest - 1))
        for at in span_at(row, anchor, count):
            hidden[at] |= sum(hidden) < row.budget
    return joined(hidden)


def by_tags(row, units):
    hidden, tags = [False] * len(row.ids), []
    for at, (tag, free) in enumerate(zip(row.tags, row.free, strict=True)):
        if free and tag == 2 and tags and tags[-1][-1] == at - 1:
            tags[-1].append(at)
        elif free and tag:
            tags.append([at])
    free = np.flatnonzero(row.free)
    for step in range(len(row.ids)):
        if sum(hidden) >= row.budget:
            break
        new = [tag for tag in tags if not all(hidden[at] for at in tag)]
        visible = [at for at in free if not hidden[at]]
        tag_chance = units.share * len(new) / max(1, len(tags))
        word_chance = (1 - units.share) * len(visible) / len(free)
        if new and row.coin[step] < tag_chance / (tag_chance + word_chance):
            span = new[int(row.which[step] * len(new))]
        else:
            span = span_at(row, min(visible, key=lambda at: row.choose[at]), 1)
        for at in span:
            hidden[at] |= sum(hidden) < row.budget
    return joined(hidden)


def by_spread_spans(row, units):
    groups, rest, at = [-1] * len(row.ids), row.budget, 0
    words, texts = words_of(row)
    line = [int(place) for place in np.flatnonzero(row.free)]
    weights = [1 / n for n in range(1, units.longest + 1)]
    for number in range(len(row.ids)):
        drawn, total = 1, weights[0]
        while drawn < units.longest and row.length[number] * sum(weights) >= total:
            total += weights[drawn]
            drawn += 1
        count = min(drawn, rest)
        around = int(count * (len(line) / max(1, row.budget)))
        before = int(row.offset[number] * around)
        start = next((n for n in range(at + before, len(line)) if any(line[n] == word[0] for word in words)), None)
        if start is None or not rest:
            break
        (within,) = [text for text in texts for word in text if line[start] in word]
        letters = list(chain(*within))
        if units.counted == "words":
            letters = span_at(row, line[start], count)
            count = len(letters)
        inside = letters[letters.index(line[start]) :][: min(count, rest)]
        for place in inside:
            groups[place] = line[start]
        rest, at = rest - len(inside), start + len(inside) + around - before
    left = sorted((place for place in line if groups[place] < 0), key=lambda place: row.choose[place])
    for place in left[: row.budget - sum(group >= 0 for group in groups)]:
        groups[place] = place
    return groups


def by_pieces(row, units):
    order = sorted(np.flatnonzero(row.free), key=lambda at: row.choose[at])
    return [at if at in order[: row.budget] else -1 for at in range(len(row.ids))]


SLOW = {Pieces: by_pieces, WholeWords: by_words, Bionic: by_words, NGrams: by_ngrams, Spans: by_spans, Tagged: by_tags,
        SpreadSpans: by_spread_spans}  # fmt: skip


class Row:
    def __init__(self, tokens, draws, number, budget):
        columns = tokens.ids.shape[1]
        self.ids, self.budget = tokens.ids[number].tolist(), int(budget[number])
        self.free = (tokens.real & ~tokens.special)[number].numpy()
        self.tags = tokens.marks[("capitalised", "entities")][number].tolist()
        self.choose, self.length = draws.uniform("choose", columns)[number], draws.uniform("length", columns)[number]
        self.offset = draws.uniform("offset", columns)[number]
        self.coin = draws.uniform("tagged or word", columns)[number]
        self.which = draws.uniform("which tag", columns)[number]


@named
@given(rate=st.floats(0.02, 1.0), seed=st.integers(0, 2**31), length=st.integers(8, 40))
def test_each_scheme_is_the_obvious_one(units, rate, seed, length):
    tokens, draws = text(6, length, 3, seed), make_draws(6, seed)
    masking = Masking(rate=rate, units=units)
    budget = masking._budget(Text(tokens, VOCABULARY), draws, rate)
    groups = chosen(units, tokens, draws, rate=rate)
    for number in range(6):
        assert groups[number].tolist() == SLOW[type(units)](Row(tokens, draws, number, budget), units)


@named
@given(rate=st.floats(0.02, 1.0), seed=st.integers(0, 2**31), cap=st.one_of(st.none(), st.integers(1, 9)))
def test_never_specials_never_more_than_the_budget_and_groups_are_one_piece_of_text(units, rate, seed, cap):
    tokens, draws = text(seed=seed), make_draws(6, seed)
    groups = chosen(units, tokens, draws, rate=rate, cap=cap)
    hidden, candidates = groups >= 0, (tokens.real & ~tokens.special).numpy()
    budget = Masking(rate=rate, cap=cap)._budget(Text(tokens, VOCABULARY), draws, rate)
    assert not (hidden & ~candidates).any()
    assert (hidden.sum(1) == budget).all() if units in FILLED else (hidden.sum(1) <= budget).all()
    for row in groups:
        for first in set(row.tolist()) - {-1}:
            (members,) = np.nonzero(row == first)
            assert members.tolist() == list(range(first, first + len(members)))
    if units.spans:  # the words beside a group are visible
        assert not (hidden[:, 1:] & hidden[:, :-1] & (groups[:, 1:] != groups[:, :-1])).any()


@pytest.mark.parametrize("units", EXACT, ids=str)
@given(low=st.floats(0.02, 1.0), high=st.floats(0.02, 1.0), seed=st.integers(0, 2**31))
def test_rates_nest_where_spans_are_cut_at_the_budget(units, low, high, seed):
    low, high = sorted((low, high))
    tokens, draws = text(seed=seed), make_draws(6, seed)
    fewer, more = (chosen(units, tokens, draws, rate=rate) >= 0 for rate in (low, high))
    assert (fewer <= more).all()


def test_text_without_an_annotation_is_refused_by_name():
    with pytest.raises(Unsupported, match="entities by capitalised"):
        Masking(units=TAGGED).choose(make_tokens(), make_draws(), VOCABULARY)
