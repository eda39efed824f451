"""The input of the layers: the sum of word, position, segment and language embeddings."""

from collections.abc import Mapping
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.backbones.characters import WordsByCharacters
from lightning_modules.backbones.clustered import ClusteredTable
from lightning_modules.batch import NO_LANGUAGE, Example, Unsupported
from lightning_modules.layers.dropout import Dropout, drop
from lightning_modules.layers.positions import sinusoids


class Embedded(Protocol):
    """The settings of an encoder as far as its embeddings read them."""

    @property
    def table_width(self) -> int: ...
    @property
    def segment_types(self) -> int: ...
    @property
    def embedding_norm(self) -> bool: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def embedding_dropout(self) -> float: ...


class Embeddings(nn.Module):
    """Word + position + segment + language embeddings, LayerNorm, dropout, and a projection.

    The projection is there if they are narrower than the stream. LayerNorm may be left out (GPT). Tables, LayerNorm and
    dropout have width e; the projection has a bias and no activation (ALBERT's released code,
    ``embedding_hidden_mapping_in``).

    Args:
        width: Width d of the output.
        positions: ``learned`` or ``sinusoidal``; the others add no table.
        max_positions: Rows of the position table.
        scaled: Whether words are multiplied by the square root of their width e (Vaswani et al. 2017, section 3.4).
        words: The word table, or words by their characters, which `placed` takes; by default a plain table.
        word_type_dropout: Share of words that are zero wherever they are in a training batch, before anything is added
            to them (Gal and Ghahramani 2016). The others are divided by what is kept.
    """

    def __init__(
        self,
        settings: Embedded,
        vocab_size: int,
        width: int,
        positions: str = "none",
        max_positions: int = 0,
        *,
        scaled: bool = False,
        words: ClusteredTable | WordsByCharacters | None = None,
        word_type_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words, self.word_type_dropout = vocab_size, word_type_dropout
        d, e = width, settings.table_width
        self.scale = e**0.5 if scaled else None
        self.word: nn.Embedding | ClusteredTable | WordsByCharacters = words or nn.Embedding(vocab_size, e)
        self.tables = nn.ModuleDict()
        if settings.segment_types:
            self.tables["segment"] = nn.Embedding(settings.segment_types, e)
        if languages := getattr(settings, "languages", ()):
            self.tables["language"] = nn.Embedding(len(languages), e)
        self.position = nn.Embedding(max_positions, e) if positions == "learned" else None
        fixed = sinusoids(max_positions, e) if positions == "sinusoidal" else None
        self.fixed: Tensor | None
        self.register_buffer("fixed", fixed, persistent=False)
        self.norm = nn.LayerNorm(e, eps=settings.norm_eps) if settings.embedding_norm else nn.Identity()
        self.dropout = Dropout(settings.embedding_dropout)
        self.projection = nn.Identity() if e == d else nn.Linear(e, d)

    def forward(self, example: Example) -> Float[Tensor, "b t d"]:
        tokens = example.inputs
        # rows with padding on the left are wider than any of them is long
        self.check_length(tokens.ids.shape[1] if tokens.positions is None else int(tokens.positions.max()) + 1)
        words = self.word(tokens.ids)
        if self.training and self.word_type_dropout:
            words = words * self._kept(tokens.ids)
        return self.placed(words, tokens.tables, tokens.positions)

    def _kept(self, ids: Int[Tensor, "b t"]) -> Float[Tensor, "b t 1"]:
        """The factor of each word, the same wherever it is. It is 1 for symbols that came after the pretraining."""
        factors = drop(torch.ones(self.words, device=ids.device), self.word_type_dropout)
        return torch.where(ids < self.words, factors[ids.clamp(max=self.words - 1)], 1.0)[..., None]

    def placed(
        self, x: Float[Tensor, "b t e"], tables: Mapping[str, Int[Tensor, "b t"]], positions: Int[Tensor, "b t"] | None
    ) -> Float[Tensor, "b t d"]:
        """The input of the layers from vectors of words with these numbers in other tables and these positions."""
        if self.scale is not None:
            x = x * self.scale
        for name, table in self.tables.items():
            # Without ids for this table its first row is used throughout, as in BERT; a table of one row serves all
            # segments, as in RoBERTa's released checkpoints.
            assert isinstance(table, nn.Embedding)
            if name == "language":
                x = x + self._language(table, tables.get(name))
                continue
            numbered = name in tables and table.num_embeddings > 1
            x = x + (table(tables[name]) if numbered else table.weight[0])
        rows = self._rows
        if rows is not None:
            x = x + (rows[: x.shape[1]] if positions is None else rows[positions])
        return self.projection(self.dropout(self.norm(x)))

    @staticmethod
    def _language(table: nn.Embedding, numbers: Int[Tensor, "b t"] | None) -> Float[Tensor, "b t e"]:
        """The embeddings of languages; zero where none is to be added."""
        if numbers is None:
            raise Unsupported(
                f"the batch does not name the language of its rows, and the model has embeddings of "
                f"{table.num_embeddings}. Give it a table 'language', with {NO_LANGUAGE} to leave it out."
            )
        known = (numbers != NO_LANGUAGE)[..., None]
        return table(numbers.clamp(min=0)) * known

    def check_length(self, length: int) -> None:
        """Checks that a position table has so many rows."""
        if self._rows is not None and length > len(self._rows):
            raise ValueError(f"a sequence has {length} positions, but model.max_positions is {len(self._rows)}")

    @property
    def _rows(self) -> Float[Tensor, "p e"] | None:
        return self.fixed if self.position is None else self.position.weight
