"""The tokenizers of checkpoints: read from their folders, and written for our models.

Text is encoded word by word (`data.text.encode`), so only tokenizers with independent words are supported: BERT's
WordPiece, byte-level BPE of GPT-2 and RoBERTa, GPT's BPE of letters, and the unigram pieces of ALBERT and XLNet.
Special pieces are inserted by id and never matched in the text.

It differs from the released code of GPT-2 and RoBERTa in two ways: the first word of a text gets a leading space like
every other word (``add_prefix_space``), and the two texts of a pair have one separator between them, not two.
Text directly after a mask gets no space, as in training (`data.text.masks`). ``AlbertTokenizer`` of ``transformers``
cannot read masks so; a written folder names the class that reads its ``tokenizer.json`` as it is.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.data.text import unigram
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.masks import FOR_MASKS, reading_masks, steps
from lightning_modules.data.text.tokenizer import END, Tokenizer, Vocabulary, byte_letters
from lightning_modules.files import write_atomically
from lightning_modules.interop.families import FAMILIES
from lightning_modules.interop.folder import json_object, text
from lightning_modules.places import cache

Frame = Literal["cls_first", "cls_last", "ends"]  # of the texts that a written tokenizer makes

_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt",
)  # fmt: skip
_OPENAI = {"vocab.json": "encoder.json", "merges.txt": "vocab.bpe"}  # name -> what OpenAI calls it
_LONGEST_WORD = 100  # characters; a longer word is unknown, as in BERT
_MOST_STEPS, _MOST_GROWTH = 32, 256  # of what happens to a text before its words are encoded; ALBERT has 8 and 128


@dataclass(frozen=True)
class _Kind:
    """A kind of tokenizer: its name here, its mark of pieces, and the allowed pre-tokenizers."""

    name: str
    mark: str
    starts: bool
    needed: str
    also: tuple[str, ...] = ()


_KINDS = {
    "WordPiece": _Kind("wordpiece", "##", False, "BertPreTokenizer", ("WhitespaceSplit", "Whitespace", "Punctuation")),
    "BPE": _Kind("byte_bpe", "Ġ", True, "ByteLevel"),
    END: _Kind("letter_bpe", END, True, "BertPreTokenizer"),
    "Unigram": _Kind("unigram", unigram.SPACE, True, "Metaspace", ("WhitespaceSplit", "Split")),
}
_NORMALIZERS = (
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Replace", "Precompiled",
    "Nmt", "Sequence",
)  # fmt: skip


def own_encoder(folder: str | Path, family: str, vocab_size: int) -> Encoder:
    """The tokenizer of a checkpoint's folder: ``tokenizer.json``, else ``vocab.txt``, else ``vocab.json`` and merges.

    Args:
        vocab_size: Rows of its word table.

    Raises:
        ConfigError: When it is missing, damaged, does not fit the table, does not encode words independently or has no
            piece for some bytes or unknown letters, which would be lost.
    """
    folder = Path(folder)
    settings = _optional(folder / "special_tokens_map.json") | _optional(folder / "tokenizer_config.json")
    source, data = _tokenizer_data(folder, settings)
    added = _pop_added_tokens(source, data)
    kind, specials = _check(source, data), _specials(settings, family)
    if kind.name == "unigram":
        _part_specials(data, specials.values())
    try:
        numbers = _numbers(data["model"]) | added
        content = json.dumps(data, ensure_ascii=False)
        tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the package raises bare Exception
        raise ConfigError([f"{source} is not a readable tokenizer: {error}"]) from None
    vocabulary = _vocabulary(source, kind, numbers, vocab_size, specials)
    encoder = Encoder(_cached(content), kind.name)
    encoder.vocabulary = vocabulary  # with its own special pieces, whose ids differ from ours
    return encoder


def _optional(path: Path) -> dict[str, Any]:
    return json_object(path) if path.exists() else {}


def _tokenizer_data(folder: Path, settings: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The tokenizer's file, and its content in the format of ``tokenizer.json``."""
    path = folder / "tokenizer.json"
    if path.exists():
        return path, json_object(path)
    path = folder / "vocab.txt"
    if path.exists():
        return path, _wordpiece(path, settings)
    for name, merges in (_OPENAI.keys(), _OPENAI.values()):
        if (path := folder / name).exists() and (folder / merges).exists():
            return path, _byte_bpe(path, folder / merges)
    hint = " Convert spiece.model with transformers." if (folder / "spiece.model").exists() else ""
    raise ConfigError(
        [f"{folder} has no tokenizer: neither tokenizer.json, nor vocab.txt, nor vocab.json with merges.txt.{hint}"]
    )


