"""Segment pairs: what follows what, where negatives come from, what is lost, and that nothing else is."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data import Data, InputFormat, PairSequences, Tokenizer, pairs
from lightning_modules.data.loader import Batches, Portions, PretrainingData
from lightning_modules.draws import Draws
from lightning_modules.objectives import MaskedLM, Masking, Objectives, SentencePair

from .test_data_formats import make_store

LENGTHS = st.integers(8, 30)
DOCUMENTS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=9), min_size=2, max_size=6).filter(
    lambda documents: sum(sum(document) > 0 for document in documents) > 1
)
FORMATS = st.fixed_dictionaries(
    {
        "sequence_length": LENGTHS,
        "negatives": st.sampled_from(["random", "swapped"]),
        "short_fraction": st.sampled_from([0.0, 0.5, 1.0]),
        "short_documents": st.booleans(),
        "lone_negatives": st.booleans(),
    }
)


def segment_pairs(**knobs):
    return InputFormat(kind="segment_pairs", **{"sequence_length": 16, "short_fraction": 0.0} | knobs).resolved()


def whole(store, form):
    """Segments before anything is cut off: bounds, labels and sentences ``[6 pairs]``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_truncated", lambda bounds, room, noise: bounds)
        return pairs.arrange(store, form)


def text_of(store):
    """Documents as lists of (start, end) of the sentences that have tokens."""
    found = []
    for first, end in itertools.pairwise(store.documents.tolist()):
        edges = itertools.pairwise(store.sentences[first : end + 1].tolist())
        found.append([(a, b) for a, b in edges if b > a])
    return [document for document in found if document]


def draw(purpose, key):
    key = np.array([key])
    return Draws(0, key, key, np.zeros(1, dtype=np.int64), "pairs 0").uniform(purpose, 1)[0, 0]


def slowly(store, form):
    """The reference: sentence after sentence, as in the released code, before truncation."""
    documents, room, made, counted = text_of(store), form.sequence_length - 3, [], 0
    for number, document in enumerate(documents):
        i, first, chunk = 0, 0, []
        while i < len(document):
            chunk.append(document[i])
            key = counted + first
            whose, target = (number if form.short_documents else key), room
            if draw("short", whose) < form.short_fraction:
                target = 2 + int(draw("target", whose) * (room - 1))
            if i == len(document) - 1 or chunk[-1][1] - chunk[0][0] >= target:
                n = len(chunk)
                split = 1 + int(draw("split", key) * (n - 1))
                a, b = (chunk[0][0], chunk[split - 1][1]), (chunk[split - 1][1], chunk[-1][1])
                negative = n == 1 or draw("negative", key) < 0.5
                if negative and (form.negatives == "random" or n == 1):
                    other = int(draw("document", key) * (len(documents) - 1))
                    other = documents[other + (other >= number)]
                    start = int(draw("sentence", key) * len(other))
                    end = start
                    while end < len(other) - 1 and other[end][1] - other[start][0] < target - (a[1] - a[0]):
                        end += 1
                    b = (other[start][0], other[end][1])
                elif negative:
                    a, b = b, a
                if n > 1 or form.negatives == "random" or form.lone_negatives:
                    made.append((*a, *b, int(negative), n))
                if negative and form.negatives == "random":
                    i -= n - split
                chunk, first = [], i + 1
            i += 1
        counted += len(document)
    return made


