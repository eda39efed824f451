"""The input of the layers: the sum of word, position, segment and language embeddings."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.batch import NO_LANGUAGE, Tokens, Unsupported
from lightning_modules.config import Settings, knob
from lightning_modules.model.layers import Dropout, drop
from lightning_modules.model.positions import sinusoids
from lightning_modules.words import CHARACTERS, LONGEST, NO_CHARACTER

FIRST_NEW = 1 << 20  # the id of the first new symbol: no vocabulary has so many pieces
_STD = 0.02  # of rows of new symbols (Radford et al. 2018, released code)
_GATE_BIAS = -2.0  # of highways, which so begin near the identity
_FILTER_RANGE = 0.05


class ClusteredTable(nn.Module):
    """Word embeddings that are narrower for rarer words (adaptive input: Baevski and Auli 2019; Transformer-XL).

    Words are clustered by their ids, which number frequent ones first. Cluster i has vectors of width e / divisor^i and
    a matrix from there to width e, also where both are equally wide, as in the released code of Transformer-XL.

    Args:
        cutoffs: The first id of each further cluster, ascending.
    """

    def __init__(self, vocab_size: int, width: int, cutoffs: tuple[int, ...], divisor: int) -> None:
        super().__init__()
        self.cutoffs = cutoffs
        edges = (0, *cutoffs, vocab_size)
        self.tables = nn.ModuleList(
            nn.Embedding(edges[i + 1] - edges[i], width // divisor**i) for i in range(len(cutoffs) + 1)
        )
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(width, width // divisor**i)) for i in range(len(cutoffs) + 1)
        )

    @property
    def weight(self) -> Float[Tensor, "v e"]:
        """The vectors of the first cluster."""
        return self.clusters[0][0]

    @property
    def clusters(self) -> list[tuple[Tensor, Tensor]]:
        """Vectors ``[v_i e_i]`` and matrix ``[e e_i]`` of each cluster, to which an adaptive softmax is tied."""
        return [(table.get_parameter("weight"), own) for table, own in zip(self.tables, self.projections, strict=True)]

    def forward(self, ids: Int[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """The vectors of words. Each cluster is looked up at all positions, so that nothing waits for the ids."""
        found = None
        for start, (table, projection) in zip((0, *self.cutoffs), self.clusters, strict=True):
            rows = F.linear(F.embedding((ids - start).clamp(0, len(table) - 1), table), projection)
            found = rows if found is None else torch.where((ids >= start)[..., None], rows, found)
        assert found is not None
        return found


class ExtendedTable(nn.Embedding):
    """A table of word embeddings with rows for new symbols, whose ids start at ``FIRST_NEW``.

    The pretrained rows stay a parameter of their own under their own name. So weights of a pretraining fit, and a
    softmax over the vocabulary has no entry for a symbol that is no piece. New rows are normal with deviation 0.02.
    """

    NEW = "new"  # the name of the parameter of new rows

    def __init__(self, table: nn.Embedding, count: int) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight.detach())
        self.weight = table.weight
        self.new = nn.Parameter(torch.empty(count, table.embedding_dim))
        nn.init.normal_(self.new, std=_STD)

    def forward(self, input: Int[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """The rows of pieces and of new symbols."""
        is_new = input >= FIRST_NEW
        old = F.embedding(input.masked_fill(is_new, 0), self.weight)
        new = F.embedding((input - FIRST_NEW).clamp_min(0), self.new)
        return torch.where(is_new[..., None], new, old)


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
        nn.init.constant_(self.gate.bias, _GATE_BIAS)

    def forward(self, x: Float[Tensor, "u f"]) -> Float[Tensor, "u f"]:
        return torch.lerp(x, F.relu(self.transform(x)), torch.sigmoid(self.gate(x)))


class WordsByCharacters(nn.Module):
    """A vector for each distinct word of a batch from its characters (Kim et al. 2016; ELMo).

    Filters run over the characters, padding included; the rectifier follows the maximum over places, as in the
    released code. Places of padding alone are alike: rows end the width of the widest filter behind the longest word.
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
            nn.init.uniform_(part.get_parameter("weight"), -_FILTER_RANGE, _FILTER_RANGE)
            nn.init.zeros_(part.get_parameter("bias"))
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
        # every place with the characters behind it, as rows that overlap
        found = [layer(flat.unfold(1, size * span, size)).amax(1) for span, layer in enumerate(self.filters, 1)]
        return self.projection(self.highways(F.relu(torch.cat(found, 1))))

    def of(self, words: Int[Tensor, "b t"], spelt: Int[Tensor, "u 50"]) -> Float[Tensor, "b t e"]:
        """The vector of the word at each position, any vector at those with -1."""
        return F.embedding(words.clamp(min=0), self(spelt))


