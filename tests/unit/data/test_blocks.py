"""Blocks without [CLS]: the text in order, every position of it, and ends of documents that are part of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data import TextFormat, TokenStore, Vocabulary
from lightning_modules.data.baselines import bigram
from lightning_modules.data.formats import FORMATS
from lightning_modules.measures.per_byte import predicted_bytes
from lightning_modules.objectives import LanguageModel, Masking
from tests.conftest import make_draws
from tests.unit.data.test_formats import DOCUMENTS, make_store

FRAMES = ["none", "document_ends"]
SEP = 3


def blocks(store, length, frame, short=0.0):
    form = TextFormat(sequence_length=length, break_mode="none", frame=frame, short_sequences=short)
    return form.arrange(store)


def text_of(store, frame):
    """The text that the blocks should hold, one token after the other."""
    starts = set(store.document_starts[1:].tolist()) if frame == "document_ends" else set()
    found = []
    for place, token in enumerate(store.ids.tolist()):
        found += [SEP] if place in starts and place else []
        found.append(token)
    return found + [SEP] * (frame == "document_ends")


def predictions(sequences, direction="left_to_right"):
    """The blocks as examples of a language model."""
    tokens = sequences.batch(np.arange(len(sequences)))
    return LanguageModel(direction=direction, transform="none").mask_inputs(
        Example.of(tokens), make_draws(len(sequences)), sequences.store.vocabulary
    )


@given(
    documents=DOCUMENTS, length=st.integers(8, 40), frame=st.sampled_from(FRAMES), short=st.sampled_from([0.0, 0.3, 1])
)
def test_the_rows_are_the_text_in_order(tmp_path_factory, documents, length, frame, short):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    sequences = blocks(store, length, frame, short)
    tokens = sequences.batch(np.arange(len(sequences)))
    ids, real, special = tokens.ids.numpy(), tokens.real.numpy(), tokens.special.numpy()
    wanted = text_of(store, frame)
    assert ids.shape == (len(sequences), length)
    shown = ids[real].tolist()
    assert shown in (wanted, wanted[:-1]), "all but a last token that would be alone"
    assert len(shown) == len(wanted) or short or len(wanted) % length == 1
    assert sequences.sizes.tolist() == real.sum(1).tolist()
    assert (np.diff(real.astype(int), axis=1) <= 0).all(), "padding comes last"
    assert (ids[~real] == store.vocabulary.pad).all()
    assert (special == ((ids == SEP) | ~real)).all()
    assert (tokens.ends is None) == (frame == "none")
    if tokens.ends is not None:
        assert (tokens.ends.numpy() == (ids == SEP)).all()
    if not short:
        assert real[:-1].all(), "no padding but in the last"
    for start, end, row, text in zip(sequences.bounds, sequences.bounds[1:], ids, ~special, strict=False):
        assert row[text].tolist() == store.ids[start:end].tolist()


@given(documents=DOCUMENTS, length=st.integers(8, 40), frame=st.sampled_from(FRAMES))
def test_every_token_but_the_first_of_a_row_is_predicted_from_the_one_before(
    tmp_path_factory, documents, length, frame
):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    sequences = blocks(store, length, frame)
    example = predictions(sequences)
    target, tokens = example.targets["next"], example.inputs
    asked = torch.zeros(tokens.ids.numel(), dtype=torch.bool)
    asked[target.where + 1] = True
    wanted = tokens.real.clone()
    wanted[:, 0] = False
    assert torch.equal(asked.reshape(wanted.shape), wanted), "ends of documents too"
    assert torch.equal(target.ids, tokens.ids.flatten()[target.where + 1])


def test_only_ends_of_documents_are_special_tokens_that_are_predicted(tmp_path):
    """[CLS] and [SEP] of the usual frame are not, nor is a [SEP] between its documents."""
    store = make_store(tmp_path, [[5, 6], [7]])
    usual = TextFormat(sequence_length=24, break_mode="none").arrange(store)
    assert SEP in usual.batch(np.array([0])).ids[0, 1:-1].tolist()
    assert SEP not in predictions(usual).targets["next"].ids.tolist()
    assert predictions(blocks(store, 24, "document_ends")).targets["next"].ids.tolist().count(SEP) == 2


def test_held_out_text_has_the_same_frame(tmp_path):
    for frame in FRAMES:
        form = TextFormat(break_mode="none", frame=frame, short_sequences=0.5)
        assert form.heldout() == TextFormat(break_mode="none", frame=frame)
        assert form.heldout(blocks=True) == form.heldout()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"break_mode": "sentences"}, "frame none is of running text .* set break_mode to none, or frame to cls_sep"),
        (
            {"break_mode": "none", "kind": "segment_pairs"},
            "frame none is of kind full_sentences or stream, and kind is",
        ),
        ({"kind": "sentence_pairs"}, "set frame to cls_sep, or kind to full_sentences or stream"),
        ({"break_mode": "none", "frame": "document_end"}, "Did you mean 'document_ends'"),
    ],
)
def test_other_formats_have_a_frame(changes, message):
    with pytest.raises(ConfigError, match=message):
        FORMATS[changes.get("kind", "full_sentences")].read({"frame": "none", **changes})


def test_masked_models_hide_no_end_of_a_document(tmp_path):
    store = make_store(tmp_path, [[5, 6], [7], [9, 2]])
    sequences = blocks(store, 16, "document_ends")
    tokens = sequences.batch(np.arange(len(sequences)))
    groups = Masking(rate=0.9, cap=None).choose(tokens, make_draws(len(sequences)), store.vocabulary)
    assert (groups >= 0).any()
    assert not (groups >= 0)[tokens.special.numpy()].any()


def test_the_bytes_behind_predictions_are_those_of_the_text_and_none_of_the_ends(tmp_path):
    store = make_store(tmp_path, [[5, 6], [7], [9, 2]])
    behind = np.arange(1, len(store.ids) + 1) ** 2
    for frame in FRAMES:
        sequences = blocks(store, 8, frame)
        example = predictions(sequences)
        first = sequences.batch(np.arange(len(sequences))).special.numpy()[:, 0]
        unasked = sequences.bounds[:-1][~first]  # the first of a row, where it is text
        shown = behind[: sequences.bounds[-1]].sum() - behind[unasked].sum()
        assert predicted_bytes(sequences, behind, [example], "next") == shown


def test_the_bigram_baseline_counts_ends_where_they_are_predicted(tmp_path):
    """Thirty thousand documents of one to three times the same token: how likely an end is after it can be counted."""
    noise = np.random.default_rng(0)
    lengths = noise.integers(1, 4, 30_000)
    starts, ids = np.concatenate([[0], np.cumsum(lengths)]), np.full(lengths.sum(), 7, np.uint16)
    vocabulary = Vocabulary(tuple(map(str, range(9))), np.ones(9, bool))
    store = TokenStore(tmp_path, ids, starts, np.arange(len(starts)), vocabulary, 1)
    plain, marked = bigram.count(store, (True, False)), bigram.count(store, (True, False), marked=True)
    kept = marked.tokens[7]
    ends = marked.tokens[SEP]
    assert plain.tokens[SEP] == 0
    assert ends / kept == pytest.approx(0.5, abs=0.02), "a document has two tokens on average"
    assert marked.pairs[7, SEP] == pytest.approx(ends, rel=1e-3)
    assert marked.pairs[SEP, 7] == pytest.approx(ends, rel=1e-3)
    assert marked.pairs[7, 7] == pytest.approx(ends, rel=0.03)
    example = predictions(blocks(store, 32, "document_ends"))
    words, left, _ = bigram.seen(example, "next", store.vocabulary.mask)
    assert (left >= 0).all(), "every token has a neighbour that the model sees"
    assert set(left[words == SEP].tolist()) == {7}
    found = bigram.baseline(store, [example], "next")
    assert np.log(2) * 2 / 3 - 0.01 < found.bigram < 0.55, "a 7 or an end after a 7, in two of three; a 7 after an end"
    assert found.unigram == pytest.approx(0.6365, abs=0.01), "two of three are a 7"