def _wordpiece(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's tokenizer from a file with one piece per line; ``do_lower_case`` etc. are from its settings."""
    pieces = text(path).removesuffix("\n").split("\n")
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(vocabulary) < len(pieces):
        repeated = next(piece for number, piece in enumerate(pieces) if vocabulary[piece.rstrip("\r")] != number)
        raise ConfigError([f"{path} has the piece {repeated!r} twice"])
    fast = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD))
    fast.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True) is not False,
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True) is not False,
    )
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return json.loads(fast.to_str())


def _byte_bpe(path: Path, merges: Path) -> dict[str, Any]:
    """The tokenizer of GPT-2's two files: pieces with their ids, and merges in order."""
    lines = [line for line in text(merges).split("\n") if line and not line.startswith("#version")]
    pairs: list[Any] = [tuple(line.split(" ")) for line in lines]  # the package refuses those that are no pairs
    try:
        fast = tokenizers.Tokenizer(models.BPE(json_object(path), pairs))
    except Exception as error:  # the package raises bare Exception
        raise ConfigError([f"{path} and {merges.name} do not match: {error}"]) from None
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    return json.loads(fast.to_str())


def _pop_added_tokens(source: Path, data: dict[str, Any]) -> dict[str, int]:
    """Removes added tokens and templates from the data; returns the ids of the added tokens."""
    added = data.get("added_tokens") or []
    data |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        ordinary = [token["content"] for token in added if not token["special"]]
        numbers = {token["content"]: token["id"] for token in added}
    except (TypeError, KeyError):
        raise ConfigError([f"{source}: added_tokens must have content, id and special"]) from None
    if ordinary:
        names = ", ".join(map(repr, ordinary[:4]))
        problem = "match across word boundaries, which is not supported. Mark them special or remove them."
        raise ConfigError([f"{source}: added tokens {names} {problem}"])
    return numbers


def _check(source: Path, data: dict[str, Any]) -> _Kind:
    """Checks that a tokenizer encodes words independently, makes it add leading spaces, and returns its kind."""
    try:
        model = data["model"]
        ends = model.get("end_of_word_suffix") == END
        kind = _KINDS[END if ends else model.get("type", "BPE" if "merges" in model else "WordPiece")]
        splits = list(steps(data["pre_tokenizer"], "pretokenizers"))
        types = [step["type"] for step in splits]
        steps_there = list(steps(data.get("normalizer"), "normalizers"))
        cleans = [step for step in steps_there if step not in FOR_MASKS]
        if len(cleans) < len(steps_there):  # we wrote it; here a text that spells out [MASK] is text
            data["normalizer"] = {"type": "Sequence", "normalizers": cleans}
        bad = [
            name
            for place, name in enumerate(types)
            if name not in (kind.needed, *kind.also) or (name == "Split" and kind.needed not in types[:place])
        ]
        bad += [step["type"] for step in cleans if step["type"] not in _NORMALIZERS]
        growing = sorted({step["type"] for step in cleans if _growth(step) > 1})
        is_endless = len(cleans) + len(splits) > _MOST_STEPS or math.prod(map(_growth, cleans)) > _MOST_GROWTH
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
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        known = ", ".join(_KINDS)
        raise ConfigError([f"{source} is not a tokenizer of a supported kind ({known}): {error!r}"]) from None
    if ends and model.get("unk_token") is None:
        raise ConfigError([f"{source}: the model has no unk_token, so texts would lose unknown letters. Give it one."])
    if is_endless:
        limits = f"At most {_MOST_STEPS} steps, and no Replace by more than it matches, are allowed."
        raise ConfigError([f"{source}: texts would grow without limit ({', '.join(growing) or 'steps'}). {limits}"])
    if bad:
        raise ConfigError(
            [f"{source}: {', '.join(bad)}: not supported, because words must be encoded independently as {kind.name}"]
        )
    return kind


def _growth(step: Mapping[str, Any]) -> float:
    """How many times longer a step of a normalizer makes a text of ordinary letters, or more."""
    if step["type"] == "Replace":
        pattern, added = step["pattern"], len(step["content"])
        matched = len(pattern["String"]) if "String" in pattern else 1
        return math.inf if added > matched else 1 + ("Regex" in pattern and added)  # it may match between two letters
    if step["type"] == "Precompiled":
        table = base64.b64decode(step["precompiled_charsmap"])
        forms = table[4 + int.from_bytes(table[:4], "little") :]  # after their index
        return 8 if max(map(len, forms.split(b"\0"))) <= _LONGEST_WORD else math.inf
    return 8 if step["type"] in ("NFKC", "NFKD") else 1


def _part_specials(data: dict[str, Any], specials: Iterable[str]) -> None:
    """Makes sure that a special piece that a text spells out is text; of unigram pieces, scores decide what matches."""
    fast = tokenizers.Tokenizer(models.Unigram())
    fast.pre_tokenizer = unigram.apart(specials)
    cut = json.loads(fast.to_str())["pre_tokenizer"]
    splits = [step for step in steps(data["pre_tokenizer"], "pretokenizers") if step != cut]
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, cut]}