class Embeddings(nn.Module):
    """Word + position + segment + language embeddings, LayerNorm, dropout, and a projection.

    The projection is there if they are narrower than the stream. LayerNorm may be left out (GPT). Tables, LayerNorm and
    dropout have width e; the projection has a bias and no activation (ALBERT's released code,
    ``embedding_hidden_mapping_in``).

    Args:
        word: The word table, or words by their characters, which `placed` takes.
        width: Width d of the output.
        segment_types, languages: Rows of these tables; none with 0.
        positions: ``learned`` or ``sinusoidal``, a table of ``max_positions`` rows; the others add none.
        scaled: Whether words are multiplied by the square root of their width e (Vaswani et al. 2017, section 3.4).
        norm_eps: Epsilon of LayerNorm; None for none.
        word_type_dropout: Share of words that are zero wherever they are in a training batch, before anything is added
            to them (Gal and Ghahramani 2016). The others are divided by what is kept.
    """

    def __init__(
        self,
        word: nn.Embedding | ClusteredTable | WordsByCharacters,
        width: int,
        *,
        segment_types: int,
        languages: int = 0,
        positions: str = "none",
        max_positions: int = 0,
        scaled: bool = False,
        norm_eps: float | None,
        dropout: float,
        word_type_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        e = word.weight.shape[1]
        self.word, self.word_type_dropout, self.scale = word, word_type_dropout, e**0.5 if scaled else None
        rows = {"segment": segment_types, "language": languages}
        self.tables = nn.ModuleDict({name: nn.Embedding(count, e) for name, count in rows.items() if count})
        self.position = nn.Embedding(max_positions, e) if positions == "learned" else None
        self.fixed: Tensor | None
        fixed = sinusoids(max_positions, e) if positions == "sinusoidal" else None
        self.register_buffer("fixed", fixed, persistent=False)
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(e, eps=norm_eps)
        self.dropout = Dropout(dropout)
        self.projection = nn.Identity() if e == width else nn.Linear(e, width)

    def forward(self, tokens: Tokens) -> Float[Tensor, "b t d"]:
        if (rows := self._rows) is not None:
            # rows with padding on the left are wider than any of them is long
            length = tokens.ids.shape[1] if tokens.positions is None else int(tokens.positions.max()) + 1
            if length > len(rows):
                raise ValueError(f"a sequence has {length} positions, but model.max_positions is {len(rows)}")
        words = self.word(tokens.ids)
        if self.training and self.word_type_dropout:
            # the factor of each word, the same wherever it is; 1 for symbols that came after the pretraining
            ids, count = tokens.ids, len(self.word.weight)
            factors = drop(torch.ones(count, device=ids.device), self.word_type_dropout)
            words = words * torch.where(ids < count, factors[ids.clamp(max=count - 1)], 1.0)[..., None]
        return self.placed(words, tokens.tables, tokens.positions)

    def placed(
        self, x: Float[Tensor, "b t e"], tables: Mapping[str, Int[Tensor, "b t"]], positions: Int[Tensor, "b t"] | None
    ) -> Float[Tensor, "b t d"]:
        """The input of the layers from vectors of words with these numbers in other tables and these positions."""
        if self.scale is not None:
            x = x * self.scale
        for name, table in self.tables.items():
            assert isinstance(table, nn.Embedding)
            if name == "language":
                x = x + _language(table, tables.get(name))
            else:
                # Without ids for this table its first row is used throughout, as in BERT; a table of one row serves all
                # segments, as in RoBERTa's released checkpoints.
                numbered = name in tables and table.num_embeddings > 1
                x = x + (table(tables[name]) if numbered else table.weight[0])
        if (rows := self._rows) is not None:
            x = x + (rows[: x.shape[1]] if positions is None else rows[positions])
        return self.projection(self.dropout(self.norm(x)))

    @property
    def _rows(self) -> Float[Tensor, "p e"] | None:
        return self.fixed if self.position is None else self.position.weight


def _language(table: nn.Embedding, numbers: Int[Tensor, "b t"] | None) -> Float[Tensor, "b t e"]:
    """The embeddings of languages; zero where none is to be added."""
    if numbers is None:
        raise Unsupported(
            f"the batch does not name the language of its rows, and the model has embeddings of "
            f"{table.num_embeddings}. Give it a table 'language', with {NO_LANGUAGE} to leave it out."
        )
    return table(numbers.clamp(min=0)) * (numbers != NO_LANGUAGE)[..., None]
