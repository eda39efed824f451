"""[CLS] behind the last [SEP]: the same rows but for its place, in pretraining, in tasks and where answers are read."""

import numpy as np
import pytest
import torch

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.objectives import SentencePair
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import fitting
from lightning_modules.tasks.reading.layout import Segments
from lightning_modules.tasks.reading.text_vectors import READERS
from lightning_modules.tasks.settings import FineTuning
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming

LAST = {"format.kind": "segment_pairs", "format.cls": "last", "model.segment_types": 3}


def test_a_row_is_the_same_but_for_its_cls():
    tokens = make_tokens(rows=4, length=12, padding=4)
    tokens.tables["segment"] = torch.arange(12).ge(6).long().expand(4, -1).clone()
    moved = tokens.with_cls_last()
    for row in range(4):
        size = int(tokens.real[row].sum())
        assert moved.ids[row, : size - 1].equal(tokens.ids[row, 1:size])
        assert moved.ids[row, size - 1] == 2 == tokens.ids[row, 0]
        assert moved.ids[row, size:].equal(tokens.ids[row, size:])
        assert moved.tables["segment"][row, : size - 1].equal(tokens.tables["segment"][row, 1:size])
        assert moved.tables["segment"][row, size - 1] == 2
        assert moved.special[row, size - 2 : size].all()
        assert not moved.special[row, 0]
        assert moved.cls[row] == size - 1
    assert moved.real.equal(tokens.real)


def test_the_pair_is_read_where_its_cls_stands():
    for tokens in (make_tokens(), make_tokens(padding=5).with_cls_last()):
        example = SentencePair().mask_inputs(Example.of(tokens), make_draws(), make_vocabulary())
        assert (tokens.ids.flatten()[example.targets["sentence"].where] == 2).all()


def test_training_and_held_out_pairs_have_it_last_and_held_out_text_first(tiny):
    system = tiny.but(**LAST, **{"objectives.sentence.weight": 1.0, "format.sequence_length": 48,
                                 "model.max_positions": 48})  # fmt: skip
    data, usual = system.data_module(0), system.but(**{"format.cls": "first"}).data_module(0)
    data.prepare_data()
    ours, theirs = (next(iter(module.train_dataloader())).inputs for module in (data, usual))
    assert (ours.ids.gather(1, ours.cls[:, None]) == 2).all()
    assert ours.real.equal(theirs.real)
    assert (theirs.ids[:, 0] == 2).all()
    assert theirs.cls is None
    assert next(iter(data.heldout)).inputs.cls is None
    asked = next(iter(data.heldout_pairs("random", 8, system.collate_pairs()))).inputs
    assert (asked.ids.gather(1, asked.cls[:, None]) == 2).all()


def test_a_running_text_and_one_without_cls(tiny):
    plain = tiny.but(**{"format.cls": "last", "model.segment_types": 0})
    assert plain.cls_last
    assert plain.format.essence() != tiny.format.essence()
    blocks = {"format.break_mode": "none", "format.frame": "none"}
    assert not plain.but(**blocks).cls_last
    assert plain.but(**blocks).format.essence() == tiny.but(**blocks).format.essence()


@pytest.mark.parametrize("texts", [1, 2])
def test_rows_of_tasks_are_bert_rows_with_cls_last(texts):
    noise, vocabulary = np.random.default_rng(0), make_vocabulary()
    bounds = np.sort(noise.integers(0, 60, (texts, 2, 8)), axis=1)
    ids = noise.integers(5, 50, 60)
    here, there = (Segments(ids, bounds, vocabulary, layout) for layout in ("cls_last", "cls_sep"))
    assert here.lengths.tolist() == there.lengths.tolist()
    rows = np.arange(8)
    tokens, wanted = here.tokens(rows), there.tokens(rows).with_cls_last()
    assert tokens.ids.equal(wanted.ids)
    assert tokens.tables["segment"].equal(wanted.tables["segment"])
    states = torch.nn.functional.one_hot(tokens.ids, 50).float()
    assert (READERS["last"].read(states, tokens).argmax(1) == vocabulary.cls).all()
    usual = torch.nn.functional.one_hot(there.tokens(rows).ids, 50).float()
    for reader in ("mean", "max", "mean_per_text"):
        read = READERS[reader].read
        assert torch.allclose(read(states, tokens), read(usual, there.tokens(rows))), reader


def test_what_has_no_room_for_a_third_segment_is_refused(tiny):
    with pytest.raises(ConfigError, match=naming("format.cls last", "model.segment_types")):
        tiny.but(**LAST | {"model.segment_types": 2})
    settings = FineTuning(layout="cls_last")
    with pytest.raises(ConfigError, match=naming("finetuning.layout", "cls_last", "model.segment_types is 2")):
        fitting.check(tiny.but(**{"model.segment_types": 2}), "rte", settings)
    fitting.check(SYSTEMS["xlnet_base"], "rte", settings)
    fitting.check(SYSTEMS["xlnet_base"], "squad1", settings)
    with pytest.raises(ConfigError, match=naming("finetuning.layout", "conll2003", "cls_sep")):
        fitting.check(SYSTEMS["xlnet_base"], "conll2003", settings)
    with pytest.raises(ConfigError, match=naming("reader first", "cls_last", "last")):
        FineTuning().but(layout="cls_last", reader="first")
    assert settings.reading("both").reader == "last"
