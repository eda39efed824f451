"""The tokenizer of a checkpoint: read from its folder, and written for one of ours.

Text is encoded word by word (`data.text.encode`), so only tokenizers are read whose words are independent of each
other: BERT's WordPiece, GPT-2's byte-level BPE as in RoBERTa, and ALBERT's unigram pieces. Special pieces are put in
by number and never looked for in the text.

Differs from RoBERTa's released code in two things. The first word of a text gets a leading space as every other word
does (``add_prefix_space``), and one separator stands between the two texts of a pair, where it has two.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from filelock import FileLock
from tokenizers import models, normalizers, pre_tokenizers, processors

from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, Vocabulary
from lightning_modules.files import write_atomically
from lightning_modules.interop.families import FAMILIES
from lightning_modules.interop.folder import json_object, text
from lightning_modules.places import cache

_LONGEST_WORD = 100  # characters; a longer word is unknown, as in BERT


@dataclass(frozen=True)
class _Kind:
    """A kind of tokenizer: what it is called here, what marks pieces, and what may split words before it."""

    name: str
    mark: str
    starts: bool
    needed: str
    also: tuple[str, ...] = ()


_KINDS = {
    "WordPiece": _Kind("wordpiece", "##", False, "BertPreTokenizer", ("WhitespaceSplit", "Whitespace", "Punctuation")),
    "BPE": _Kind("byte_bpe", "Ġ", True, "ByteLevel"),
    "Unigram": _Kind("unigram", "▁", True, "Metaspace", ("WhitespaceSplit",)),
}
_NORMALIZERS = (
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Replace", "Precompiled",
    "Nmt", "Sequence",
)  # fmt: skip


def own_encoder(folder: str | Path, family: str, vocab_size: int) -> Encoder:
    """The tokenizer of a checkpoint's folder: ``tokenizer.json``, else ``vocab.txt``, else ``vocab.json`` and merges.

    Args:
        folder: The checkpoint's.
        family: The checkpoint's ``model_type``.
        vocab_size: Rows of its word table.

    Raises:
        ConfigError: When there is none, or one that is damaged, does not fit the table or encodes words together.
    """
    folder = Path(folder)
    settings = _optional(folder / "special_tokens_map.json") | _optional(folder / "tokenizer_config.json")
    source, data = _found(folder, settings)
    added = _added(source, data)
    kind = _check(source, data)
    try:
        numbers = _numbers(data["model"]) | added
        content = json.dumps(data, ensure_ascii=False)
        tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the package raises bare Exception
        raise ConfigError([f"{source} is no tokenizer that can be read: {error}"]) from None
    vocabulary = _vocabulary(source, kind, numbers, vocab_size, _specials(settings, family))
    encoder = Encoder(_cached(content), kind.name)
    encoder.vocabulary = vocabulary  # with its own special pieces, which have other numbers than ours
    return encoder


def _optional(path: Path) -> dict[str, Any]:
    return json_object(path) if path.is_file() else {}


def _found(folder: Path, settings: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The file that the tokenizer was found in, and its content in the form of ``tokenizer.json``."""
    path = folder / "tokenizer.json"
    if path.is_file():
        return path, json_object(path)
    path = folder / "vocab.txt"
    if path.is_file():
        return path, _wordpiece(path, settings)
    path = folder / "vocab.json"
    if path.is_file() and (folder / "merges.txt").is_file():
        return path, _byte_bpe(path, folder / "merges.txt")
    hint = " transformers can convert spiece.model." if (folder / "spiece.model").exists() else ""
    raise ConfigError(
        [f"{folder} has no tokenizer: neither tokenizer.json, nor vocab.txt, nor vocab.json with merges.txt.{hint}"]
    )


def _wordpiece(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's tokenizer of a list of pieces, one a line; ``do_lower_case`` and the like from its settings."""
    pieces = text(path).removesuffix("\n").split("\n")
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(vocabulary) < len(pieces):
        twice = next(piece for number, piece in enumerate(pieces) if vocabulary[piece.rstrip("\r")] != number)
        raise ConfigError([f"{path} has the piece {twice!r} twice"])
    fast = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD))
    fast.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True) is not False,
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True) is not False,
    )
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return json.loads(fast.to_str())


