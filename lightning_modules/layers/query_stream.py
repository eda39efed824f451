"""A second stream of states, which predict tokens that they do not know (Yang et al. 2019, section 2.3).

Its rows are behind those of the positions in every layer. Queries, feed-forward and norms are those of all rows. Keys
and values are of the positions alone.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lightning_modules.batch import Queries
from lightning_modules.layers.chosen import rows_at
from lightning_modules.layers.scene import Scene


@dataclass(frozen=True, eq=False)
class Asked:
    """Where the rows of queries are.

    Attributes:
        length: Positions of a row of the batch; the queries of the row follow.
    """

    queries: Queries
    length: int

    @property
    def column(self) -> Int[Tensor, "b m"]:
        """The position in its row that each query asks about; 0 where there is none."""
        return self.queries.where.clamp(min=0) % self.length

    def behind(self, of_positions: Shaped[Tensor, "#b t"]) -> Shaped[Tensor, "b r"]:
        """What positions have, and behind it what queries have, who have that of their position."""
        own = of_positions.expand(len(self.column), -1)
        return torch.cat([own, own.gather(1, self.column)], 1)

    def mask(self, mask: Bool[Tensor, "#b #h t s"] | None, size: int) -> Bool[Tensor, "#b #h r s"]:
        """What rows may attend to: ``mask`` says it of positions, and of those before the batch for queries too."""
        visible = self.queries.visible[:, None]
        b, _, _, t = visible.shape
        if mask is None:
            mask = torch.ones(1, 1, 1, size, dtype=torch.bool, device=visible.device).expand(-1, -1, t, -1)
        seen = torch.cat([visible.new_ones(*visible.shape[:3], size - t), visible], 3)
        return torch.cat([mask.expand(b, -1, -1, -1), rows_at(mask, self.queries.where) & seen], 2)

    def opened(self, scene: Scene) -> Scene:
        """The scene with every query that sees nothing marked as blind; that it may look anywhere has no effect."""
        assert scene.bias is not None
        hidden = (scene.bias == -torch.inf).all(3, keepdim=True)
        hidden[:, :, : self.length] = False
        return replace(scene, bias=scene.bias.masked_fill(hidden, 0.0), blind=hidden)

    def rows(self, read: Int[Tensor, "b k"]) -> Int[Tensor, "b r"]:
        """The flat rows of flat positions that are read, and of all queries."""
        (b, m), each = self.queries.where.shape, self.length
        own = torch.where(read < 0, 0, read)
        own = own // each * (each + m) + own % each
        row = torch.arange(b, device=read.device)[:, None] * (each + m)
        return torch.cat([own, row + each + torch.arange(m, device=read.device)], 1)
