"""How far a model sees: what a state keeps of a token three quarters of the sequence away.

A text classifier reads one state of a sequence. Where position biases, which add up over layers, leave nothing of
distant tokens in that state, no fine-tuning can put it back, and a comparison of heads, widths or directions compares
reach. It is measured at initialisation and in float64, where a change of 1e-12 is still a change.
"""

import torch

from lightning_modules.batch import Example, Tokens
from lightning_modules.model import AnyBackbone, Transformer
from lightning_modules.model.settings import only

SHARE = 0.75  # of the sequence's length: how far away the changed token is
LEAST = 0.05  # of the reach under learned positions, at the same sizes
_VOCABULARY, _ROWS = 100, 1


@torch.no_grad()
def reach(model: AnyBackbone, length: int, seed: int = 0) -> float:
    """The relative change of a state when one token at least `SHARE` of the length away is another one.

    Both ends of the sequence are read, where the direction allows it; the smaller change counts. A model of two
    stacks is read where each of them sees the token. Dropout is off.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = model.build(_VOCABULARY).double().eval()
        ids = torch.randint(_VOCABULARY, (_ROWS, length))
    far = int(SHARE * length + 0.999)
    states = encoder(_example(ids)).last
    changes = []
    if model.direction in ("both", "left_to_right", "two_way"):
        changes.append(_change(encoder, ids, states, token=length - 1 - far, read=length - 1))
    if model.direction in ("both", "right_to_left", "two_way"):
        changes.append(_change(encoder, ids, states, token=far, read=0))
    return min(changes)


def relative(model: AnyBackbone, length: int, seed: int = 0) -> float:
    """The reach of a transformer over that of the same one with learned positions.

    Raises:
        ConfigError: For another kind of model.
    """
    model = only(model, Transformer, "a reach relative to learned positions")
    learned = model.but(positions="learned", rotary_size=None, max_positions=max(length, model.max_positions))
    return reach(model, length, seed) / reach(learned, length, seed)


def _change(encoder: torch.nn.Module, ids: torch.Tensor, states: torch.Tensor, token: int, read: int) -> float:
    other = ids.clone()
    other[:, token] = (ids[:, token] + 1) % _VOCABULARY
    before, after = states[:, read], encoder(_example(other)).last[:, read]
    return float(((after - before).norm(dim=-1) / before.norm(dim=-1)).mean())


def _example(ids: torch.Tensor) -> Example:
    special = torch.zeros_like(ids, dtype=torch.bool)
    return Example.of(Tokens(ids, special, ~special, torch.arange(len(ids)), {"segment": torch.zeros_like(ids)}))
