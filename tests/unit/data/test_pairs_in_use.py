"""Segment pairs in use: how many of each kind, the index that is kept, and what trainings and held-out measures see."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data import Data, TextFormat, Tokenizer
from lightning_modules.data.baselines.pair_methods import METHODS
from lightning_modules.data.loader import PretrainingData
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.sampler import BatchSchedule
from lightning_modules.objectives import MaskedLM, Masking, Objectives, SentencePair
from tests.unit.data.pair_format import segment_pairs
from tests.unit.data.test_formats import make_store

pytestmark = pytest.mark.slow


@pytest.fixture
def novel(tmp_path):
    """Four hundred documents of 5 to 60 sentences of 1 to 30 tokens."""
    lengths = np.random.default_rng(0)
    return make_store(tmp_path, [lengths.integers(1, 31, lengths.integers(5, 61)).tolist() for _ in range(400)])


@pytest.fixture
def words(tmp_path):
    """Documents of 3000 sentences of one token: a chunk has as many sentences as its target has tokens."""
    return make_store(tmp_path, [[1] * 3000] * 20)


def test_half_of_the_pairs_of_several_sentences_are_negatives_and_more_of_all(novel):
    made = segment_pairs(sequence_length=32, negatives="random").arrange(novel)
    labels, alone = made.index[4], made.index[5] == 1
    assert labels[alone].all()
    assert 0.05 < alone.mean() < 0.5
    assert labels.mean() == pytest.approx(0.5 + alone.mean() / 2, abs=0.02)
    several = made.of_several_sentences()
    assert len(several) == (~alone).sum()
    assert several.index[4].mean() == pytest.approx(0.5, abs=0.02)
    swapped = segment_pairs(sequence_length=32, negatives="swapped").arrange(novel)
    assert swapped.index[4].mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_short_pairs_are_a_share_and_uniform_in_length(words, negatives):
    form = segment_pairs(sequence_length=33, negatives=negatives, short_fraction=0.25)
    targets = form.arrange(words).index[5]
    short = targets[targets < 30]  # one of 29 random lengths is the full one, and a document's last chunk may be short
    assert len(short) / len(targets) == pytest.approx(0.25 * 28 / 29, abs=0.03)
    assert short.min() <= 2
    assert short.mean() == pytest.approx((2 + 29) / 2, abs=1)
    full = segment_pairs(sequence_length=33, negatives=negatives).arrange(words).index[5]
    assert (full < 30).mean() < 0.05


def test_the_released_code_draws_short_lengths_once_a_document(words):
    form = segment_pairs(sequence_length=33, negatives="swapped", short_fraction=0.5, short_documents=True)
    made = form.arrange(words).index
    document = np.searchsorted(words.document_starts, np.minimum(made[0], made[2]), side="right")
    lengths = [made[5, document == number] for number in np.unique(document)]
    assert all(len(set(found[:-1].tolist())) == 1 for found in lengths)
    assert 0.3 < np.mean([found[0] < 30 for found in lengths]) < 0.7


def test_knobs_with_nothing_to_act_on_are_not_part_of_a_pairing():
    for idle in ({"short_documents": True}, {"lone_negatives": True}, {"break_mode": "none"}):
        assert segment_pairs(**idle).essence() == segment_pairs().essence()
    running = TextFormat(negatives="swapped", short_fraction=0.3, duplicates=4, short_documents=True, excerpt="rest")
    assert running.essence() == TextFormat().essence()


def test_copies_draw_afresh_and_the_first_is_the_only_one_without(novel):
    one, three = (segment_pairs(sequence_length=32, duplicates=k).arrange(novel).index for k in (1, 3))
    assert np.array_equal(three[:, : one.shape[1]], one)
    copies = np.split(three, np.flatnonzero(np.diff(three[0]) < -len(novel.ids) // 2) + 1, axis=1)
    assert len(copies) == 3
    assert len({copy.tobytes() for copy in copies}) == 3
    assert all(abs(copy.shape[1] / one.shape[1] - 1) < 0.05 for copy in copies)


def test_running_text_keeps_the_name_of_its_index(tmp_path):
    store = make_store(tmp_path, [[3, 9, 2], [20]])
    TextFormat(sequence_length=64, break_mode="none").arrange(store)
    assert [path.name for path in tmp_path.glob("*.npy")] == ["sequences-bcb19fe791bd.npy"]


def test_a_single_document_has_no_other(tmp_path):
    store = make_store(tmp_path, [[5] * 20])
    with pytest.raises(ConfigError, match="holds one document"):
        segment_pairs().arrange(store)
    assert len(segment_pairs(negatives="swapped").arrange(store))
    assert not list(tmp_path.glob("pairs-*.[0-9]*"))


def test_documents_of_one_sentence(tmp_path):
    store = make_store(tmp_path, [[n] for n in range(1, 12)])
    assert segment_pairs().arrange(store).index[4].tolist() == [1] * 11
    assert segment_pairs(negatives="swapped", lone_negatives=True).arrange(store).index[4].tolist() == [1] * 11
    nothing = segment_pairs(negatives="swapped").arrange(store)
    assert len(nothing) == 0
    with pytest.raises(ConfigError, match="has no sequence"):
        Batches(nothing, BatchSchedule(0, 4, 1))


def make_module(text_file, seed=0, **knobs):
    data = Data(corpora=(f"text:{text_file}",), tokenizer=Tokenizer(vocab_size=64))
    form = segment_pairs(sequence_length=32, short_fraction=0.1, **knobs)
    return PretrainingData(data, form, seed=seed, steps=3, batch_size=8, collate_heldout=both)


def both(tokens, draws, vocabulary):
    """[MASK] only, and the question whether the segments belong together."""
    masking = Masking(mask=1.0, same=0.0, random=0.0)
    objectives = Objectives(mlm=MaskedLM(masking=masking), sentence=SentencePair())
    return objectives.mask_inputs(Example.of(tokens), draws, vocabulary)


def only_hidden(tokens, draws, vocabulary):
    return MaskedLM().mask_inputs(Example.of(tokens), draws, vocabulary)


def test_heldout_text_is_running_text(text_file):
    pairs_module = make_module(text_file)
    pairs_module.collate_heldout = only_hidden
    running = make_module(text_file)
    running.format = TextFormat(sequence_length=32, break_mode="none")
    running.collate_heldout = only_hidden
    for one, other in zip(pairs_module.heldout, running.heldout, strict=True):
        assert torch.equal(one.inputs.ids, other.inputs.ids)
        assert not one.inputs.labels


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_heldout_pairs_are_the_same_for_every_format_and_seed(text_file, negatives):
    one = make_module(text_file)
    two = make_module(text_file, seed=3, negatives="swapped", duplicates=2, lone_negatives=True)
    found = [list(module.heldout_pairs(negatives, 12)) for module in (one, two)]
    for left, right in zip(*found, strict=True):
        assert torch.equal(left.inputs.ids, right.inputs.ids)
        assert torch.equal(left.targets["sentence"].ids, left.inputs.labels["sentence"])
        assert set(left.targets) == {"mlm", "sentence"}
        shown = left.inputs.ids.reshape(-1)
        assert (shown[left.targets["mlm"].where] == 4).all()
        assert (shown[left.targets["sentence"].where] == 2).all()
    held = one.heldout_pairs(negatives, 12, only_hidden)
    assert (held.sequences.index[5] > 1).all()
    assert set(next(iter(held)).targets) == {"mlm"}
    assert (len(held.chosen), len(held)) == (12, 2)


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_heldout_pairs_have_the_construction_that_is_asked_for(tmp_path, negatives):
    draw = np.random.default_rng(0)
    sentences = [" ".join(f"W{n:02d}" for n in draw.integers(0, 59, draw.integers(2, 9))) + "." for _ in range(4000)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(sentences[n : n + 10]) for n in range(0, 4000, 10)))
    released, matched = (make_module(text) for _ in range(2))
    matched.pairing = "matched"
    other = make_module(text, seed=3, pairing="matched")
    other.pairing = "matched"
    found = [module.heldout_pairs(negatives, 40) for module in (matched, other, released)]
    assert np.array_equal(found[0].sequences.index, found[1].sequences.index)
    assert not np.array_equal(found[0].sequences.index, found[2].sequences.index)
    labels = torch.cat([example.inputs.labels["sentence"] for example in found[0]])
    assert 0 < len(labels) <= 40
    assert labels.float().mean() == 0.5
    assert set(next(iter(found[0])).targets) == {"mlm", "sentence"}
    scores = matched.pair_scores(negatives, 40)
    assert scores["majority"].accuracy == scores["lengths"].accuracy == 0.5


def test_an_excerpt_is_shown_in_training_and_of_heldout_pairs_alike(tmp_path):
    draw = np.random.default_rng(0)
    sentences = [" ".join(f"W{n:02d}" for n in draw.integers(0, 59, draw.integers(9, 12))) + "." for _ in range(4000)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(sentences[n : n + 10]) for n in range(0, 4000, 10)))
    whole, first = make_module(text, negatives="swapped"), make_module(text, negatives="swapped", excerpt="first")
    for module in (whole, first):
        module.format, module.collate_heldout = module.format.but(sequence_length=96), only_hidden
    assert np.array_equal(whole.sequences.index[4:], first.sequences.index[4:])  # labels, sentences
    pairs = [module.heldout_pairs("swapped", 40).sequences for module in (whole, first)]
    assert len(pairs[0]) == len(pairs[1])
    for sequences in (first.sequences, pairs[1]):
        assert (sequences.index[1] - sequences.index[0]).max() < (pairs[0].index[1] - pairs[0].index[0]).max()
    assert first.pair_scores("swapped", 40) != whole.pair_scores("swapped", 40)
    assert torch.equal(next(iter(whole.heldout)).inputs.ids, next(iter(first.heldout)).inputs.ids)  # running text


def test_heldout_text_without_a_pair_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(f"number {n} is a sentence" for n in range(200)))
    module = make_module(tmp_path / "text.txt")
    with pytest.raises(ConfigError, match="no pair of at least two sentences"):
        module.heldout_pairs("swapped", 20)


def test_the_baselines_of_pairs_are_shares_of_right_answers(text_file):
    found = make_module(text_file).pair_baselines(20)
    kinds = (*METHODS, "best_simple", "best_simple_auc")
    assert set(found) == {f"{name}_{kind}" for name in ("nsp", "sop") for kind in kinds}
    assert all(0 <= share <= 1 for share in found.values())
    for name in ("nsp", "sop"):
        assert found[f"{name}_best_simple"] == max(found[f"{name}_{method}"] for method in METHODS)
    assert all(0.5 <= found[f"{name}_majority"] < 1 for name in ("nsp", "sop"))
    assert make_module(text_file, seed=1).pair_baselines(20) == found