def _numbers(model: dict[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    return vocabulary if isinstance(vocabulary, dict) else {piece: n for n, (piece, _) in enumerate(vocabulary)}


def _specials(settings: Mapping[str, Any], family: str) -> dict[str, str]:
    specials = {}
    for name, default in FAMILIES[family].specials.items():
        piece = settings.get(f"{name}_token")
        piece = piece.get("content") if isinstance(piece, dict) else piece
        specials[name] = piece if isinstance(piece, str) else default
    return specials


def _vocabulary(
    source: Path, kind: _Kind, numbers: Mapping[str, int], vocab_size: int, specials: Mapping[str, str]
) -> Vocabulary:
    wrong = [f"has no piece {piece!r} for {name}" for name, piece in specials.items() if piece not in numbers]
    if kind.name == "byte_bpe" and (lacking := sorted(byte_letters().keys() - numbers.keys())):
        told = f"has no piece for {len(lacking)} of the 256 bytes ({lacking[0]!r} ...), so texts would lose them"
        wrong.append(f"{told}. Train it with the whole alphabet of ByteLevel.")
    beyond = [piece for piece, number in numbers.items() if type(number) is not int or not 0 <= number < vocab_size]
    if beyond:
        wrong.append(f"has {len(beyond)} pieces ({beyond[0]!r} ...) without a row in the word table of {vocab_size:,}")
    if wrong:
        raise ConfigError(f"{source} {problem}" for problem in wrong)
    pieces, starts = [""] * vocab_size, np.zeros(vocab_size, dtype=bool)
    for piece, number in numbers.items():
        pieces[number] = piece
        starts[number] = kind.mark == END or piece.startswith(kind.mark) == kind.starts or piece in specials.values()
    special_ids: dict[str, Any] = {name: numbers[piece] for name, piece in specials.items()}
    return Vocabulary(tuple(pieces), starts, kind.mark, **special_ids)


def _cached(content: str) -> Path:
    """The tokenizer as a cached file, whose bytes are part of the cache keys of pieces."""
    name = hashlib.sha256(content.encode()).hexdigest()[:24]
    path = cache() / "tokenizers" / f"own-{name}" / "tokenizer.json"
    return cached.kept(path, lambda file: file.write(content.encode()), lambda path: path)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copies the files of a checkpoint's tokenizer to another folder, under the names that ``transformers`` knows."""
    for name in _FILES:
        known = (source / own for own in (name, _OPENAI.get(name, name)))
        if path := next((path for path in known if path.exists()), None):
            _write(folder / name, text(path))


def write_tokenizer(
    folder: Path, path: Path, settings: Tokenizer, max_positions: int, segment_types: int, frame: Frame = "cls_first"
) -> None:
    """Writes one of our tokenizers for ``transformers``, with special pieces and layout.

    Args:
        path: The trained ``tokenizer.json``.
        max_positions: Rows of the position table.
        segment_types: Rows of the segment table; with one row, both texts of a pair use it.
        frame: ``[CLS]`` is before a text and ``[SEP]`` after it, or both are after it. Or ``[SEP]`` is the end of a
            document, which is also where a text begins.
    """
    fast, specials = tokenizers.Tokenizer.from_file(str(path)), FAMILIES["bert"].specials
    ids = {piece: fast.token_to_id(piece) for piece in specials.values()}
    fast.add_special_tokens(list(ids))
    fast = reading_masks(fast, settings.kind)
    second = int(segment_types > 1 or frame == "cls_last")
    cls, sep = specials["cls"], specials["sep"]
    if frame != "ends":
        first, last = (f"{cls} ", "") if frame == "cls_first" else ("", f" {cls}:2")
        fast.post_processor = processors.TemplateProcessing(
            single=f"{first}$A {sep}{last}",
            pair=f"{first}$A {sep} $B:{second} {sep}:{second}{last}",
            special_tokens=[(piece, ids[piece]) for piece in (cls, sep)],
        )
    _write(folder / "tokenizer.json", fast.to_str(pretty=True))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_positions}
    if frame == "cls_last":
        config["padding_side"] = "left"  # heads of XLNet read the last position
    if settings.kind == "unigram":
        config["keep_accents"] = not settings.lowercase
    config |= {f"{name}_token": piece for name, piece in specials.items()} | {"do_lower_case": settings.lowercase}
    config |= {"bos_token": sep, "eos_token": sep} if frame == "ends" else {}
    config["model_input_names"] = ["input_ids", *["token_type_ids"] * second, "attention_mask"]
    _write(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
    if settings.kind == "wordpiece":
        pieces = sorted(fast.get_vocab().items(), key=lambda item: item[1])
        _write(folder / "vocab.txt", "".join(f"{piece}\n" for piece, _ in pieces))


def _write(path: Path, content: str) -> None:
    write_atomically(path, lambda file: file.write(content.encode()))