def _byte_bpe(path: Path, merges: Path) -> dict[str, Any]:
    """GPT-2's two files: pieces with their numbers, and pairs in the order in which they are joined."""
    lines = [line for line in text(merges).split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    try:
        fast = tokenizers.Tokenizer(models.BPE(json_object(path), pairs))
    except Exception as error:  # the package raises bare Exception
        raise ConfigError([f"{path} and {merges.name} do not fit: {error}"]) from None
    fast.pre_tokenizer = pre_tokenizers.ByteLevel()
    return json.loads(fast.to_str())


def _added(source: Path, data: dict[str, Any]) -> dict[str, int]:
    """Takes out what is looked for before words are split, and what is put around a text: number of each piece."""
    added = data.get("added_tokens") or []
    data |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        ordinary = [token["content"] for token in added if not token["special"]]
        numbers = {token["content"]: token["id"] for token in added}
    except (TypeError, KeyError):
        raise ConfigError([f"{source}: added_tokens must have content, id and special"]) from None
    if ordinary:
        raise ConfigError([f"{source}: {', '.join(map(repr, ordinary[:4]))} would be looked for across words"])
    return numbers


def _types(part: Any, inner: str) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, sequences taken apart."""
    if part is None:
        return
    steps = part.get(inner) if part.get("type") == "Sequence" else None
    yield from (step for one in steps for step in _types(one, inner)) if steps is not None else (part,)


def _check(source: Path, data: dict[str, Any]) -> _Kind:
    """The kind of a tokenizer, once it is known that words are encoded one by one; spaces before words are set."""
    try:
        model = data["model"]
        kind = _KINDS[model.get("type", "BPE" if "merges" in model else "WordPiece")]
        splits = list(_types(data["pre_tokenizer"], "pretokenizers"))
        types = [step["type"] for step in splits]
        cleans = [step["type"] for step in _types(data.get("normalizer"), "normalizers")]
        bad = [name for name in types if name not in (kind.needed, *kind.also)]
        bad += [name for name in cleans if name not in _NORMALIZERS]
        if kind.needed not in types:
            bad.append(f"no {kind.needed}")
        if model.get("dropout"):
            bad.append("BPE dropout")
        for step in splits:
            if step["type"] == "ByteLevel":
                step["add_prefix_space"] = True
            if step["type"] == "Metaspace":
                step |= {"prepend_scheme": "always", "split": True}
                step.pop("add_prefix_space", None)  # an older spelling of the scheme
    except (KeyError, TypeError, AttributeError) as error:
        known = ", ".join(_KINDS)
        raise ConfigError([f"{source} is no tokenizer of a known kind ({known}): {error!r}"]) from None
    if bad:
        raise ConfigError([f"{source}: {', '.join(bad)}: words would not be encoded one by one as {kind.name}"])
    return kind


def _numbers(model: dict[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    return vocabulary if isinstance(vocabulary, dict) else {piece: n for n, (piece, _) in enumerate(vocabulary)}


def _specials(settings: Mapping[str, Any], family: str) -> dict[str, str]:
    found = {}
    for name, usual in FAMILIES[family].specials.items():
        told = settings.get(f"{name}_token")
        told = told.get("content") if isinstance(told, dict) else told
        found[name] = told if isinstance(told, str) else usual
    return found


def _vocabulary(
    source: Path, kind: _Kind, numbers: Mapping[str, int], vocab_size: int, specials: Mapping[str, str]
) -> Vocabulary:
    wrong = [f"has no piece {piece!r} for {name}" for name, piece in specials.items() if piece not in numbers]
    beyond = [piece for piece, number in numbers.items() if type(number) is not int or not 0 <= number < vocab_size]
    if beyond:
        wrong.append(
            f"has {len(beyond)} pieces ({beyond[0]!r} ...) without a row among the {vocab_size:,} of the table"
        )
    if wrong:
        raise ConfigError(f"{source} {problem}" for problem in wrong)
    pieces, starts = [""] * vocab_size, np.zeros(vocab_size, dtype=bool)
    for piece, number in numbers.items():
        pieces[number] = piece
        starts[number] = piece.startswith(kind.mark) == kind.starts or piece in specials.values()
    return Vocabulary(tuple(pieces), starts, **{name: numbers[piece] for name, piece in specials.items()})


def _cached(content: str) -> Path:
    """The tokenizer as a file, whose bytes tell the caches of pieces apart."""
    name = hashlib.sha256(content.encode()).hexdigest()[:24]
    path = cache() / "tokenizers" / f"own-{name}" / "tokenizer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            write_atomically(path, lambda file: file.write(content.encode()))
    return path


def write_tokenizer(folder: Path, path: Path, settings: Tokenizer, max_positions: int, segment_types: int) -> None:
    """Writes one of our tokenizers as ``transformers`` reads it, special pieces and layout included.

    Args:
        folder: Where to.
        path: The ``tokenizer.json`` that was trained.
        settings: Its kind.
        max_positions: Rows of the position table.
        segment_types: Rows of the table of segments; with one, both texts of a pair have the same.
    """
    fast, specials = tokenizers.Tokenizer.from_file(str(path)), FAMILIES["bert"].specials
    ids = {piece: fast.token_to_id(piece) for piece in specials.values()}
    fast.add_special_tokens(list(ids))
    second = int(segment_types > 1)
    cls, sep = specials["cls"], specials["sep"]
    fast.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:{second} {sep}:{second}",
        special_tokens=[(piece, ids[piece]) for piece in (cls, sep)],
    )
    _write(folder / "tokenizer.json", fast.to_str(pretty=True))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_positions}
    told |= {f"{name}_token": piece for name, piece in specials.items()} | {"do_lower_case": settings.lowercase}
    told["model_input_names"] = ["input_ids", *["token_type_ids"] * second, "attention_mask"]
    _write(folder / "tokenizer_config.json", json.dumps(told, indent=2) + "\n")
    if settings.kind == "wordpiece":
        pieces = sorted(fast.get_vocab().items(), key=lambda item: item[1])
        _write(folder / "vocab.txt", "".join(f"{piece}\n" for piece, _ in pieces))


def _write(path: Path, content: str) -> None:
    write_atomically(path, lambda file: file.write(content.encode()))
