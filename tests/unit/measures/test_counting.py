"""What counting reaches on a system's held-out words: which words, fitted on which others, the same every time."""

import numpy as np
import pytest

from lightning_modules.config import canonical
from lightning_modules.data import fingerprints_of
from lightning_modules.data.baselines import bigram
from lightning_modules.data.baselines.product import Product, Questions
from lightning_modules.measures import counting, heldout_text
from lightning_modules.measures.counting import reached
from tests import tiny as tiny_text

LM = {
    "objectives.mlm": None,
    "objectives.lm": {},
    "model.direction": "left_to_right",
}
STREAM = LM | {"format.kind": "stream", "format.frame": "document_ends", "evaluation.rows": 2}


@pytest.fixture
def few(tiny, monkeypatch):
    """A system with enough held-out text for words behind those that are judged."""
    monkeypatch.setattr(counting, "_LEAST", 4)
    monkeypatch.setattr(counting, "_BEHIND", 8)
    return tiny.but(**{"evaluation.sequences": 8, "evaluation.final_sequences": None})


def judged_of(system, target):
    """The words of the losses at the end."""
    heldout = system.data_module(0).some_heldout(system.evaluation.sequences_at_end)
    return np.concatenate([example.targets[target].ids.numpy() for example in heldout])


def places(heldout):
    """The places of the text that are shown."""
    sequences = heldout.sequences
    edges = sequences.edges if hasattr(sequences, "edges") else sequences.bounds
    return {place for n in heldout.chosen.tolist() for place in range(*edges[n : n + 2].tolist())}


def seen(monkeypatch, system, target):
    """What was fitted on and what was judged, at each fit."""
    pairs, kind = [], Product if target in ("mlm", "permuted") else counting.KneserNey
    fitted, nats = kind.fitted, kind.nats
    monkeypatch.setattr(kind, "fitted", lambda self, words, *more: pairs.append([words]) or fitted(self, words, *more))
    monkeypatch.setattr(kind, "nats", lambda self, words, fit: pairs[-1].append(words) or nats(self, words, fit))
    return reached(system, target), pairs


@pytest.mark.parametrize(("target", "changes"), [("mlm", {}), ("next", LM), ("next", STREAM)])
def test_it_judges_the_words_of_the_losses_and_fits_on_others(few, monkeypatch, target, changes):
    system = few.but(**changes)
    found, pairs = seen(monkeypatch, system, target)
    right = judged_of(system, target)
    assert pairs
    for fitted, judged in pairs:
        assert np.array_equal(np.sort(judged.words), np.sort(right))
        assert len(fitted.words)
    assert found.fitted_on.endswith("held-out sequences behind those that are judged")
    assert f"{len(right):,} words" in found.judged_on


@pytest.mark.parametrize("changes", [{}, LM, STREAM, STREAM | {"evaluation.sequence_length": 5}])
def test_no_text_is_fitted_on_and_judged(few, changes):
    judged, behind = counting._heldout(few.but(**changes))
    assert behind is not None
    assert not places(judged) & places(behind)
    assert len(places(behind)) > 30


def test_without_other_words_each_half_is_fitted_on_the_other(few, monkeypatch):
    monkeypatch.setattr(counting, "_LEAST", 1 << 20)
    found, pairs = seen(monkeypatch, few, "mlm")
    right = judged_of(few, "mlm")
    first, second = pairs[:2]
    assert np.array_equal(np.concatenate([second[1].words, first[1].words]), right)
    assert np.array_equal(first[0].words, second[1].words)
    assert np.array_equal(second[0].words, first[1].words)
    assert found.fitted_on == "the half of these words that is not judged"
    assert len(found.methods[counting.NEIGHBOURING]) == 2