@settings(max_examples=300, deadline=None)
@given(documents=DOCUMENTS, knobs=FORMATS)
def test_pairs_are_those_of_the_released_construction(tmp_path_factory, documents, knobs):
    store, form = make_store(tmp_path_factory.mktemp("s"), documents), segment_pairs(**knobs)
    assert list(map(tuple, whole(store, form).T.tolist())) == slowly(store, form)


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, length=LENGTHS, short=st.sampled_from([0.0, 0.5]))
def test_a_and_what_follows_it_are_every_sentence_once_and_in_order(tmp_path_factory, documents, length, short):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    used = []
    for a, a_end, b, b_end, label, _ in whole(store, segment_pairs(sequence_length=length, short_fraction=short)).T:
        used += range(a, a_end)
        if label == 0:
            assert b == a_end
            used += range(b, b_end)
    assert used == list(range(len(store.ids)))


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, length=LENGTHS)
def test_a_random_second_segment_is_whole_sentences_of_another_document(tmp_path_factory, documents, length):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    starts = store.document_starts
    for a, a_end, b, b_end, label, _ in whole(store, segment_pairs(sequence_length=length)).T.tolist():
        own, other, last = (np.searchsorted(starts, place, side="right") for place in (a, b, b_end - 1))
        assert (own != other) == bool(label)
        assert other == last
        assert {b, b_end} <= set(store.sentences.tolist())
        assert b_end - b >= length - 3 - (a_end - a) or b_end in starts


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, length=LENGTHS)
def test_swapping_changes_the_order_of_two_neighbours_and_nothing_else(tmp_path_factory, documents, length):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    swapped = segment_pairs(sequence_length=length, negatives="swapped")
    for a, a_end, b, b_end, label, sentences in whole(store, swapped).T.tolist():
        assert sentences > 1
        assert (b_end == a) if label else (a_end == b)
        in_order = [*range(b, b_end), *range(a, a_end)] if label else [*range(a, a_end), *range(b, b_end)]
        assert in_order == list(range(in_order[0], in_order[-1] + 1))
    kept = np.concatenate([[0], *(np.r_[c[0] : c[1], c[2] : c[3]] for c in whole(store, swapped).T)])[1:]
    assert not [token for token, times in Counter(kept.tolist()).items() if times > 1]
    lone = whole(store, swapped.model_copy(update={"lone_negatives": True}))
    several = lone[5] > 1
    assert np.array_equal(lone[:, several], whole(store, swapped))
    assert lone[4, ~several].all()


