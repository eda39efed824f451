"""The input of the layers: the sum of word, position and segment embeddings."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.backbones.settings import StackSettings
from lightning_modules.batch import Example
from lightning_modules.layers.dropout import Dropout
from lightning_modules.layers.positions import sinusoids


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout, and a projection if they are narrower than the stream.

    LayerNorm may be left out (GPT). Tables, LayerNorm and dropout have width e; the projection has a bias and no
    activation (ALBERT's released code, ``embedding_hidden_mapping_in``).
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
        self.norm = nn.LayerNorm(e, eps=settings.norm_eps) if settings.embedding_norm else nn.Identity()
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
        rows = self.fixed if self.position is None else self.position.weight
        if rows is not None:
            x = x + self._positions(rows, tokens.positions, x.shape[1])
        return self.projection(self.dropout(self.norm(x)))

    @staticmethod
    def _positions(rows: Float[Tensor, "p e"], positions: Int[Tensor, "b t"] | None, length: int) -> Tensor:
        if length > rows.shape[0]:
            raise ValueError(f"a sequence has {length} positions, but model.max_positions is {rows.shape[0]}")
        return rows[:length] if positions is None else rows[positions]
