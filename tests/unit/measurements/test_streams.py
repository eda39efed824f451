"""Held-out losses of streams are of one text if their rows are the same, however long segments and memories are."""

from types import SimpleNamespace

import pytest

from ablations.measurements.sides import one_text
from lightning_modules.systems import SYSTEMS

STREAM = SYSTEMS["gpt"].but(**{"format.kind": "stream", "format.frame": "document_ends"})


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"evaluation.sequence_length": 64}, True),
        ({"evaluation.sequence_length": 64, "evaluation.context": 64}, True),
        ({"format.sequence_length": 256, "evaluation.sequences": 2048}, True),
        ({"format.sequence_length": 256}, False),
        ({"evaluation.rows": 4}, False),
        ({"format.frame": "none"}, False),
        ({"format.sentence_order": "shuffled"}, False),
        ({"format.kind": "full_sentences", "format.break_mode": "none"}, False),
    ],
)
def test_one_text_is_one_set_of_rows(changes, same):
    cells = [SimpleNamespace(system=system) for system in (STREAM, STREAM.but(**changes))]
    assert one_text(cells, "heldout.next_loss") == same