def cut_slowly(a, b, room):
    """One token at a time from the longer segment, of equals from the second."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@settings(max_examples=300, deadline=None)
@given(a=st.integers(1, 300), b=st.integers(1, 300), room=st.integers(5, 200), seed=st.integers(0, 99))
def test_the_longer_segment_loses_until_both_fit(a, b, room, seed):
    rows = np.arange(seed, seed + 3)
    bounds = np.repeat([[1000], [1000 + a], [5000], [5000 + b]], 3, axis=1)
    cut = pairs._truncated(bounds, room, Draws(0, rows, rows, rows))
    assert (cut[1] - cut[0]).tolist() == [cut_slowly(a, b, room)[0]] * 3
    assert (cut[3] - cut[2]).tolist() == [cut_slowly(a, b, room)[1]] * 3
    assert (cut[[0, 2]] >= bounds[[0, 2]]).all()
    assert (cut[[1, 3]] <= bounds[[1, 3]]).all()


def test_what_is_lost_at_the_front_is_binomial():
    rows = np.arange(20_000)
    bounds = np.repeat([[0], [47], [100], [131]], len(rows), axis=1)
    cut = pairs._truncated(bounds, 61, Draws(0, rows, rows, rows))
    for front, lost in ((cut[0], 47 - 31), (cut[2] - 100, 1)):
        assert front.mean() == pytest.approx(lost / 2, rel=0.03)
        assert front.var() == pytest.approx(lost / 4, rel=0.05)
        assert front.max() <= lost
    assert abs(np.corrcoef(cut[0], cut[2])[0, 1]) < 0.03


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, knobs=FORMATS)
def test_rows_show_the_two_segments_between_their_marks(tmp_path_factory, documents, knobs):
    store, form = make_store(tmp_path_factory.mktemp("s"), documents), segment_pairs(**knobs)
    sequences = form.arrange(store)
    assert isinstance(sequences, PairSequences)
    tokens = sequences.batch(np.arange(len(sequences)))
    assert tokens.ids.shape == (len(sequences), form.sequence_length)
    for n, (a, a_end, b, b_end, label, _) in enumerate(sequences.index.T.tolist()):
        first, second = store.ids[a:a_end].tolist(), store.ids[b:b_end].tolist()
        assert first
        assert second
        row = [2, *first, 3, *second, 3]
        pad = form.sequence_length - len(row)
        assert tokens.ids[n].tolist() == row + [0] * pad
        assert tokens.real[n].tolist() == [True] * len(row) + [False] * pad
        assert tokens.special[n].tolist() == [i < 5 for i in row] + [True] * pad
        assert tokens.tables["segment"][n].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * pad
        assert tokens.labels["sentence"][n].item() == label
    assert tokens.begins_word.tolist() == store.vocabulary.begins_word[tokens.ids.numpy()].tolist()
    assert tokens.sample.tolist() == list(range(len(sequences)))
    if len(sequences):
        assert sequences.fill == pytest.approx(tokens.real.float().mean().item())
        alone = sequences.batch(np.array([len(sequences) - 1]))
        assert alone.ids[0].tolist() == tokens.ids[-1].tolist()


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
    running = InputFormat(negatives="swapped", short_fraction=0.3, duplicates=4, short_documents=True)
    assert running.essence() == InputFormat().essence()


def test_copies_draw_afresh_and_the_first_is_the_only_one_without(novel):
    one, three = (segment_pairs(sequence_length=32, duplicates=k).arrange(novel).index for k in (1, 3))
    assert np.array_equal(three[:, : one.shape[1]], one)
    copies = np.split(three, np.flatnonzero(np.diff(three[0]) < -len(novel.ids) // 2) + 1, axis=1)
    assert len(copies) == 3
    assert len({copy.tobytes() for copy in copies}) == 3
    assert all(abs(copy.shape[1] / one.shape[1] - 1) < 0.05 for copy in copies)


def test_a_longer_text_leaves_the_pairs_of_its_beginning_as_they_were(tmp_path):
    lengths = [[3, 9, 2, 14, 5, 5, 1, 8]] * 6
    short, long = (make_store(tmp_path / str(n), lengths[:n]) for n in (3, 6))
    first, more = (whole(store, segment_pairs(negatives="swapped")) for store in (short, long))
    assert np.array_equal(more[:, : first.shape[1]], first)


def test_the_index_is_cached_and_a_damaged_one_is_made_again(novel, monkeypatch):
    form = segment_pairs(sequence_length=32)
    first = form.arrange(novel).index
    (cached,) = novel.folder.glob("pairs-*.npy")
    cached.write_bytes(b"\x93NUMPY torn")
    assert np.array_equal(form.arrange(novel).index, first)
    others = [{"negatives": "swapped"}, {"short_fraction": 0.1}, {"duplicates": 2}, {"sequence_length": 33}]
    for changed in others:
        form.but(**changed).arrange(novel)
    assert len(list(novel.folder.glob("pairs-*.npy"))) == 5
    monkeypatch.setattr(pairs, "arrange", lambda *_: pytest.fail("was arranged again"))
    assert np.array_equal(form.arrange(novel).index, first)


def test_running_text_keeps_the_name_of_its_index(tmp_path):
    store = make_store(tmp_path, [[3, 9, 2], [20]])
    InputFormat(sequence_length=64, break_mode="none").arrange(store)
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
    with pytest.raises(ConfigError, match="makes no sequence"):
        Batches(nothing, Portions(0, 4, 1))


def make_module(text_file, seed=0, **knobs):
    data = Data(corpora=(f"text:{text_file}",), tokenizer=Tokenizer(vocab_size=64))
    form = segment_pairs(sequence_length=32, short_fraction=0.1, **knobs)
    return PretrainingData(data, form, seed=seed, steps=3, batch_size=8, prepare_heldout=both)


def both(tokens, draws, vocabulary):
    """[MASK] only, and the question whether the segments belong together."""
    masking = Masking(mask=1.0, same=0.0, random=0.0)
    objectives = Objectives(mlm=MaskedLM(masking=masking), sentence=SentencePair())
    return objectives.corrupt(Example.of(tokens), draws, vocabulary)


def only_hidden(tokens, draws, vocabulary):
    return MaskedLM().corrupt(Example.of(tokens), draws, vocabulary)


def test_every_seed_sees_the_same_pairs_in_another_order(text_file):
    one, two = (make_module(text_file, seed) for seed in (0, 1))
    assert np.array_equal(one.sequences.index, two.sequences.index)
    orders = [[example.inputs.sample.tolist() for example in module.train_dataloader()] for module in (one, two)]
    assert orders[0] != orders[1]


def test_heldout_text_is_running_text(text_file):
    pairs_module = make_module(text_file)
    pairs_module.prepare_heldout = only_hidden
    running = make_module(text_file)
    running.format = InputFormat(sequence_length=32, break_mode="none")
    running.prepare_heldout = only_hidden
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


def test_heldout_text_without_a_pair_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(f"number {n} is a sentence" for n in range(200)))
    module = make_module(tmp_path / "text.txt")
    with pytest.raises(ConfigError, match="no pair of at least two sentences"):
        module.heldout_pairs("swapped", 20)


def test_the_baselines_of_pairs_are_shares_of_right_answers(text_file):
    found = make_module(text_file).pair_baselines(20)
    assert set(found) == {f"{name}_{kind}" for name in ("nsp", "sop") for kind in ("bow", "overlap", "majority")}
    assert all(0 <= share <= 1 for share in found.values())
    assert all(0.5 <= found[f"{name}_majority"] < 1 for name in ("nsp", "sop"))
    assert make_module(text_file, seed=1).pair_baselines(20) == found
