"""Vectors of words from their characters: convolutions, the maximum over places, highways (Kim et al. 2016; ELMo)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.config import Settings, knob
from lightning_modules.words import CHARACTERS, LONGEST, NO_CHARACTER

_BIAS = -2.0  # of the gates of highways, which so begin near the identity
_WIDTH_STD = 0.05


class CharacterEncoder(Settings):
    """Words read by their characters. Defaults are those of ELMo (Peters et al. 2018, section 3.4; released code)."""

    size: int = knob(16, "Width of a character's embedding.", ge=1, le=1 << 12)
    filters: tuple[int, ...] = knob(
        (32, 32, 64, 128, 256, 512, 1024),
        "Filters of the convolutions over one character, two, three and so on.",
        min_length=1,
        max_length=LONGEST,
    )
    highways: int = knob(2, "Highway layers above the filters.", ge=0, le=64)

    def flops(self, width: int) -> float:
        """FLOPs of the matrix products of one word of 50 characters, projected to some width."""
        total = sum(self.filters)
        over = sum(2 * count * self.size * (n + 1) * (LONGEST - n) for n, count in enumerate(self.filters))
        return float(over + self.highways * 4 * total**2 + 2 * total * width)


class Highway(nn.Module):
    """``y = g relu(W x + b) + (1 - g) x`` with ``g = sigmoid(V x + c)`` (Srivastava et al. 2015, equation 3).

    It begins near the identity: c is -2.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        for layer in (self.transform, self.gate):
            nn.init.normal_(layer.weight, std=width**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, _BIAS)

    def forward(self, x: Float[Tensor, "u f"]) -> Float[Tensor, "u f"]:
        return torch.lerp(x, F.relu(self.transform(x)), torch.sigmoid(self.gate(x)))


class WordsByCharacters(nn.Module):
    """A vector for each distinct word of a batch.

    Filters run over the characters, padding included; the rectifier follows the maximum over places, as in the
    released code. Places where a filter sees padding alone are alike, so that rows end seven characters, the width
    of the widest filter, behind the longest word.
    """

    def __init__(self, settings: CharacterEncoder, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(CHARACTERS, settings.size)
        self.filters = nn.ModuleList(
            nn.Linear(settings.size * span, count) for span, count in enumerate(settings.filters, 1)
        )
        total = sum(settings.filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(settings.highways)))
        self.projection = nn.Linear(total, width)
        nn.init.uniform_(self.embeddings.weight, -1.0, 1.0)
        for part in self.filters:
            assert isinstance(part, nn.Linear)
            nn.init.uniform_(part.weight, -_WIDTH_STD, _WIDTH_STD)
            nn.init.zeros_(part.bias)
        nn.init.normal_(self.projection.weight, std=self.projection.in_features**-0.5)
        nn.init.zeros_(self.projection.bias)

    @property
    def weight(self) -> Float[Tensor, "0 e"]:
        """No table: what is tied to one finds no words."""
        return self.projection.weight.new_zeros(0, self.projection.out_features)

    def forward(self, spelt: Int[Tensor, "u 50"]) -> Float[Tensor, "u e"]:
        """The vectors of words."""
        longest = int((spelt != NO_CHARACTER).sum(1).max())
        x = self.embeddings(spelt[:, : min(LONGEST, longest + len(self.filters))].int())
        flat, size = x.flatten(1), self.embeddings.embedding_dim
        found = []
        for span, layer in enumerate(self.filters, 1):
            # every place with the characters behind it, as rows that overlap
            found.append(layer(flat.unfold(1, size * span, size)).amax(1))
        return self.projection(self.highways(F.relu(torch.cat(found, 1))))

    def of(self, words: Int[Tensor, "b t"], spelt: Int[Tensor, "u 50"]) -> Float[Tensor, "b t e"]:
        """The vector of the word at each position, any vector at those with -1."""
        return F.embedding(words.clamp(min=0), self(spelt))
