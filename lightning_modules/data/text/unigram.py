"""ALBERT's pieces: a unigram language model over pieces (Kudo 2018), trained by SentencePiece.

What a text goes through, and how the pieces are trained, is that of ALBERT's released code and vocabulary. Two
backquotes or apostrophes become a quotation mark. The text is decomposed (NFKD) and loses its accents, and ``▁``
represents the space before a word. Some signs are always pieces of their own, and characters beyond the coverage are
[UNK].

SentencePiece trains, because the trainer of the ``tokenizers`` package adds floating-point numbers in a random order
and so gives other scores each time. The ``tokenizers`` package encodes.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lightning_modules.config import ConfigError

if TYPE_CHECKING:
    from tokenizers.models import Model
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

SPACE = "▁"
_COVERAGE = 0.99995  # share of the text's characters that are pieces
_ALONE = '()"-.–£€'  # never part of a longer piece: ALBERT's user-defined symbols
_AVOIDED = -100.0  # added to the score of "0," and the like, which ALBERT's code splits


def normalizer(lowercase: bool) -> "Normalizer":
    """What happens to a text before it is split: ALBERT's steps; accents stay where case does."""
    from tokenizers import normalizers

    steps: list[Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if lowercase:
        steps += [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    return normalizers.Sequence(steps)


def pre_tokenizer(specials: Iterable[str]) -> "PreTokenizer":
    """Words with ``▁`` before them, in which no special piece that a text spells out is matched."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"),
            apart(specials),
        ]
    )


def apart(specials: Iterable[str]) -> "PreTokenizer":
    """Cuts the first letter of a special piece off the rest: with the best score it would be matched everywhere."""
    from tokenizers import Regex, pre_tokenizers

    spelt = "|".join(f"{re.escape(piece[0])}(?={re.escape(piece[1:])})" for piece in specials)
    return pre_tokenizers.Split(Regex(spelt), "isolated")


def train(words: Mapping[str, int], size: int, specials: Sequence[str]) -> "Model":
    """A unigram model of words and their counts, whose first pieces are the special ones.

    It has fewer pieces than ``size`` if the words support no more.

    Args:
        words: Normalised words -> how often they occur.
        size: Pieces, including the special ones.
        specials: The special pieces: padding, unknown, then others.

    Raises:
        ConfigError: When the letters of the words leave no room for pieces.
    """
    from tokenizers import models

    scored = _scored(_trained(words, size, specials))
    return models.Unigram(scored, unk_id=1, byte_fallback=False)


def _trained(words: Mapping[str, int], size: int, specials: Sequence[str]) -> bytes:
    """SentencePiece's model. Its sums depend on the number of threads and on the order of the words: both are fixed."""
    from sentencepiece import SentencePieceTrainer

    pad, unknown, *others = specials
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in sorted(words.items()) if SPACE not in word),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            character_coverage=_COVERAGE,
            pad_id=0, pad_piece=pad, unk_id=1, unk_piece=unknown, bos_id=-1, eos_id=-1,
            control_symbols=others,
            user_defined_symbols=list(_ALONE),
            num_threads=1,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        short = re.search(r"required_chars\. (\d+) vs (\d+)", str(error))
        if short is None:
            raise ConfigError([f"SentencePiece cannot train {size} pieces on this text: {error}"]) from None
        needed = size + int(short[2]) - int(short[1])
        text = f"vocab_size {size} is too small for the letters of the text. It needs at least {needed}."
        raise ConfigError([text]) from None
    return model.getvalue()


def _scored(model: bytes) -> list[tuple[str, float]]:
    from sentencepiece import SentencePieceProcessor

    made = SentencePieceProcessor(model_proto=model)
    found = ((made.id_to_piece(number), made.get_score(number)) for number in range(made.get_piece_size()))
    return [(piece, score + _AVOIDED * (re.search(r"\d,$", piece) is not None)) for piece, score in found]
