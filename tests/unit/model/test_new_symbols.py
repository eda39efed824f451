"""Rows of the embedding table for symbols that no vocabulary has."""

import pytest
import torch
from torch import nn

from lightning_modules.data import Tokenizer
from lightning_modules.model.embeddings import FIRST_NEW, ExtendedTable


def test_pieces_have_their_rows_and_new_symbols_theirs():
    torch.manual_seed(0)
    table = nn.Embedding(7, 5)
    extended = ExtendedTable(table, 3)
    ids = torch.tensor([[6, FIRST_NEW + 2, 0], [FIRST_NEW, 3, FIRST_NEW + 1]])
    rows = extended(ids)
    assert rows[0, 0].equal(table.weight[6])
    assert rows[1, 1].equal(table.weight[3])
    for place, number in (((0, 1), 2), ((1, 0), 0), ((1, 2), 1)):
        assert rows[place].equal(extended.new[number])
    assert extended.weight is table.weight, "one parameter, which tied output layers hold too"
    for unknown, rows in ((FIRST_NEW + 3, extended), (FIRST_NEW, table)):
        with pytest.raises(IndexError):
            rows(torch.tensor([[unknown]]))


def test_rows_are_normal():
    torch.manual_seed(1)
    rows = ExtendedTable(nn.Embedding(3, 4000), 3).new
    assert rows.std().item() == pytest.approx(0.02, rel=0.05)
    assert rows.mean().abs() < 1e-3


def test_no_vocabulary_reaches_them():
    assert Tokenizer(vocab_size=FIRST_NEW).vocab_size == FIRST_NEW
    with pytest.raises(ValueError, match="vocab_size"):
        Tokenizer(vocab_size=FIRST_NEW + 1)
