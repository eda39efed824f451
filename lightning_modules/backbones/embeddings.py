"""The input of the layers: the sum of word, position and segment embeddings."""

from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.backbones.settings import StackSettings
from lightning_modules.batch import Example
from lightning_modules.layers.dropout import Dropout
from lightning_modules.layers.positions import sinusoids


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout, and a projection if they are narrower than the stream.

    Tables, LayerNorm and dropout have width e; the projection has a bias and no activation (ALBERT's released code,
    ``embedding_hidden_mapping_in``).
    """

    def __init__(self, settings: StackSettings, vocab_size: int) -> None:
        super().__init__()
        d = settings.hidden_size
        e = settings.embedding_size or d
        self.word = nn.Embedding(vocab_size, e)
        self.tables = nn.ModuleDict()
        if settings.segment_types:
            self.tables["segment"] = nn.Embedding(settings.segment_types, e)
        self.position = nn.Embedding(settings.max_positions, e) if settings.positions == "learned" else None
        fixed = sinusoids(settings.max_positions, e) if settings.positions == "sinusoidal" else None
        self.fixed: Tensor | None
        self.register_buffer("fixed", fixed, persistent=False)
        self.norm = nn.LayerNorm(e, eps=settings.norm_eps)
        self.dropout = Dropout(settings.embedding_dropout)
        self.projection = nn.Identity() if e == d else nn.Linear(e, d)

    def forward(self, example: Example) -> Float[Tensor, "b t d"]:
        tokens = example.inputs
        x = self.word(tokens.ids)
        for name, table in self.tables.items():
            # Without ids for this table its first row is used throughout, as in BERT; a table of one row serves all
            # segments, as in RoBERTa's released checkpoints.
            assert isinstance(table, nn.Embedding)
            numbered = name in tokens.tables and table.num_embeddings > 1
            x = x + (table(tokens.tables[name]) if numbered else table.weight[0])
        self.check_length(x.shape[1])
        rows = self._rows
        if rows is not None:
            x = x + (rows[: x.shape[1]] if tokens.positions is None else rows[tokens.positions])
        return self.projection(self.dropout(self.norm(x)))

    def check_length(self, length: int) -> None:
        """Checks that a position table has so many rows.

        Raises:
            ValueError: If it has fewer.
        """
        if self._rows is not None and length > len(self._rows):
            raise ValueError(f"a sequence has {length} positions, but model.max_positions is {len(self._rows)}")

    @property
    def _rows(self) -> Float[Tensor, "p e"] | None:
        """The vector of each position."""
        return self.fixed if self.position is None else self.position.weight
