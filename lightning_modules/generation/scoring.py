"""How probable texts and continuations are under a left-to-right language model.

The protocol of Radford et al. (2019, section 3) and Brown et al. (2020, section 2.4): a frozen model chooses the
continuation of a prompt that it finds most probable, by the sum of log-probabilities, by their mean over tokens or
bytes, or by how much the prompt adds to the continuation's probability after a neutral prompt.

All log-probabilities are natural logarithms.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_modules.batch import Encoded
from lightning_modules.config import ConfigError
from lightning_modules.generation.language_model import LanguageModelOf, Wording, check_predicts_next, of_training

__all__ = [
    "SCORES", "Continuation", "LanguageModelOf", "Windows", "check_predicts_next", "check_windows", "continuations",
    "hits", "log_probabilities", "of_training", "scored", "split",
]  # fmt: skip

Progress = Callable[[int, int], None]
_LOGITS = 1 << 24  # at a time: 64 MB
_AFTER = ".,;:!?)]}%'’”…"  # no space goes before these signs


@dataclass(frozen=True)
class Windows:
    """How rows are read that are longer than the model's positions: in windows, each a stride after the one before.

    Every token is predicted once. Beyond the first window it has at least ``length - stride`` tokens before it, the
    model's start tokens included, which every window begins with if its row does.

    Attributes:
        stride: Tokens that each further window predicts; few give long contexts and cost many windows.
        length: Tokens of a window; by default as many as the model can read.
    """

    stride: int
    length: int | None = None


class _Piece(NamedTuple):
    """A row, or a window of one."""

    row: int
    ids: Sequence[int]
    first: int  # the first token that is predicted here


def log_probabilities(
    model: LanguageModelOf,
    rows: Sequence[Sequence[int]],
    *,
    windows: Windows | None = None,
    batch_tokens: int = 4096,
) -> list[np.ndarray]:
    """The log-probability of every token of a row after the first, given all before it.

    Args:
        rows: Token ids, the model's start tokens included.
        windows: How longer rows than the model can read are read; by default they are refused.
        batch_tokens: Positions of a forward pass, padding included.

    Returns:
        For each row float64 ``[len(row) - 1]``.

    Raises:
        ConfigError: For a row that is too long, or windows that the model cannot read.
    """
    return [nats for nats, _ in _read(model, rows, [1] * len(rows), windows, batch_tokens)]


def continuations(
    model: LanguageModelOf,
    prompts: Sequence[Sequence[int]],
    options: Sequence[Sequence[int]],
    *,
    windows: Windows | None = None,
    batch_tokens: int = 4096,
    on_progress: Progress | None = None,
) -> list[np.ndarray]:
    """The log-probabilities of the tokens of an option after its prompt, for each pair of them.

    Args:
        prompts: Token ids of a prompt for each option, the model's start tokens included; never empty.
        options: Token ids of the options; never empty.
        windows: As in `log_probabilities`; an option of at most ``stride`` tokens is read in one window, which ends
            with it.
        on_progress: Called after each batch with the tokens that were read and their number in all.

    Returns:
        For each option float64 ``[len(option)]``.

    Raises:
        ConfigError: For an empty prompt or option, and as `log_probabilities`.
    """
    return [nats for nats, _ in _after(model, prompts, options, windows, batch_tokens, on_progress)]


def hits(
    model: LanguageModelOf,
    prompts: Sequence[Sequence[int]],
    options: Sequence[Sequence[int]],
    *,
    windows: Windows | None = None,
    batch_tokens: int = 4096,
) -> list[np.ndarray]:
    """Whether each token of an option is the most probable one after all before it; see `continuations`.

    Where all are, greedy generation from the prompt gives the option.

    Returns:
        For each option booleans ``[len(option)]``.
    """
    return [best for _, best in _after(model, prompts, options, windows, batch_tokens)]


def split(texts: Wording, prompt: str, option: str) -> tuple[list[int], list[int]]:
    """The ids of a prompt, start tokens included, and of the option that follows it.

    Both are tokenised as one text, with a space between them unless one of them has white space there, the prompt is
    empty, or the option begins with a sign that follows words directly. It is split before the first token with a
    letter of the option. A token that holds the end of the prompt as well belongs to the option, which is then
    predicted after a prompt that is shorter by that part of a word.

    Raises:
        ConfigError: For an option without a token.
    """
    before, after = texts.spaced(prompt.rstrip()), texts.spaced(option.lstrip())
    text = before + _joint(texts, prompt, option) + after if before else after
    encoding = texts.encoder.fast.encode(text, add_special_tokens=False)
    first = next((place for place, (_, end) in enumerate(encoding.offsets) if end > len(before)), len(encoding.ids))
    if first == len(encoding.ids):
        raise ConfigError([f"the option {option!r} has no token. Write at least one word."])
    return [*texts.start, *encoding.ids[:first]], encoding.ids[first:]


def _joint(texts: Wording, prompt: str, option: str) -> str:
    """What is between a prompt and an option: their own white space, a space, or nothing before a comma."""
    own = prompt[len(prompt.rstrip()) :] + option[: len(option) - len(option.lstrip())]
    if own:
        return own if texts.keeps_space else " "
    return "" if option[:1] in _AFTER else " "


@dataclass(frozen=True)
class Continuation:
    """What a model says of an option after its prompt.

    Attributes:
        tokens: The log-probability of each of its tokens after the prompt ``[n]``.
        unconditional: The log-probability of all of it after the neutral prompt; NaN if there is none.
    """

    text: str
    tokens: np.ndarray
    unconditional: float

    @property
    def total(self) -> float:
        """Its log-probability after the prompt."""
        return float(self.tokens.sum())

    @property
    def per_token(self) -> float:
        """The mean over its tokens."""
        return self.total / len(self.tokens)

    @property
    def per_byte(self) -> float:
        """The log-probability over its bytes in UTF-8, without white space around it."""
        return self.total / len(self.text.strip().encode())

    @property
    def gain(self) -> float:
        """What the prompt adds to its log-probability: log p(option | prompt) - log p(option | neutral prompt)."""
        return self.total - self.unconditional


SCORES: dict[str, Callable[[Continuation], float]] = {
    "sum": lambda option: option.total,
    "mean": lambda option: option.per_token,
    "per_byte": lambda option: option.per_byte,
    "gain": lambda option: option.gain,
}


def scored(
    model: LanguageModelOf,
    prompts: Sequence[str],
    options: Sequence[Sequence[str]],
    *,
    neutral: str | None = "",
    windows: Windows | None = None,
    batch_tokens: int = 4096,
    on_progress: Progress | None = None,
) -> list[list[Continuation]]:
    """What a model says of the options of each prompt; `SCORES` holds ways to compare them.

    Args:
        prompts: The prompts; an empty one is the model's start tokens.
        options: The options of each prompt.
        neutral: The prompt of unconditional probabilities. None where these are not requested.

    Raises:
        ConfigError: As `split` and `continuations`.
    """
    pairs = [[split(model, prompt, option) for option in own] for prompt, own in zip(prompts, options, strict=True)]
    asked = () if neutral is None else dict.fromkeys(option for own in options for option in own)
    alone = {option: split(model, neutral or "", option) for option in asked}
    rows = {_key(pair): pair for pair in (*(pair for own in pairs for pair in own), *alone.values())}
    before, after = [prompt for prompt, _ in rows.values()], [option for _, option in rows.values()]
    found = continuations(model, before, after, windows=windows, batch_tokens=batch_tokens, on_progress=on_progress)
    nats = dict(zip(rows, found, strict=True))

    def said(text: str, pair: tuple[list[int], list[int]]) -> Continuation:
        by_itself = float(nats[_key(alone[text])].sum()) if text in alone else math.nan
        return Continuation(text, nats[_key(pair)], by_itself)

    return [list(map(said, own, given)) for own, given in zip(options, pairs, strict=True)]


def _key(pair: tuple[list[int], list[int]]) -> tuple[tuple[int, ...], int]:
    """What is the same for the same option after the same prompt."""
    return (*pair[0], *pair[1]), len(pair[0])


def _after(
    model: LanguageModelOf,
    prompts: Sequence[Sequence[int]],
    options: Sequence[Sequence[int]],
    windows: Windows | None,
    batch_tokens: int,
    on_progress: Progress | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    wrong = [f"option {n} has no token" for n, option in enumerate(options, 1) if not len(option)]
    wrong += [
        f"prompt {n} has no token, and nothing predicts the first one of a row. Give the model's start token or a word."
        for n, prompt in enumerate(prompts, 1)
        if not len(prompt)
    ]
    if wrong:
        raise ConfigError(wrong)
    rows = [[*prompt, *option] for prompt, option in zip(prompts, options, strict=True)]
    return _read(model, rows, [len(prompt) for prompt in prompts], windows, batch_tokens, on_progress)


@torch.no_grad()
def _read(
    model: LanguageModelOf,
    rows: Sequence[Sequence[int]],
    firsts: Sequence[int],
    windows: Windows | None,
    batch_tokens: int,
    on_progress: Progress | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The log-probability of each token of a row from ``firsts`` on, and whether it is the most probable one."""
    pieces = [
        piece
        for number, (row, first) in enumerate(zip(rows, firsts, strict=True))
        for piece in _pieces(model, number, row, first, windows)
    ]
    order = sorted(range(len(pieces)), key=lambda n: len(pieces[n].ids))
    done, total = 0, sum(len(piece.ids) for piece in pieces)
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for batch in _batches([len(pieces[n].ids) for n in order], batch_tokens):
        some = [order[place] for place in batch]
        found |= zip(some, _predicted(model, [pieces[n] for n in some]), strict=True)
        done += sum(len(pieces[n].ids) for n in some)
        if on_progress:
            on_progress(done, total)
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[_NOTHING] for _ in rows]
    for number, piece in enumerate(pieces):
        parts[piece.row].append(found[number])
    return [(np.concatenate([a for a, _ in own]), np.concatenate([b for _, b in own])) for own in parts]


