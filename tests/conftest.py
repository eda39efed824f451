"""What every test shares: quiet threads, a cache of its own, small inputs."""

from tests import annotations

annotations.check("lightning_modules")  # before anything of it is imported

from lightning_modules.speed import environment

environment()  # before torch is imported

import gc
import itertools
import os
from multiprocessing import forkserver, util
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from lightning_modules.batch import Tokens
from lightning_modules.data import Vocabulary
from lightning_modules.draws import Draws
from tests.depth import NIGHTLY, SEED, depth
from tests.forking import without_exec

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, max_examples=depth(25, 300), derandomize=not NIGHTLY)
settings.load_profile("suite")  # no test is timed

# A slow test is known by its folder or file, by a fixture, or by what its file imports: whatever has one of these
# trains, starts processes, publishes pages, draws figures, or asks all grids, systems or records.
SLOW_PLACES = {
    "end_to_end", "faults", "figures", "gpu", "identities", "parity", "test_awd_lstm.py", "test_bars.py",
    "test_campaign.py", "test_carry.py", "test_devices.py", "test_fading_gradients.py", "test_footprint.py",
    "test_looks.py", "test_parents.py", "test_pins.py", "test_published.py", "test_searches.py",
    "test_stored_configurations.py",
}  # fmt: skip
TRAINING = {"tiny", "cached", "forking", "nursery_process", "finished_results"}
WORKING = {
    "Study", "execute", "finetune", "finished", "fit", "publish_page", "relative", "republish", "subprocess",
    "transformers",
}  # fmt: skip


_numbers = itertools.count()  # of the tests of a process


def pytest_report_header() -> str:
    """The seed of a night."""
    return f"ABLATIONS_NIGHTLY={SEED}" if NIGHTLY else ""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config, items):
    """Marks as slow what is known to be, and leaves to the night what has a faster sibling."""
    if not NIGHTLY and (of_night := [item for item in items if item.get_closest_marker("nightly")]):
        config.hook.pytest_deselected(items=of_night)
        items[:] = [item for item in items if item not in of_night]
    for item in items:
        imported = vars(item.module) if hasattr(item, "module") else {}
        here = [(SLOW_PLACES, item.path.parts), (TRAINING, item.fixturenames), (WORKING, imported)]
        if not all(known.isdisjoint(found) for known, found in here):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """What was imported stays: the collector does not go through it again, in this process or its forks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_setup():
    """See `tests.annotations`."""
    annotations.next_test()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """No test reads or writes the user's cache or data."""
    folder = tmp_path_factory.mktemp(f"cache{next(_numbers)}", numbered=False)  # pytest's own number is a search
    monkeypatch.setenv("ABLATIONS_CACHE", str(folder))
    monkeypatch.delenv("ABLATIONS_DATA", raising=False)


@pytest.fixture(scope="session", autouse=True)
def once(tmp_path_factory):
    """See `tests.once`."""
    from tests import once

    with pytest.MonkeyPatch.context() as patch:
        once.remember(patch, of_all_workers(tmp_path_factory) / "once")
        yield


def of_all_workers(tmp_path_factory) -> Path:
    """The temporary folder of this test run, one for all its workers; what is kept there must be safe to share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def undrawn(monkeypatch):
    """Figures of pages are files without a drawing; tests of figures and of whole pages say what they look like."""
    monkeypatch.setattr("ablations.figures.style.svg", lambda figure: "<svg/>")


@pytest.fixture(scope="session")
def finished_results(tmp_path_factory) -> Path:
    """The records and pages of four grids at laptop, made once for all workers; who changes them takes a copy.

    Their figures are `undrawn`.
    """
    from tests import finished

    folder = of_all_workers(tmp_path_factory) / "finished"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            made = folder.with_name("being made")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("ablations.figures.style.svg", lambda figure: "<svg/>")
                finished.results(made, *finished.SHARED)
            made.rename(folder)
    return folder


def make_tokens(rows: int = 4, length: int = 16, vocab_size: int = 50, padding: int = 0, seed: int = 0) -> Tokens:
    """Random sequences [CLS] w ... w [SEP], the last ``padding`` positions of every odd row padded.

    Their second halves are another segment, and the label ``sentence`` is 0 and 1 in turn.
    """
    ids = torch.randint(5, vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))
    real = torch.ones(rows, length, dtype=torch.bool)
    special = torch.zeros(rows, length, dtype=torch.bool)
    ids[:, 0], special[:, 0] = 2, True
    for row in range(rows):
        end = length - (padding if row % 2 else 0)
        real[row, end:], special[row, end - 1 :] = False, True
        ids[row, end - 1], ids[row, end:] = 3, 0
    return Tokens(
        ids=ids,
        special=special,
        real=real,
        sample=torch.arange(rows),
        tables={"segment": torch.zeros_like(ids)},
        labels={"sentence": torch.arange(rows) % 2},
    )


def make_draws(rows: int = 4, seed: int = 0, first: int = 0, epoch: int = 0) -> Draws:
    """The draws of ``rows`` sequences presented from number ``first`` on."""
    return Draws(seed, np.arange(first, first + rows), np.arange(rows), np.full(rows, epoch))


def make_vocabulary(size: int = 50) -> Vocabulary:
    """A vocabulary of whole words, and a text with each of them once."""
    return Vocabulary(tuple(map(str, range(size))), np.ones(size, dtype=bool), text=np.arange(5, size))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A corpus of 60 short documents over 59 words, where each word has a favourite successor."""
    rng = np.random.default_rng(0)
    words = [f"w{i:02d}" for i in range(59)]
    documents = []
    for _ in range(60):
        word, line = int(rng.integers(59)), []
        for _ in range(120):
            line.append(words[word])
            word = (word * 7 + 3) % 59 if rng.random() < 0.8 else int(rng.integers(59))
        documents.append(". ".join(" ".join(line[i : i + 12]) for i in range(0, 120, 12)) + ".")
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n\n".join(documents))
    return path


@pytest.fixture
def embedded(tmp_path_factory, monkeypatch):
    """Tokenizers, stores and tasks that are made of the embedded corpus are kept for all tests with this fixture."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(of_all_workers(tmp_path_factory) / "embedded-cache"))


@pytest.fixture
def forking(monkeypatch):
    """What an execution starts, fork servers and ranks, are forks of the test's process. See `tests.forking`."""
    monkeypatch.setattr(util, "spawnv_passfds", without_exec(util.spawnv_passfds))
    forkserver._forkserver._stop()  # that of another test
    yield
    forkserver._forkserver._stop()


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """One cache for the tests of a process that only need stores to exist."""
    return tmp_path_factory.mktemp("shared-cache")


@pytest.fixture
def tiny(text_file, shared_cache, monkeypatch):
    """A system that trains in a second, with dropout, on the corpus of `text_file`."""
    from lightning_modules.systems import ROBERTA_BASE

    monkeypatch.setenv("ABLATIONS_CACHE", str(shared_cache))
    return ROBERTA_BASE.but(
        **{
            "data.corpora": [f"text:{text_file}"],
            "data.tokenizer.kind": "wordpiece",
            "data.tokenizer.lowercase": True,
            "data.tokenizer.vocab_size": 64,
            "format.sequence_length": 16,
            "model.num_layers": 1,
            "model.hidden_size": 16,
            "model.num_heads": 2,
            "model.max_positions": 16,
            "optimizer.peak_lr": 1e-2,
            "training.batch_size": 8,
            "training.steps": 12,
            "training.precision": "fp32",
            "evaluation.sequences": 16,
            "evaluation.points": 3,
        }
    )
