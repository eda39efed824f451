"""ALBERT's two ways to fewer parameters: who shares with whom, at which width, and that nothing else changes."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example
from lightning_modules.model import Transformer
from tests.conftest import make_tokens

DEEP = Transformer(num_layers=6, hidden_size=32, num_heads=2, max_positions=32)
SHARING = ["attention", "ffn", "all"]


def _built(settings: Transformer, seed: int = 0):
    torch.manual_seed(seed)
    return settings.build(50)


def _run(encoder) -> torch.Tensor:
    torch.manual_seed(1)  # dropout
    return encoder(Example.of(make_tokens())).last


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(("layers", "groups"), [(1, 1), (6, 6)])
def test_sharing_with_nobody_is_no_sharing(sharing, layers, groups):
    alone = DEEP.but(num_layers=layers)
    shared = alone.but(sharing=sharing, sharing_groups=groups)
    assert shared.essence() == alone.essence()
    assert torch.equal(_run(_built(shared).train()), _run(_built(alone).train()))


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_shared_encoder_is_an_unshared_one_with_equal_weights(sharing, norm):
    """Same output; and the gradient of a shared tensor is the sum over its uses."""
    shared = _built(DEEP.but(sharing=sharing, sharing_groups=2, norm=norm)).eval()
    plain = _built(DEEP.but(norm=norm), seed=1).eval()
    state = shared.state_dict()
    uses = {name: [] for name, _ in shared.named_parameters()}
    for name, parameter in plain.named_parameters():
        source = name
        if name.startswith("blocks."):
            _, layer, kind, rest = name.split(".", 3)
            source = f"blocks.{shared.owners[int(layer)][kind]}.{kind}.{rest}"
        parameter.data.copy_(state[source])
        uses[source].append(parameter)
    outputs = [_run(encoder) for encoder in (shared, plain)]
    assert torch.equal(*outputs)
    for output in outputs:
        (output * torch.linspace(-1, 1, 32)).sum().backward()
    for name, parameter in shared.named_parameters():
        wanted = sum(use.grad for use in uses[name])
        assert torch.allclose(parameter.grad, wanted, rtol=1e-4, atol=1e-5), name


def test_dropout_draws_anew_at_each_use():
    """With weights that leave the stream as it is but for dropout, two uses of one module drop different entries."""
    encoder = _built(DEEP.but(num_layers=2, sharing="all", embedding_dropout=0.0, norm="pre", dropout=0.5)).train()
    ffn = encoder.blocks[0]["ffn"]
    torch.nn.init.zeros_(ffn.function.contract.weight)
    torch.nn.init.ones_(ffn.function.contract.bias)
    torch.nn.init.zeros_(encoder.blocks[0]["attention"].function.output.weight)
    embedded, one, two = encoder(Example.of(make_tokens())).layers
    first, second = (one - embedded).detach().abs() > 1, (two - one).detach().abs() > 1
    assert 0.4 < first.float().mean() < 0.6
    assert 0.4 < (first == second).float().mean() < 0.6


def test_depth_is_that_of_the_first_use():
    encoder = _built(DEEP.but(sharing="attention", sharing_groups=2, embedding_size=8, norm="pre"))
    depths = {name: encoder.depth(name) for name, _ in encoder.named_parameters()}
    assert depths["embeddings.word.weight"] == depths["embeddings.projection.bias"] == 0
    assert {d for name, d in depths.items() if ".attention." in name} == {1, 4}
    assert {d for name, d in depths.items() if ".ffn." in name} == {1, 2, 3, 4, 5, 6}
    assert depths["final_norm.weight"] == 7


@pytest.mark.parametrize("knobs", [{"embedding_size": 8}, {"embedding_size": 64, "sharing": "all"}])
def test_the_flop_formula_counts_every_use(knobs):
    settings = DEEP.but(**knobs)
    encoder = _built(settings).train()  # with dropout attention is two products, which torch counts
    with FlopCounterMode(display=False) as counter:
        encoder(Example.of(make_tokens(rows=1)))
    assert settings.flops_per_sequence(16) == pytest.approx(counter.get_total_flops(), rel=1e-6)