def test_the_bar_is_what_its_recipe_gives(few):
    """The score can be computed again from what was fitted, on the words and the text that are named."""
    found = reached(few, "mlm")
    store = counting.open_store(few.data, "train")
    words = Questions.of(few.data_module(0).some_heldout(8), "mlm", store.vocabulary.mask)
    (fit,) = found.methods[counting.NEIGHBOURING]
    text = counting.Counted.of(store, counting.MOST_TOKENS)
    assert found.counted == {"training": len(text.ids)}
    product = Product(text, counting.NEIGHBOURS, [words])
    nats = product.nats(words, counting.Fit(fit["discount"], tuple(fit["exponents"])))
    assert found.scores[counting.NEIGHBOURING] == pytest.approx(nats / len(words), abs=1e-5)
    assert next(iter(found.scores)) == counting.NEIGHBOURING
    assert found.by_tokens[len(text.ids)] == found.scores[counting.NEIGHBOURING]


def test_the_same_words_have_the_same_scores_to_the_last_digit(few):
    assert reached(few, "mlm") == reached(few.but(**{"training.steps": 99, "training.batch_size": 2}), "mlm")


def test_less_and_more_text_has_scores_of_its_own(few, monkeypatch):
    monkeypatch.setattr(bigram, "STRETCH", 64)
    monkeypatch.setattr("lightning_modules.data.baselines.ngrams.STRETCH", 64)
    monkeypatch.setattr(counting, "MOST_TOKENS", 2048)
    found = reached(few.but(**{"evaluation.sequences": 32}), "mlm")
    whole = len(counting.open_store(few.data, "train").ids)
    eighth, quarter, half, usual, most = found.by_tokens
    assert (usual, most) == (found.counted["training"], whole)
    assert (eighth, quarter, half) == pytest.approx((256, 512, 1024), abs=64)  # whole stretches
    assert found.by_tokens[usual] == found.scores[counting.NEIGHBOURING]
    assert found.by_tokens[most] < found.by_tokens[eighth]


def test_a_model_that_continues_a_trunk_of_other_text_has_read_both(few, tmp_path):
    other = few.but(
        **{
            "data.corpora": [tiny_text.text(tmp_path / "other")],
            "data.tokenizer.corpora": list(few.data.corpora),
            "training.start": {"training.steps": 3, "data.corpora": list(few.data.corpora)},
        }
    )
    found = reached(other, "mlm")
    assert found.counted.keys() == {"training", "trunk"}
    plain, both = counting.NEIGHBOURING, f"{counting.NEIGHBOURING}, the text of the trunk counted too"
    assert found.scores[plain] != found.scores[both]
    alone = reached(other.but(**{"training.start": {}}), "mlm")
    assert found.scores[plain] == alone.scores[plain]


def test_who_sees_one_side_has_another_bar(few):
    left = few.but(**{"evaluation.direction": "left_to_right"})
    assert [heldout_text.question(one, "mlm") for one in (few, left)] == ["loss", "loss.left_to_right"]
    both, one = reached(few, "mlm").scores, reached(left, "mlm").scores
    assert [*one] == ["counts of the neighbour on the left", "product of counts of two words on the left"]
    assert min(both.values()) < min(one.values())


def test_how_a_stream_is_read_again_changes_nothing(few):
    """The text has one id with any context, so its bar must not depend on it."""
    system = few.but(**STREAM | {"model.max_positions": 64})
    again = system.but(**{"evaluation.context": 4})
    prints = fingerprints_of(system.data.named)
    assert heldout_text.described(system, prints) == heldout_text.described(again, prints)
    assert reached(system, "next") == reached(again, "next")


def test_what_is_read_from_right_to_left_is_counted_so(few):
    backward = few.but(**LM | {"objectives.lm": {"direction": "right_to_left"}, "model.direction": "right_to_left"})
    forward, back = reached(few.but(**LM), "next"), reached(backward, "previous")
    assert back.scores.keys() == forward.scores.keys()
    assert 0 < back.scores[counting.CACHED] != forward.scores[counting.CACHED]


def test_the_id_of_a_text_is_written_as_it_was(tiny):
    """Records name their text by it."""
    prints = dict.fromkeys(tiny.data.named, "0" * 64)
    described = heldout_text.described(tiny, prints)
    assert heldout_text.named(described) == heldout_text.named([*described])
    assert len(heldout_text.named(described)) == 16
    assert canonical(described[0]) == canonical(prints)
