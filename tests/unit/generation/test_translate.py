"""Beam search: against exhaustive search, with and without a cache, in any batch; and what is refused."""

import itertools

import pytest
import torch

from lightning_modules.batch import Example, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.generation.translate import Beam, Translator
from lightning_modules.objectives import LanguageModel
from tests.conftest import make_vocabulary
from tests.translations import recurrent, settings

SOURCES = [[5, 6, 7], [8], [7, 5, 5, 6, 8, 6], [6, 6]]
FORMS = {
    "after": {},
    "before": {"norm": "pre"},
    "rotary": {"positions": "rotary"},
    "biases": {"positions": "linear_bias"},
    "narrow keys": {"key_size": 3},
    "lstm": {"attention": "general"},
    "lstm without attention": {"attention": "none"},
}


def translator(words=9, cached=True, seed=0, end=1.0, **knobs):
    torch.manual_seed(seed)
    form, lm = (recurrent if "attention" in knobs else settings)(**knobs), LanguageModel(transform="none", bias=False)
    backbone = form.build(words).double().eval()
    backbone.table.data[3] *= end
    return Translator(backbone, lm.heads(form.size(words)), lm, make_vocabulary(words), form.longest, cached)


def row(ids, source=None):
    ids = torch.tensor([ids])
    real = torch.ones_like(ids, dtype=torch.bool)
    return Tokens(ids, ~real, real, torch.zeros(1, dtype=torch.long), source=source)


def logits(model, source, target):
    """What follows each prefix of a target, read at once."""
    return model.backbone(Example.of(row([2, *target], row([*source, 3])))).last[0] @ model.backbone.table.T


def log_probability(model, source, target):
    """That of a target and its end."""
    each = torch.log_softmax(logits(model, source, target), -1)
    return float(each[torch.arange(len(target) + 1), torch.tensor([*target, 3])].sum())


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_all_prefixes_is_exhaustive_search(alpha, seed):
    model = translator(words=8, seed=seed, max_positions=4)
    words, source = [1, 5, 6, 7], [5, 7]  # all that is no [PAD], [CLS], [SEP] or [MASK]
    every = [list(ids) for size in range(4) for ids in itertools.product(words, repeat=size)]
    scores = {tuple(ids): log_probability(model, source, ids) / ((6 + len(ids)) / 6) ** alpha for ids in every}
    best = max(scores, key=scores.__getitem__)
    (found,) = model.translate([source], Beam(width=5 * 4**3, length_penalty=alpha, further=2))
    assert tuple(found.ids) == best
    assert found.score == pytest.approx(scores[best])


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_cache_and_a_batch_change_nothing(form, width):
    beam, rare_end = Beam(width=width, length_penalty=3.0, further=12), FORMS[form] | {"end": -0.5}
    cached = translator(**rare_end).translate(SOURCES, beam)
    again = translator(**rare_end, cached=False).translate(SOURCES, beam)
    alone = [translator(**rare_end).translate([source], beam)[0] for source in SOURCES]
    for other in (again, alone):
        assert [one.ids for one in other] == [one.ids for one in cached]
        assert [one.score for one in other] == pytest.approx([one.score for one in cached])
    assert len({tuple(one.ids) for one in cached}) > 1


@torch.no_grad()
def test_a_beam_of_one_is_greedy_and_a_wider_one_finds_no_less_probable_text():
    model = translator(seed=3)
    for source, greedy in zip(SOURCES, model.translate(SOURCES, Beam(1, 0.0, 6)), strict=True):
        ids = []
        while len(ids) + 1 < len(source) + 6:
            options = [3, 1, 5, 6, 7, 8]
            word = options[int(logits(model, source, ids)[-1, options].argmax())]
            if word == 3:
                break
            ids.append(word)
        assert greedy.ids == ids
        assert greedy.score == pytest.approx(log_probability(model, source, ids))


@torch.no_grad()
def test_every_translation_ends_and_none_is_longer_than_allowed():
    model = translator(seed=1)
    for further in (1, 4, 200):
        for source, found in zip(SOURCES, model.translate(SOURCES, Beam(2, 0.6, further)), strict=True):
            assert len(found.ids) < min(len(source) + further, 32)
            assert found.score > float("-inf")
            assert not {0, 2, 3, 4} & set(found.ids)


@pytest.mark.parametrize(
    ("sources", "beam", "message"),
    [
        ([[5], []], Beam(), "source 2 is empty"),
        ([[5] * 32], Beam(), "source 1 has 32 pieces, and the model reads 31"),
        ([[5]], Beam(width=0), "width: 0 keeps no prefix"),
        ([[5]], Beam(length_penalty=float("nan")), "length_penalty: nan"),
        ([[5]], Beam(further=0), "further: 0 leaves no room"),
    ],
)
def test_what_cannot_be_translated_is_refused(sources, beam, message):
    with pytest.raises(ConfigError, match=message):
        translator().translate(sources, beam)
