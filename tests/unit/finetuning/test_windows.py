"""Whole documents read in windows: equal to reading them whole, gradients within a window, in bounded memory."""

import pytest
import torch

from lightning_modules.batch import Example, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.finetuning import windows
from lightning_modules.finetuning.run import finetune
from lightning_modules.finetuning.windows import InWindows
from lightning_modules.tasks import fitting
from lightning_modules.tasks.reading.text_vectors import FOLDED, READERS
from tests.tuning import tunings
from tests.unit.finetuning.test_freezing import RECURRENT

SETTINGS, tuning = tunings(max_length=64, window=8)
WORDS = 40


@pytest.fixture
def recurrent(tiny):
    return tiny.but(**RECURRENT)


def rows(lengths, seed=0):
    """Random rows of some lengths, padded at the end."""
    noise, width = torch.Generator().manual_seed(seed), max(lengths)
    real = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, WORDS, real.shape, generator=noise).masked_fill(~real, 0)
    return Example.of(Tokens(ids, ~real, real, torch.arange(len(lengths))))


def encoder(system, seed=0):
    torch.manual_seed(seed)
    return system.model.build(WORDS)


@pytest.mark.parametrize("reader", sorted(FOLDED))
@pytest.mark.parametrize("lengths", [[31, 8, 1, 16], [7, 3], [40, 40]])
def test_windows_give_what_the_whole_row_gives(recurrent, reader, lengths):
    model, example = encoder(recurrent).eval(), rows(lengths)
    whole = READERS[reader].read(model(example).last, example.inputs)
    read = InWindows(model, 8, reader)(example).vectors
    assert torch.allclose(read, whole, atol=1e-6)


def gradients(model, example):
    torch.manual_seed(5)  # dropout
    model.zero_grad()
    model(example).vectors.square().sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_computing_windows_again_changes_no_gradient(recurrent, monkeypatch):
    """With all dropouts: a window that is read a second time for the backward pass has the masks that it had."""
    rates = dict.fromkeys(("word_type", "input", "weight", "hidden", "output"), 0.4)
    system = recurrent.but(**{f"model.{name}_dropout": rate for name, rate in rates.items()})
    model, example = InWindows(encoder(system), 8, "concat").train(), rows([90, 41, 70])
    again = gradients(model, example)
    monkeypatch.setattr(windows, "_AT_HAND", 1000)
    kept = gradients(model, example)
    assert set(again) == set(kept) == {name for name, _ in model.named_parameters()}
    assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_gradients_stay_within_a_window(recurrent):
    """The last state depends on all of the text, and its gradient reaches the last window alone."""
    model, example = InWindows(encoder(recurrent), 8, "last").train(), rows([24])
    example.inputs.ids[0] = torch.arange(5, 29)
    moved = gradients(model, example)["encoder.embeddings.word.weight"].abs().sum(1)
    assert (moved[21:29] > 0).all()
    assert (moved[:21] == 0).all()
    before = model.eval()(example).vectors
    example.inputs.ids[0, 0] = 30
    assert not torch.allclose(model(example).vectors, before, atol=1e-9)


def kept_bytes(model, example):
    """Bytes that the forward pass keeps for the backward pass, parameters apart."""
    parameters, sizes = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def pack(tensor):
        place = tensor.untyped_storage().data_ptr()
        if place not in parameters:
            sizes[place] = tensor, tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(example)
    return sum(size for _, size in sizes.values())


@pytest.mark.nightly
def test_documents_twenty_times_as_long_take_little_more_memory(recurrent):
    system = recurrent.but(**{"model.hidden_size": 64})
    model = InWindows(encoder(system), 64, "concat").train()
    short, long = (kept_bytes(model, rows([length] * 4)) for length in (6 * 64, 120 * 64))
    assert long < 2 * short
    whole = encoder(system).train()
    assert kept_bytes(whole, rows([120 * 64] * 4)) > 8 * long


def test_one_window_is_the_usual_fine_tuning(recurrent, tmp_path):
    found = []
    for window in (None, 64):
        settings = SETTINGS.but(**{"reader": "concat", "window": window, "epochs": 1, "from_scratch": True})
        fitted = finetune(tuning(recurrent, settings=settings), tmp_path / str(window))
        found.append(fitted.metrics["toy.dev_loss"])
    assert found[1] == pytest.approx(found[0], abs=1e-3)  # padding is packed, and Adam enlarges rounding


def test_models_without_such_states_are_refused_by_name(tiny, recurrent):
    for system in (
        tiny,
        recurrent.but(**{"model.direction": "right_to_left", "objectives.lm.direction": "right_to_left"}),
    ):
        with pytest.raises(ConfigError, match=r"finetuning\.window: 8 carries the states of an LSTM"):
            fitting.check(system, "toy", SETTINGS)
    with pytest.raises(ConfigError, match=r"finetuning\.window: 8 reads a text as a whole, and squad1 has no such"):
        fitting.check(recurrent, "squad1", SETTINGS)
