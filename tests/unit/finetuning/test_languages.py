"""Fine-tuning of a model that has embeddings of languages: each split is read in the language that its task states."""

from dataclasses import replace

import pytest
import torch

from lightning_modules.batch import NO_LANGUAGE
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.tasks import TASKS, FineTuning, fingerprint, pins
from lightning_modules.training.weights import WEIGHTS
from tests.languages import texts, tiny_xlm
from tests.toy import toy_task

SETTINGS = FineTuning().but(**{"max_length": 16, "batch_size": 8, "epochs": 1})


@pytest.fixture
def abroad(monkeypatch):
    """A task whose training texts are English and whose dev texts are German."""
    task = replace(toy_task("toy", shape="pair"), languages=("en", "de"))
    monkeypatch.setitem(TASKS, "toy", task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return task


@pytest.fixture
def corpus(tmp_path, shared_cache):
    texts(tmp_path / "text")
    return f"lines:en-de:{tmp_path}/text/*"


def numbers(run: FinetuningRun) -> tuple[set[int], set[int]]:
    """The numbers of languages in the batches of both splits."""
    both = run.data.train_dataloader(), run.data.val_dataloader()
    train, dev = ({int(n) for batch in batches for n in batch.inputs.tables["language"].unique()} for batches in both)
    return train, dev


def test_each_split_is_read_in_its_language(abroad, corpus):
    system = tiny_xlm(corpus, **{"model.languages": ["es", "en", "de"]})
    assert numbers(FinetuningRun(system, "toy", SETTINGS, 0, None)) == ({1}, {2})
    left_out = system.but(**{"evaluation.languages": "left_out"})
    assert numbers(FinetuningRun(left_out, "toy", SETTINGS, 0, None)) == ({1}, {NO_LANGUAGE})
    searched = SETTINGS.but(validation_share=0.25)
    assert numbers(FinetuningRun(system, "toy", searched, 0, None)) == ({1}, {1}), "that part is of the training texts"


def test_positions_of_the_second_text_go_on(abroad, corpus):
    """Conneau and Lample (2019) begin them again in pairs of translations alone (released code)."""
    batch = next(iter(FinetuningRun(tiny_xlm(corpus), "toy", SETTINGS, 0, None).data.val_dataloader()))
    assert batch.inputs.positions is None


def test_the_language_of_the_dev_texts_acts_on_what_is_answered_and_on_no_training(
    abroad, corpus, tmp_path, monkeypatch
):
    system = tiny_xlm(corpus)
    fit(system, 0, tmp_path / "start")
    found = {}
    for language in ("de", "es"):
        monkeypatch.setitem(TASKS, "toy", replace(abroad, languages=("en", language)))
        run = FinetuningRun(system, "toy", SETTINGS, 0, tmp_path / "start" / WEIGHTS)
        found[language] = finetune(run, tmp_path / language)
    assert found["de"].curve["toy.train_loss"] == found["es"].curve["toy.train_loss"]
    assert found["de"].metrics["toy.dev_loss"] != found["es"].metrics["toy.dev_loss"]


def test_a_frozen_encoder_reads_each_split_in_its_language(abroad, corpus):
    system, frozen = tiny_xlm(corpus), SETTINGS.but(**{"features.layers": "last"})
    run = FinetuningRun(system, "toy", frozen, 0, None)
    batch = next(iter(run.data.val_dataloader()))
    backbone, _ = run.networks()
    assert torch.equal(
        backbone.features(replace(batch, features=None))[batch.inputs.real], batch.features[batch.inputs.real]
    )


def test_languages_are_part_of_what_a_task_is(abroad, monkeypatch):
    before = fingerprint("toy")
    monkeypatch.setitem(TASKS, "toy", replace(abroad, languages=("en", "en")))
    assert fingerprint("toy") != before


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ((), "toy names no language of its texts"),
        (("en", "fr"), "toy has texts in 'fr'"),
        (("en", "d"), "Did you mean 'de'"),
    ],
)
def test_a_language_that_is_not_stated_or_not_known_is_refused(abroad, corpus, monkeypatch, named, message):
    monkeypatch.setitem(TASKS, "toy", replace(abroad, languages=named))
    with pytest.raises(ConfigError, match=message):
        FinetuningRun(tiny_xlm(corpus), "toy", SETTINGS, 0, None).build()
    unnamed = tiny_xlm(corpus, **{"model.languages": []})
    FinetuningRun(unnamed, "toy", SETTINGS, 0, None).build()
