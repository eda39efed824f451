"""What GPT and GPT-2 need of a backbone: no norm on embeddings, initial weights, and no look ahead."""

import math

import pytest
import torch

from lightning_modules.model import Transformer
from lightning_modules.systems import SYSTEMS


def built(**changes):
    settings = Transformer(num_layers=4, hidden_size=64, num_heads=2, init="normal", segment_types=0)
    torch.manual_seed(0)
    return settings.but(**changes).build(200).eval()


def test_other_standard_deviations_are_the_same_draws_multiplied():
    plain = built().state_dict()
    other = built(position_init_std=0.01, residual_init="scaled").state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], other[name])}
    into_the_stream = {f"blocks.{n}.{part}.function.{name}.weight" for n in range(4)
                       for part, name in (("attention", "output"), ("ffn", "contract"))}  # fmt: skip
    assert changed == {"embeddings.position.weight", *into_the_stream}
    assert torch.allclose(other["embeddings.position.weight"], plain["embeddings.position.weight"] / 2)
    for name in into_the_stream:
        assert torch.allclose(other[name], plain[name] / math.sqrt(8)), "two sub-layers in each of four layers"


def test_gpts_weights_have_the_standard_deviations_of_the_released_code():
    weights = SYSTEMS["gpt2"].but(**{"model.num_layers": 2, "model.hidden_size": 128}).model.build(500).state_dict()
    assert weights["embeddings.word.weight"].std() == pytest.approx(0.02, rel=0.02)
    assert weights["embeddings.position.weight"].std() == pytest.approx(0.01, rel=0.02)
    assert weights["blocks.1.attention.function.qkv.weight"].std() == pytest.approx(0.02, rel=0.02)
    assert weights["blocks.1.ffn.function.contract.weight"].std() == pytest.approx(0.02 / 2, rel=0.02)
    assert weights["embeddings.word.weight"].abs().max() > 0.06, "not cut at two standard deviations"


def test_a_spelt_out_default_of_positions_is_the_same_model():
    model = SYSTEMS["gpt"].model
    assert model.but(position_init_std=0.02).essence() == model.essence()
    turned = model.but(positions="rotary")
    assert turned.but(position_init_std=0.01).essence() == turned.essence()
