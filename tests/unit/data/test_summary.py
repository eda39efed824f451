"""What formats are said to make of a text is what their rows hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.config import ConfigError
from lightning_modules.data import SentencePairFormat
from lightning_modules.data.formats import FORMATS, NAMED, summary
from tests.unit.data.test_formats import make_store
from tests.unit.data.test_pairs import DOCUMENTS


@pytest.mark.parametrize("name", NAMED)
@given(documents=DOCUMENTS, length=st.integers(8, 40))
def test_a_summary_counts_what_the_rows_hold(tmp_path_factory, name, documents, length):
    store = make_store(tmp_path_factory.mktemp("s"), documents)
    form = FORMATS[NAMED[name]["kind"]](sequence_length=length, **NAMED[name]).resolved()
    sequences = form.arrange(store)
    tokens = sequences.batch(np.arange(len(sequences)))
    rows = [ids[~special].numpy() - 5 for ids, special in zip(tokens.ids, tokens.special, strict=True)]
    documents_of = [np.searchsorted(np.unique(store.document_starts), row, side="right") for row in rows]
    found = summary(store, form)
    assert found["rows"] == len(rows)
    assert found["mean length"] == pytest.approx(tokens.real.sum(1).double().mean().item())
    assert found["padding"] == pytest.approx(1 - tokens.real.double().mean().item())
    assert found["documents a row"] == pytest.approx(np.mean([len(set(row.tolist())) for row in documents_of]))
    assert found["of the text"] == pytest.approx(len(set(np.concatenate(rows).tolist())) / len(store.ids))


def test_a_text_without_a_sequence_is_an_error(tmp_path):
    store = make_store(tmp_path, [[3], [4]])
    with pytest.raises(ConfigError, match="no sequence of 16 positions"):
        summary(store, SentencePairFormat(negatives="swapped", sequence_length=16))
