"""Which sequences each step shows: samplers, the batch sizes of a training, and the stages of its curriculum.

Presentation ``p`` (the p-th sequence shown since the order began) is sequence ``order[p % n]`` of epoch ``p // n``. An
optimiser step takes consecutive presentations, so batches may cross epochs and none is short. How many it takes follows
from the seed and the step alone: a fixed number of sequences, or as many as hold a fixed number of tokens.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lightning_modules.config import ConfigError
from lightning_modules.data.formats.format import Sequences
from lightning_modules.data.formats.stream import Stream, drawn_lengths
from lightning_modules.data.formats.text import Group, Multilingual
from lightning_modules.draws import Draws, permutation

_APART = 1 << 40  # between the keys of noise of two groups


@dataclass(frozen=True)
class BatchSchedule:
    """Batch sizes and steps of a training.

    Attributes:
        batch_size: Sequences per optimiser step, over all ranks and micro-batches.
        micro_batch_size: Sequences per forward pass on one rank; None means all of the rank.
        by_tokens: Whether a step, also one of the first, has as many tokens as so many sequences of full length.
        first_steps: The steps that show a shorter arrangement of the text, before the others.
        both_ways: Whether half of the rows of a stream go through the text from its end.
        drawn: Whether the seed says where the rows of a stream begin.
        lengths_drawn: Whether each step of a stream has a length of its own.
        drawn_multiple: Those lengths are multiples of it.
        language_exponent: Of several languages, the power of the share of tokens by which a step's is drawn.
        bucket_steps: Steps whose sequences are sorted by length together.
    """

    seed: int
    batch_size: int
    steps: int
    micro_batch_size: int | None = None
    by_tokens: bool = False
    first_steps: int = 0
    both_ways: bool = False
    drawn: bool = False
    lengths_drawn: bool = False
    drawn_multiple: int = 1
    language_exponent: float = 1.0
    bucket_steps: int = 1

    def micro_batches(self, world_size: int = 1) -> int:
        """Forward passes per optimiser step on one rank.

        Raises:
            ConfigError: When the batch cannot be divided equally.
        """
        if self.batch_size % world_size:
            raise ConfigError(
                [f"batch_size {self.batch_size} cannot be shared equally by {world_size} ranks. Use a multiple."]
            )
        rows = self.batch_size // world_size
        return -(-rows // min(self.micro_batch_size or rows, rows))

    def divided(self, sizes: np.ndarray, world_size: int) -> list[list[np.ndarray]]:
        """The rows of a step as micro-batches, by rank.

        Of equally many rows each, in their order; by tokens of about equally many tokens each, and of similar lengths,
        so that little padding is computed.

        Args:
            sizes: Positions of each row that are no padding ``[b]``.
        """
        if self.by_tokens:
            groups = _alike(sizes, sizes, self.micro_batches(world_size) * world_size)
            return [groups[rank::world_size] for rank in range(world_size)]
        share = self.batch_size // world_size
        micro = min(self.micro_batch_size or share, share)
        ranks = np.arange(len(sizes)).reshape(world_size, share)
        return [[own[start : start + micro] for start in range(0, share, micro)] for own in ranks]


def _alike(sizes: np.ndarray, by: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows in so many groups, none empty, of about equally many tokens: the neighbours when sorted ``by`` a number."""
    rows = np.argsort(by, kind="stable")
    begins = np.cumsum(sizes[rows]) - sizes[rows]
    number = np.arange(count)
    edges = np.searchsorted(begins, number * sizes.sum() / count)
    edges = np.maximum.accumulate(edges - number) + number
    return np.split(rows, np.minimum(edges, len(rows) - count + number)[1:])


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return permutation(seed, "order", epoch, size)


