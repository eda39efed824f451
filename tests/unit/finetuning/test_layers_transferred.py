"""How many layers of a pretraining a fine-tuning starts from: Radford et al. 2018, Figure 2, left."""

import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import finetune
from lightning_modules.tasks import fitting
from lightning_modules.training.weights import WEIGHTS, keep_weights
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings()


@pytest.fixture
def deep(tiny):
    return tiny.but(**{"model.num_layers": 4, "model.norm": "pre"})


def pretrained(system, folder):
    """The weights of an untrained model of another seed, whose norms differ from fresh ones."""
    module = system.build(seed=9)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape) / 100)
    keep_weights(module, folder)
    return folder / WEIGHTS


def encoder_of(system, weights, **changes):
    return tuning(system, weights, **changes).networks()[0]


@pytest.mark.parametrize("direction", ["left_to_right", "both", "two_way"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_embeddings_and_the_first_layers_are_transferred_and_no_more(deep, tmp_path, direction, count):
    """Those above, and the norm after them, are what a training from scratch starts from."""
    system = deep.but(**{"model.direction": direction, "model.num_layers": 8 if direction == "two_way" else 4})
    weights = pretrained(system, tmp_path)
    found, usual = encoder_of(system, weights, layers_transferred=count), encoder_of(system, weights)
    scratch = encoder_of(system, None, from_scratch=True)
    here, full, fresh = (encoder.state_dict() for encoder in (found, usual, scratch))
    depths = {found.depth(name) for name in here}
    assert depths == set(range(6)), "embeddings, four layers, the norm above them"
    for name, tensor in here.items():
        assert not full[name].equal(fresh[name])
        assert tensor.equal((full if found.depth(name) <= count else fresh)[name]), name


def test_all_layers_are_the_usual_fine_tuning_to_the_bit(deep, tmp_path):
    weights = pretrained(deep, tmp_path)
    one, other = (
        finetune(tuning(deep, weights, layers_transferred=count), tmp_path / str(count)) for count in (4, None)
    )
    assert one.metrics == other.metrics
    assert one.curve == other.curve
    ids = [planned(deep, SETTINGS.but(layers_transferred=count)).id for count in (None, 4, 3, 0)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_a_pooler_is_above_all_layers(deep, tmp_path):
    system = deep.but(**{"objectives.sentence.weight": 1.0, "format.kind": "segment_pairs", "model.segment_types": 2})
    weights = pretrained(system, tmp_path)
    heads = [tuning(system, weights, layers_transferred=count).networks()[1] for count in (None, 4, 3)]
    assert heads[0].pooler.weight.equal(heads[1].pooler.weight)
    assert not heads[0].pooler.weight.equal(heads[2].pooler.weight)


def test_new_symbols_are_new_in_any_case(deep, tmp_path):
    weights = pretrained(deep, tmp_path)
    some, all_ = (encoder_of(deep, weights, layers_transferred=n, layout="extract") for n in (1, None))
    assert some.embeddings.word.new.equal(all_.embeddings.word.new)
    assert some.embeddings.word.weight.equal(all_.embeddings.word.weight)


class TestRefusals:
    @pytest.mark.parametrize(("direction", "layers"), [("both", 4), ("two_way", 2)])
    def test_of_more_layers_than_there_are(self, deep, direction, layers):
        system = deep.but(**{"model.direction": direction})
        message = rf"finetuning\.layers_transferred: {layers + 1} is more than the {layers} layers.* 0 to {layers}"
        with pytest.raises(ConfigError, match=message):
            fitting.check(system, "toy", SETTINGS.but(layers_transferred=layers + 1))
        fitting.check(system, "toy", SETTINGS.but(layers_transferred=layers))

    @pytest.mark.parametrize(
        ("sharing", "groups", "whole"),
        [("all", 1, (0, 4)), ("ffn", 2, (0, 2, 4)), ("all", 4, (0, 1, 2, 3, 4))],
    )
    def test_of_a_cut_between_layers_that_share_weights(self, deep, sharing, groups, whole):
        system = deep.but(**{"model.sharing": sharing, "model.sharing_groups": groups})
        for count in range(5):
            settings = SETTINGS.but(layers_transferred=count)
            if count in whole:
                fitting.check(system, "toy", settings)
                continue
            listed = ", ".join(map(str, whole))
            with pytest.raises(ConfigError, match=f"{count} would part layers that share.*Give {listed}"):
                fitting.check(system, "toy", settings)

    def test_of_shared_layers_that_are_taken_over_whole(self, deep, tmp_path):
        system = deep.but(**{"model.sharing": "all", "model.sharing_groups": 2})
        weights = pretrained(system, tmp_path)
        found, usual = (encoder_of(system, weights, layers_transferred=n).state_dict() for n in (2, None))
        same = {name for name, tensor in found.items() if tensor.equal(usual[name])}
        assert any(name.startswith("blocks.0.") for name in same)
        assert not any(name.startswith("blocks.2.") for name in same)