_NOTHING = (np.zeros(0), np.zeros(0, dtype=bool))


def _pieces(
    model: LanguageModelOf, number: int, row: Sequence[int], first: int, windows: Windows | None
) -> Iterator[_Piece]:
    """A row as it is read, whole or in windows."""
    most = model.max_positions
    if len(row) <= most and (windows is None or windows.length is None or len(row) <= windows.length):
        if len(row) > first:
            yield _Piece(number, row, first)
        return
    if windows is None:
        raise ConfigError(
            [
                f"row {number + 1} has {len(row)} tokens, but the model has {most} positions. Shorten the text, or "
                "have it read in windows with a stride."
            ]
        )
    length, stride = check_windows(model, windows), windows.stride
    start = model.start if tuple(row[: len(model.start)]) == model.start else ()
    end = min(len(row), max(length, first + stride))
    while first < len(row):
        begin = max(len(start), end - length + len(start))
        yield _Piece(number, [*start, *row[begin:end]], first - begin + len(start))
        first, end = end, min(len(row), end + stride)


def check_windows(texts: Wording, windows: Windows) -> int:
    """Tokens of a window, if a model can read such windows.

    Raises:
        ConfigError: If it cannot.
    """
    length, most = windows.length or texts.max_positions, texts.max_positions
    widest = min(length, most) - len(texts.start) - 1
    if length > most or not 0 < windows.stride <= widest:
        raise ConfigError(
            [
                f"windows of {length} tokens with a stride of {windows.stride} cannot be read: length is at most the "
                f"model's {most} positions, stride from 1 to {widest}"
            ]
        )
    return length


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[range]:
    """Ranges of rows, which are sorted by length, that fill batches; a long row is a batch of its own."""
    begin = 0
    for place, length in enumerate(lengths):
        if place > begin and (place + 1 - begin) * length > batch_tokens:
            yield range(begin, place)
            begin = place
    if lengths:
        yield range(begin, len(lengths))


