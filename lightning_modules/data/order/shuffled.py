"""The orders in which steps show a text: every sequence once per epoch, each epoch in a new order; or as a stream.

Presentation ``p`` (the p-th sequence shown since the order began) is sequence ``order[p % n]`` of epoch ``p // n``. An
optimiser step takes consecutive presentations, so batches may cross epochs and none is short. How many it takes follows
from the seed and the step alone: a fixed number of sequences, or as many as hold a fixed number of tokens.
"""

import functools
from dataclasses import dataclass, field

import numpy as np

from lightning_modules.data.formats import lengths
from lightning_modules.data.order.portions import alike
from lightning_modules.draws import Draws, permutation


@dataclass(frozen=True, eq=False)
class BySequences:
    """The order in which steps of equally many sequences show a text.

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

    def fresh(self, step: int) -> bool | None:
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

    def total(self, steps: int, values: np.ndarray) -> np.ndarray:
        """The sum of values of sequences ``[n _]`` over all that the first steps present ``[_]``."""
        epochs, rest = divmod(self.first(steps), len(self.sizes))
        return epochs * values.sum(0) + values[_order(self.seed, epochs, len(self.sizes))[:rest]].sum(0)

    def lengths(self, steps: int) -> np.ndarray:
        """How many sequences of each number of real positions the first steps present ``[longest + 1]``."""
        epochs, rest = divmod(self.first(steps), len(self.sizes))
        last = self.sizes[_order(self.seed, epochs, len(self.sizes))[:rest]]
        counts = np.bincount(self.sizes)
        return epochs * counts + np.bincount(last, minlength=len(counts))


@dataclass(frozen=True, eq=False)
class ByTokens(BySequences):
    """The order in which steps of equally many tokens show a text: more sequences where they are shorter.

    Step ``s`` takes the presentations whose first tokens are numbers ``s * batch`` to ``(s + 1) * batch - 1`` of all
    tokens shown: so all steps together are exact to one sequence, however many they are.

    Attributes:
        batch: Tokens per step, special ones included, padding not.
    """

    _begins: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def first(self, step: int) -> int:
        """The presentation with which a step begins."""
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
class Bucketed(ByTokens):
    """The order of `ByTokens` with steps of similar sequences: several steps are sorted together and divided again.

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
        """See `BySequences.presented`."""
        pool, number = divmod(step, self.together)
        if pool not in self._pools:
            self._pools.clear()
            draws = self._between(pool * self.together, (pool + 1) * self.together)
            parts = alike(self.sizes[draws.sample], self.alike[draws.sample], self.together)
            order = permutation(self.seed, "buckets", pool, self.together)
            self._pools[pool] = draws, [parts[place] for place in order]
        draws, parts = self._pools[pool]
        return draws.of(parts[number])

    def lengths(self, steps: int) -> np.ndarray:
        """See `BySequences.lengths`."""
        whole = steps - steps % self.together
        counts = super().lengths(whole)
        for step in range(whole, steps):
            counts += np.bincount(self.sizes[self.presented(step).sample], minlength=len(counts))
        return counts


@dataclass(frozen=True, eq=False)
class Streamed(BySequences):
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
        """See `BySequences.backward`."""
        return np.arange(self.batch) >= self._forward if self.both_ways else None

    def fresh(self, step: int) -> bool | None:
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
        """How many sequences of each number of real positions the first steps present: all are full."""
        return np.bincount(self.sizes[:1]) * self.first(steps)


@dataclass(frozen=True, eq=False)
class DrawnLengths(BySequences):
    """The order of a stream whose steps have lengths of their own (`lengths`).

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
        return np.minimum(lengths.drawn(self.seed, self.usual, self.most, self.multiple), self.width)

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
        """See `BySequences.length`."""
        return int(self._drawn[step])

    def fresh(self, step: int) -> bool:
        """Whether a pass begins with a step."""
        return bool(self._places[0][step] == 0)

    def presented(self, step: int) -> Draws:
        """The places of the text at which the rows of a step begin."""
        rows = np.arange(self.batch, dtype=np.int64)
        begin, number = (int(values[step]) for values in self._places)
        shown = self.before + self.first(step) + rows
        return Draws(self.seed, shown, rows * self.width + begin, np.full_like(rows, number))

    def lengths(self, steps: int) -> np.ndarray:
        """How many rows of each number of positions the first steps present."""
        return np.bincount(self._drawn[:steps]) * self.batch


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return permutation(seed, "order", epoch, size)