@dataclass(frozen=True, eq=False)
class Sampler:
    """The order in which steps of equally many sequences show a text: each once per epoch, each epoch in a new order.

    Attributes:
        sizes: Positions that are no padding of each sequence ``[n]``.
        batch: Sequences per step.
        before: Presentations of an earlier order of the same training; noise is counted on from there.
    """

    seed: int
    sizes: np.ndarray
    batch: int
    before: int = 0

    def first(self, step: int) -> int:
        """The presentation with which a step begins."""
        return step * self.batch

    def resets(self, step: int) -> bool | None:
        """Whether rows start again from nothing at a step. None where no row continues from another one."""
        return None

    def length(self, step: int) -> int | None:
        """Positions of the rows of a step, if they are drawn: then samples are places of the text."""
        return None

    @property
    def backward(self) -> np.ndarray | None:
        """Which rows of every step go through the text from its end ``[b]``; None if none does."""
        return None

    def presented(self, step: int) -> Draws:
        """The sequences that a step presents, and the keys of their noise."""
        return self._between(step, step + 1)

    def _between(self, step: int, end: int) -> Draws:
        """What steps present, from one to before another."""
        shown = np.arange(self.first(step), self.first(end), dtype=np.int64)
        epoch, place = np.divmod(shown, len(self.sizes))
        sample = np.empty_like(shown)
        for number in np.unique(epoch).tolist():
            in_epoch = epoch == number
            sample[in_epoch] = _order(self.seed, number, len(self.sizes))[place[in_epoch]]
        return Draws(seed=self.seed, rows=self.before + shown, sample=sample, epoch=epoch)

    def counts(self, steps: int) -> np.ndarray:
        """How often the first steps present each sequence ``[n]``."""
        epochs, left = divmod(self.first(steps), len(self.sizes))
        counts = np.full(len(self.sizes), epochs, dtype=np.int64)
        counts[_order(self.seed, epochs, len(self.sizes))[:left]] += 1
        return counts

    def lengths(self, steps: int) -> np.ndarray:
        """How many sequences of each number of real positions the first steps present ``[longest + 1]``."""
        return np.bincount(self.sizes, self.counts(steps)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TokenSampler(Sampler):
    """The order in which steps of equally many tokens show a text: more sequences where they are shorter.

    Step ``s`` takes the presentations whose first tokens are numbers ``s * batch`` to ``(s + 1) * batch - 1`` of all
    tokens shown: so all steps together are exact to one sequence, however many they are.

    Attributes:
        batch: Tokens per step, special ones included, padding not.
    """

    _begins: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def first(self, step: int) -> int:
        """See `Sampler.first`."""
        epoch, token = divmod(step * self.batch, int(self.sizes.sum()))
        return epoch * len(self.sizes) + int(np.searchsorted(self._begin(epoch), token))

    def _begin(self, epoch: int) -> np.ndarray:
        """The tokens before each place of an epoch."""
        if epoch not in self._begins:
            for done in [number for number in self._begins if number < epoch - 1]:
                del self._begins[done]
            sizes = self.sizes[_order(self.seed, epoch, len(self.sizes))]
            self._begins[epoch] = np.cumsum(sizes) - sizes
        return self._begins[epoch]


@dataclass(frozen=True, eq=False)
class BucketSampler(TokenSampler):
    """The order of `TokenSampler` with steps of similar sequences: several are sorted together and divided again.

    The parts have about equally many tokens, and come in random order. So a step has little padding, and all of these
    steps together show what they would show unsorted.

    Attributes:
        alike: A number for each sequence: those with neighbouring numbers have similar lengths ``[n]``.
        together: Steps that are sorted together.
    """

    alike: np.ndarray = field(kw_only=True)
    together: int = field(kw_only=True)
    _pools: dict[int, tuple[Draws, list[np.ndarray]]] = field(default_factory=dict, init=False, repr=False)

    def presented(self, step: int) -> Draws:
        """See `Sampler.presented`."""
        pool, number = divmod(step, self.together)
        if pool not in self._pools:
            self._pools.clear()
            draws = self._between(pool * self.together, (pool + 1) * self.together)
            parts = _alike(self.sizes[draws.sample], self.alike[draws.sample], self.together)
            order = permutation(self.seed, "buckets", pool, self.together)
            self._pools[pool] = draws, [parts[place] for place in order]
        draws, parts = self._pools[pool]
        return draws.of(parts[number])

    def counts(self, steps: int) -> np.ndarray:
        """See `Sampler.counts`."""
        whole = steps - steps % self.together
        counts = super().counts(whole)
        for step in range(whole, steps):
            np.add.at(counts, self.presented(step).sample, 1)
        return counts


@dataclass(frozen=True, eq=False)
class StreamSampler(Sampler):
    """The order of a stream: each of ``batch`` rows has as many sequences, one after the other, in every pass.

    Every pass starts again, in the same order. Sequences that are left over are not shown. With both ways the second
    half of the rows goes through the same text from its end to its beginning, so that a pass shows each sequence twice
    (Yang et al. 2019, section 3.1; the released code halves its batch for this too).

    Attributes:
        both_ways: Whether half of the rows go on to the left.
        drawn: Whether the seed says where the first row begins. One of the rows then goes on from the end of the text
            to its beginning.
    """

    both_ways: bool = False
    drawn: bool = False

    @functools.cached_property
    def _start(self) -> int:
        """The sequence with which the first row begins."""
        one = np.zeros(1, dtype=np.int64)
        place = Draws(self.seed, one, one, one).integers("row starts", 1, len(self.sizes))
        return int(place[0, 0]) if self.drawn else 0

    @property
    def _forward(self) -> int:
        return self.batch // (1 + self.both_ways)

    @property
    def steps(self) -> int:
        """Steps of a pass."""
        return len(self.sizes) // self._forward

    @property
    def backward(self) -> np.ndarray | None:
        """See `Sampler.backward`."""
        return np.arange(self.batch) >= self._forward if self.both_ways else None

    def resets(self, step: int) -> bool | None:
        """Whether a pass begins with a step."""
        return step % self.steps == 0

    def presented(self, step: int) -> Draws:
        """The next sequence of each row."""
        number, column = divmod(step, self.steps)
        rows = np.arange(self.batch, dtype=np.int64)
        shown = self.before + self.first(step) + rows
        sample = (self._start + rows % self._forward * self.steps + column) % len(self.sizes)
        if self.backward is not None:
            sample = np.where(self.backward, len(self.sizes) - 1 - sample, sample)
        return Draws(self.seed, shown, sample, np.full_like(rows, number))

    def lengths(self, steps: int) -> np.ndarray:
        """See `Sampler.lengths`: all are full."""
        return np.bincount(self.sizes[:1]) * self.first(steps)


@dataclass(frozen=True, eq=False)
class DrawnLengthSampler(Sampler):
    """The order of a stream whose steps have lengths of their own.

    Of ``batch`` rows each is that part of the text, which every pass goes through from its beginning. A pass ends where
    less is left than the next step has.

    Attributes:
        sizes: One number, the positions of a row.
        usual: The usual length of a step.
        most: Steps for which lengths are needed.
        multiple: Lengths are multiples of it, but where a row of the text is shorter.
    """

    usual: int = 0
    most: int = 0
    multiple: int = 1

    @property
    def width(self) -> int:
        """Positions of a row."""
        return int(self.sizes[0])

    @functools.cached_property
    def _drawn(self) -> np.ndarray:
        return np.minimum(drawn_lengths(self.seed, self.usual, self.most, self.multiple), self.width)

    @functools.cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where in its row a step begins, and the number of its pass ``[most]``."""
        ends = np.cumsum(self._drawn)
        begin, number = ends - self._drawn, np.zeros_like(ends)
        first = 0
        while (last := int(np.searchsorted(ends, begin[first] + self.width, side="right"))) < self.most:
            number[last:] += 1
            begin[first:last] -= begin[first]
            first = last
        begin[first:] -= begin[first]
        return begin, number

    def length(self, step: int) -> int:
        """See `Sampler.length`."""
        return int(self._drawn[step])

    def resets(self, step: int) -> bool:
        """Whether a pass begins with a step."""
        return bool(self._places[0][step] == 0)

    def presented(self, step: int) -> Draws:
        """The places of the text at which the rows of a step begin."""
        rows = np.arange(self.batch, dtype=np.int64)
        begin, number = (int(values[step]) for values in self._places)
        shown = self.before + self.first(step) + rows
        return Draws(self.seed, shown, rows * self.width + begin, np.full_like(rows, number))

    def lengths(self, steps: int) -> np.ndarray:
        """See `Sampler.lengths`."""
        return np.bincount(self._drawn[:steps]) * self.batch


def probabilities(tokens: Sequence[float] | np.ndarray, exponent: float) -> np.ndarray:
    """The probability of each language ``[n]``: n_i^a / sum_j n_j^a of its tokens.

    >>> probabilities([900, 100], 0.5).round(2).tolist()
    [0.75, 0.25]
    """
    powers = (np.asarray(tokens, dtype=np.float64) / np.sum(tokens)) ** exponent
    return powers / powers.sum()


@dataclass(frozen=True, eq=False)
class LanguageSampler(Sampler):
    """The order of a text of several languages: each step has one of them, drawn by `probabilities`.

    So Conneau and Lample 2019, section 3.1, draw sentences, with a = 0.5, and the released code a language for each
    step. Where there are pairs as well, steps take turns, as there: one of running text, one of pairs. Each language
    has an order of its own, that of a training on it alone, from which its steps take what comes next.

    Attributes:
        turns: The groups of each turn; step s has one of turn s modulo their number.
        orders: The order of each group, all turns in a row.
        exponent: The power of the share of tokens.
        most: Steps for which groups are needed.
    """

    turns: tuple[tuple[Group, ...], ...] = ()
    orders: tuple[Sampler, ...] = ()
    exponent: float = 1.0
    most: int = 0

    @property
    def groups(self) -> list[Group]:
        """The groups of all turns."""
        return [group for turn in self.turns for group in turn]

    @functools.cached_property
    def drawn(self) -> np.ndarray:
        """The group of each step ``[most]``."""
        step = np.arange(self.most, dtype=np.int64)
        noise = Draws(self.seed, step, step, np.zeros_like(step)).uniform("language", 1)[:, 0]
        found, before = np.empty_like(step), 0
        for number, turn in enumerate(self.turns):
            tokens = [int(self.sizes[group.first : group.end].sum()) for group in turn]
            chances = probabilities(tokens, self.exponent).cumsum()[:-1]
            own = slice(number, None, len(self.turns))
            found[own] = before + np.searchsorted(chances, noise[own], side="right")
            before += len(turn)
        return found

    @functools.cached_property
    def _visits(self) -> np.ndarray:
        """How many steps before each one have its group ``[most]``."""
        visits = np.empty_like(self.drawn)
        for number in range(len(self.orders)):
            own = self.drawn == number
            visits[own] = np.arange(own.sum())
        return visits

    def steps(self, steps: int) -> np.ndarray:
        """How many of the first steps have each group ``[groups]``."""
        return np.bincount(self.drawn[:steps], minlength=len(self.orders))

    def first(self, step: int) -> int:
        """See `Sampler.first`."""
        return sum(order.first(int(count)) for order, count in zip(self.orders, self.steps(step), strict=True))

    def presented(self, step: int) -> Draws:
        """The next sequences of the group of a step."""
        number = int(self.drawn[step])
        own = self.orders[number].presented(int(self._visits[step]))
        return Draws(self.seed, own.rows + number * _APART, own.sample + self.groups[number].first, own.epoch)

    def counts(self, steps: int) -> np.ndarray:
        """See `Sampler.counts`."""
        visits = zip(self.orders, self.steps(steps), strict=True)
        return np.concatenate([order.counts(int(count)) for order, count in visits])


@dataclass(frozen=True, eq=False)
class Stage:
    """Consecutive steps of a training that show one arrangement of its text; a length curriculum has two of them.

    Attributes:
        sampler: Which of its sequences come when.
        start: The step of the training with which it begins.
    """

    sequences: Sequences
    sampler: Sampler
    start: int
    steps: int

    def lengths(self, step: int) -> np.ndarray:
        """How many of its sequences of each number of real positions are presented before a step of the training."""
        return self.sampler.lengths(min(max(step - self.start, 0), self.steps))


def stages(sequences: Sequences, schedule: BatchSchedule, first: Sequences | None = None) -> list[Stage]:
    """The stages of a training.

    Args:
        sequences: The arrangement of the last steps, or of all.
        first: The arrangement of the first steps.

    Raises:
        ConfigError: When an arrangement has no sequence.
    """
    parts = [(sequences, schedule.first_steps, max(schedule.steps - schedule.first_steps, 0))]
    parts = [(first, 0, schedule.first_steps), *parts] if first is not None else parts
    made: list[Stage] = []
    for arranged, start, steps in parts:
        before = made[-1].sampler.first(made[-1].steps) if made else 0
        made.append(Stage(arranged, _sampler(arranged, schedule, sequences.length, before), start, steps))
    return made


def _sampler(arranged: Sequences, schedule: BatchSchedule, longest: int, before: int) -> Sampler:
    seed, batch = schedule.seed, schedule.batch_size
    if isinstance(arranged, Stream):
        rows = batch // 2 if schedule.both_ways else batch
        if len(arranged) < rows:
            raise ConfigError(
                [
                    f"the text of {arranged.store.folder} has {arranged.tokens} tokens. One step of a stream needs "
                    f"{arranged.needed(rows)}: training.batch_size {batch} rows"
                    f"{' in two directions' * schedule.both_ways} of format.sequence_length {arranged.length}, and the "
                    "token after them. Add text, or lower one of the two."
                ]
            )
        if schedule.lengths_drawn:
            width = np.array([(arranged.tokens - 1) // rows])
            usual, multiple = arranged.length, schedule.drawn_multiple
            return DrawnLengthSampler(seed, width, batch, before, usual, schedule.steps, multiple)
        return StreamSampler(seed, arranged.sizes, batch, before, schedule.both_ways, schedule.drawn)
    if len(arranged) == 0:
        raise ConfigError(
            [f"the text of {arranged.store.folder} has no sequence of {arranged.length} positions. Add text."]
        )
    sizes = arranged.sizes
    if schedule.bucket_steps > 1:
        return BucketSampler(seed, sizes, batch * longest, alike=arranged.alike, together=schedule.bucket_steps)
    kind, unit = (TokenSampler, longest) if schedule.by_tokens else (Sampler, 1)
    if not isinstance(arranged, Multilingual):
        return kind(seed, sizes, batch * unit, before)
    groups = [group for turn in arranged.turns for group in turn]
    orders = tuple(kind(seed, sizes[group.first : group.end], batch * unit) for group in groups)
    exponent = schedule.language_exponent
    return LanguageSampler(seed, sizes, batch, before, arranged.turns, orders, exponent, schedule.steps)