def _predicted(model: LanguageModelOf, pieces: Sequence[_Piece]) -> list[tuple[np.ndarray, np.ndarray]]:
    """What the model says of the tokens of some pieces, read in one batch; the last token of a row is not read."""
    width = max(len(piece.ids) for piece in pieces) - 1
    ids = torch.full((len(pieces), width), model.encoder.vocabulary.pad)
    real = torch.zeros_like(ids, dtype=torch.bool)
    for place, piece in enumerate(pieces):
        ids[place, : len(piece.ids) - 1] = torch.as_tensor(piece.ids[:-1])
        real[place, : len(piece.ids) - 1] = True
    encoded = model.backbone(model.example(ids, real).to(model.device))
    where = [place * width + at - 1 for place, piece in enumerate(pieces) for at in range(piece.first, len(piece.ids))]
    targets = [token for piece in pieces for token in piece.ids[piece.first :]]
    nats, best = _judged(model, encoded, torch.tensor(where), torch.tensor(targets))
    sizes = np.cumsum([len(piece.ids) - piece.first for piece in pieces])[:-1]
    return list(zip(np.split(nats, sizes), np.split(best, sizes), strict=True))


def _judged(model: LanguageModelOf, encoded: Encoded, where: Tensor, targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The log-probability of each target and whether it is the most probable, a bounded number of logits at a time."""
    nats, best, step = [], [], max(1, _LOGITS // encoded.words)
    for some, wanted in zip(where.to(model.device).split(step), targets.to(model.device).split(step), strict=True):
        logits = model.logits(encoded, some)
        nats.append(-F.cross_entropy(logits, wanted, reduction="none").double().cpu())
        best.append((logits.argmax(-1) == wanted).cpu())
    return torch.cat(nats).numpy(), torch.cat(best).numpy()
