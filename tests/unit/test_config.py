"""Settings as values: what is worked out once for all that are equal leaves no trace in any of them."""

import copy
import pickle

import pytest

from lightning_modules.backbones import Transformer
from lightning_modules.config import ConfigError
from lightning_modules.data import InputFormat
from lightning_modules.systems import SYSTEMS

ALIKE = [
    lambda: Transformer(hidden_size=128, num_layers=2),
    lambda: InputFormat(kind="segment_pairs", short_fraction=0.0, short_documents=True),
    lambda: SYSTEMS["albert_base"].but(**{"model.num_layers": 2}),
]


@pytest.mark.parametrize("make", ALIKE)
def test_resolving_leaves_no_trace(make):
    asked, fresh = make(), make()
    before = (hash(asked), repr(asked), asked.model_dump(), pickle.dumps(asked), dict(asked.__dict__))
    assert asked.resolved() != asked
    assert asked.resolved() == fresh.resolved() == asked.resolved().resolved()
    assert (hash(asked), repr(asked), asked.model_dump(), pickle.dumps(asked), dict(asked.__dict__)) == before
    assert asked == fresh
    assert asked.but() == copy.deepcopy(asked) == pickle.loads(pickle.dumps(asked)) == fresh


def test_copies_are_resolved_by_their_own_values():
    small = Transformer(hidden_size=128)
    assert (small.resolved().ffn_size, small.resolved().num_heads) == (512, 2)
    for larger in (small.but(hidden_size=256), small.model_copy(update={"hidden_size": 256})):
        assert (larger.resolved().ffn_size, larger.resolved().num_heads) == (1024, 4)
    assert small.resolved().ffn_size == 512


def test_equal_settings_are_alike_to_the_type():
    """Else which of two was resolved first would show in identities: 0, 0.0 and False are equal and hash alike."""
    whole = Transformer(dropout=0)
    assert type(whole.dropout) is type(whole.but(dropout=0).dropout) is type(Transformer.read({"dropout": 0}).dropout)
    assert type(whole.dropout) is float
    with pytest.raises(ConfigError):
        whole.but(dropout=False)
    with pytest.raises(ConfigError):
        whole.but(num_layers=1.0)
