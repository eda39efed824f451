"""Given masks reach the network that trains, whose tables are as by hand; what it draws without them is as before."""

import pytest
import torch

from ablations.inspection.five_dropouts import KINDS, FiveDropouts, GivenMasks
from lightning_modules.config import ConfigError
from lightning_modules.model.layers import drop
from tests.messages import naming


@pytest.mark.parametrize(("kind", "rate"), [(kind, rate) for kind in KINDS for rate in (0.5, 0.2)])
def test_tables_are_those_of_the_given_mask(kind, rate):
    five = FiveDropouts(rate=rate)
    before, after = five.tables(kind)
    kept = five.masks(kind)[0]
    if kind == "word types":
        kept = torch.tensor([word != "dog" for text in five.texts for word in text.split()])[:, None].expand(-1, 5)
    elif kind != "recurrent weights":
        kept = kept.expand(-1, 5, -1).flatten(0, 1)
    assert torch.allclose(after, before * kept / (1 - rate), rtol=1e-4)
    assert (before != 0).all()


def test_as_many_weights_are_dropped_as_are_asked_for():
    for count in (0, 22, 100):
        _, after = FiveDropouts(dropped_weights=count).tables("recurrent weights")
        assert after.shape == (20, 5)
        assert int((after == 0).sum()) == count


def test_scaling_keeps_the_mean():
    means = FiveDropouts(rate=0.25).means(400).data.set_index("kept entries")
    assert means["share"].tolist() == pytest.approx([1.0, 0.75], abs=0.05)


def test_masks_are_drawn_where_none_are_given_and_afterwards():
    x, given = torch.ones(8), torch.tensor([True, False] * 4)
    torch.manual_seed(3)
    drawn = [drop(x, 0.5) for _ in range(3)]
    torch.manual_seed(3)
    with GivenMasks([None, given]) as masks:
        found = [drop(x, 0.5), drop(x, 0.5)]
    found.append(drop(x, 0.5))
    assert torch.equal(found[0], drawn[0])
    assert torch.equal(found[1], 2.0 * given)
    assert torch.equal(found[2], drawn[2])
    assert masks.sizes == [8, 8]
    with pytest.raises(ConfigError, match="12 entries"), GivenMasks([torch.ones(12, dtype=torch.bool)]):
        drop(x, 0.5)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"dropped_words": ["dogs"]}, ("dogs", "dog")),
        ({"texts": ["a dog", "the dog sees a cat"]}, ("texts", "equally long")),
        ({"dropped_units": [[6], []]}, ("dropped_units", "6", "1 to 5")),
        ({"dropped_weights": 101}, ("dropped_weights", "101", "100")),
    ],
    ids=["word", "lengths", "units", "weights"],
)
def test_tables_that_cannot_be_are_refused(given, names):
    with pytest.raises(ConfigError, match=naming(*names)):
        FiveDropouts(**given)
    with pytest.raises(ConfigError, match=naming("inputs", "input")):
        FiveDropouts().tables("inputs")
