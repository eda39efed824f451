"""Static word vectors: what they are trained on, that they repeat, where they go, what starts from them."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, flat
from lightning_modules.data import open_store, word_vectors
from lightning_modules.data.store import TokenStore
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.data.word_vectors import Vectors, WordVectors, train
from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.tasks import TASKS, pins
from tests.toy import toy_task
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings(**{"epochs": 1, "batch_size": 16, "optimizer.peak_lr": 1e-3, "from_scratch": True})
VECTORS = SETTINGS.but(word_vectors={})


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def store_of(sentences, size, folder="text"):
    """A token store of lists of ids."""
    ids = np.array([number for sentence in sentences for number in sentence], np.uint16)
    starts = np.cumsum([0, *map(len, sentences)])
    vocabulary = Vocabulary.of((*SPECIALS, *map(str, range(len(SPECIALS), size))), "wordpiece")
    return TokenStore(folder, ids, starts, np.array([0, len(sentences)]), vocabulary, len(ids))


def table(system, settings, **changes):
    return tuning(system, seed=3, settings=settings.but(**changes)).build().state_dict()


# --- what they are


@pytest.mark.parametrize("algorithm", ["skipgram", "cbow"])
def test_words_of_the_same_contexts_come_close(algorithm):
    """Tokens 10 to 19 stand between tokens 40 to 49, tokens 20 to 29 between tokens 50 to 59."""
    noise, sentences = np.random.default_rng(0), []
    for _ in range(3000):
        kind = int(noise.integers(2))
        words, contexts = noise.integers(10, 20, 4) + 10 * kind, noise.integers(40, 50, 4) + 10 * kind
        sentences.append(np.stack([contexts, words], 1).ravel().tolist())
    found = train(store_of(sentences, 60), WordVectors(algorithm=algorithm, subsampling=0.0), 16, 0)
    assert found.tokens.tolist() == [*range(10, 30), *range(40, 60)]
    unit = found.values / np.linalg.norm(found.values, axis=1, keepdims=True)
    near = (unit @ unit.T)[:20, :20]
    np.fill_diagonal(near, -1.0)
    assert (near.argmax(1) // 10 == np.arange(20) // 10).all()
    alike = near[:10, :10][~np.eye(10, dtype=bool)].mean(), near[10:, 10:][~np.eye(10, dtype=bool)].mean()
    assert min(alike) > near[:10, 10:].mean() + 0.2


def test_a_part_of_the_text_is_whole_sentences_from_all_over_it():
    sentences = [[5 + n, 5 + n, 5 + n] for n in range(40)]
    store = store_of(sentences, 50)
    assert train(store, WordVectors(epochs=1), 4, 0).tokens.tolist() == list(range(5, 45))
    part = train(store, WordVectors(epochs=1, tokens=30), 4, 0).tokens
    assert len(part) == 10
    assert set(np.diff(part)) == {4}


def test_sentences_too_long_for_gensim_are_read_to_their_end():
    long = [5, 6] * 10_000 + [7, 8] * 4000
    found = train(store_of([long], 12), WordVectors(epochs=1, subsampling=0.0), 8, 0)
    start = train(store_of([[5, 6, 7, 8]], 12), WordVectors(epochs=1), 8, 0)
    moved = np.abs(found.values - start.values).max(1)
    assert found.tokens.tolist() == [5, 6, 7, 8]
    assert moved.min() > 0.1


def test_special_tokens_get_none():
    found = train(store_of([[5, 1, 6, 7], [1, 6]], 12), WordVectors(epochs=1), 4, 0)
    assert found.tokens.tolist() == [5, 6, 7]


# --- that they repeat


@pytest.mark.slow
def test_they_are_the_same_on_every_making_and_in_every_process(tiny):
    store = open_store(tiny.data, "train")
    here = train(store, WordVectors(), 16, 3)
    assert np.array_equal(train(store, WordVectors(), 16, 3).values, here.values)
    assert not np.array_equal(train(store, WordVectors(), 16, 4).values, here.values)
    code = (
        "import sys, hashlib; from pathlib import Path; from lightning_modules.data.store import TokenStore;"
        "from lightning_modules.data.word_vectors import WordVectors, train;"
        "found = train(TokenStore.open(Path(sys.argv[1])), WordVectors(), 16, 3);"
        "print(found.values.tobytes().hex())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    told = subprocess.run(
        [sys.executable, "-c", code, str(store.folder)], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == here.values.tobytes().hex()
    assert told.stderr == ""


def test_they_are_made_once_and_anew_for_what_changes_them(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(word_vectors, "cache", lambda: tmp_path)
    made, original = [], word_vectors.train
    monkeypatch.setattr(word_vectors, "train", lambda *asked: (made.append(1), original(*asked))[1])
    store = open_store(tiny.data, "train")

    def makings(width=8, seed=0, text=store, **settings):
        made.clear()
        found = word_vectors.word_vectors(text, WordVectors(**settings), width, seed)
        return len(made), found

    count, first = makings()
    assert count == 1
    count, again = makings()
    assert count == 0
    assert np.array_equal(first.values, again.values)
    assert first.seconds == again.seconds > 0
    assert makings(seed=1)[0] == makings(width=4)[0] == 1
    assert makings(text=open_store(tiny.data, "heldout"))[0] == 1
    assert makings(text=open_store(tiny.data.but(**{"tokenizer.vocab_size": 70}), "train"))[0] == 1
    changes = {"algorithm": "cbow", "window": 2, "negative": 2, "subsampling": 0.0, "epochs": 1, "tokens": 100}
    assert changes.keys() == flat(WordVectors()).keys()
    for name, value in changes.items():
        count, other = makings(**{name: value})
        assert count == 1, name
        assert not np.array_equal(first.values, other.values), name


# --- where they go


def test_a_table_gets_them_at_the_size_of_what_they_replace():
    before = torch.randn(9, 6) * 0.02
    after, values = before.clone(), np.random.default_rng(0).normal(0.1, 3.0, (4, 6)).astype(np.float32)
    Vectors(np.array([5, 6, 7, 8]), values, 0.0).place(after)
    assert torch.equal(after[:5], before[:5])
    assert after[5:].std() == pytest.approx(before[5:].std().item(), rel=1e-5)
    ratio = after[5:] / torch.from_numpy(values)
    assert torch.allclose(ratio, ratio[0, 0], rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"model.embedding_size": 8}])
def test_only_the_rows_of_tokens_of_the_text_differ_from_scratch(tiny, toy, changes):
    system = tiny.but(**changes)
    scratch, started = table(system, SETTINGS), table(system, VECTORS)
    name = "backbone.embeddings.word.weight"
    assert [key for key in scratch if not torch.equal(scratch[key], started[key])] == [name]
    occur = np.zeros(64, bool)
    occur[open_store(system.data, "train").ids] = True
    occur[: len(SPECIALS)] = False
    assert 0 < occur.sum() < 59  # some tokens never occur
    same = (scratch[name] == started[name]).all(1).numpy()
    assert (same == ~occur).all()
    assert started[name].shape[1] == changes.get("model.embedding_size", 16)
    none = table(system, SETTINGS, word_vectors=None)
    assert all(torch.equal(tensor, none[key]) for key, tensor in scratch.items())


# --- runs that start from them


def runs(system, **changes):
    return planned(system, SETTINGS.but(**changes))


def test_they_have_an_identity_and_no_parent(tiny, toy):
    scratch, started = runs(tiny), runs(tiny, word_vectors={})
    assert runs(tiny, word_vectors=None).id == scratch.id
    assert "word_vectors" not in scratch.essence()["finetuning"]
    assert len({scratch.id, started.id, runs(tiny, **{"word_vectors.window": 2}).id}) == 3
    assert runs(tiny, **{"word_vectors.window": 5}).id == started.id
    assert started.start is None
    assert started.parents == ()
    assert Run.read(started.to_dict()).id == started.id


def test_contradictions_are_refused(tiny, toy, tmp_path):
    for knobs, said in (
        ({}, "word_vectors need from_scratch: set from_scratch to true"),
        ({"finetuning.first": "mrpc"}, "set from_scratch to true"),
        ({"finetuning.first": "mrpc", "finetuning.from_scratch": True}, "not from the task in first"),
        ({"finetuning.features.layers": "last", "finetuning.from_scratch": True}, "eave out features"),
        ({"finetuning.word_vectors.windows": 3}, "Did you mean 'word_vectors.window'"),
        ({"finetuning.word_vectors.window": 0}, "greater than or equal to 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            cells.finetuning({"finetuning.word_vectors": {}, **knobs}, "rte")
    with pytest.raises(ConfigError, match="from_scratch starts from random weights, but"):
        tuning(tiny, tmp_path / "weights", settings=VECTORS).build()
    encoder = tuning(tiny).data.encoder
    with pytest.raises(ConfigError, match="not a checkpoint's"):
        FinetuningRun(tiny, "toy", VECTORS, 0, None, encoder).build()


def test_a_training_from_them_is_another_repeats_and_says_what_they_cost(tiny, toy, tmp_path):
    one, again, scratch = (
        finetune(tuning(tiny, settings=settings), tmp_path / str(number))
        for number, settings in enumerate((VECTORS, VECTORS, SETTINGS))
    )
    assert (one.metrics, one.curve) == (again.metrics, again.curve)
    assert one.metrics["toy.dev_loss"] != scratch.metrics["toy.dev_loss"]
    seconds = one.cost.pop("word_vectors_seconds")
    assert seconds == again.cost["word_vectors_seconds"] > 0
    assert one.cost.keys() == scratch.cost.keys()
    assert one.cost["flops"] == scratch.cost["flops"]
