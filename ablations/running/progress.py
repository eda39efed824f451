"""What a grid in progress shows: how many runs are done, the loss and speed of those that go on, the time left.

A bar in a terminal, one line that updates itself in a notebook (an executed notebook keeps the last state only), and
elsewhere a plain line now and then.
"""

import sys
import time
from types import TracebackType
from typing import Self

from ablations.core.formatting import duration
from ablations.planning.plan import Plan
from ablations.running.launch import Event

_PLAIN_EVERY = 10.0  # seconds between plain lines
_NOTEBOOK_EVERY = 0.5  # seconds between updates of a notebook's line


class Display:
    """Follows the events of one execution. A context manager; itself the ``on_event`` of `execute.execute`."""

    def __init__(self) -> None:
        self.last: Event | None = None
        self.going: dict[str, tuple[str, dict[str, float]]] = {}  # run -> label and progress
        self.ended: dict[str, int] = {}
        self.began = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        self.last = event
        if event.kind == "progress" and event.progress:
            self.going[event.run_id] = (event.label, event.progress)
        elif event.kind == "finished":
            self.going.pop(event.run_id, None)
            self.ended[event.outcome] = self.ended.get(event.outcome, 0) + 1
        elif event.kind == "started":
            self.going.pop(event.run_id, None)
        self.show(event.kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def show(self, kind: str) -> None:
        """Brings the present state before the user's eyes."""

    def close(self) -> None:
        """Leaves the final state."""

    @property
    def counts(self) -> str:
        """``7/25 runs``, with the outcomes that are not ``done``."""
        if self.last is None:
            return "nothing to run"
        other = [f"{count} {outcome}" for outcome, count in sorted(self.ended.items()) if outcome != "done"]
        return f"{self.last.done}/{self.last.total} runs" + (f" ({', '.join(other)})" if other else "")

    @property
    def loss(self) -> str:
        """Where each run stands that goes on."""
        going = self.going.values()
        parts = [f"{label}: step {p['step']:,.0f}/{p['steps']:,.0f}, loss {p['loss']:.3f}" for label, p in going]
        return "; ".join(parts[:2]) + (f"; and {len(parts) - 2} more" if len(parts) > 2 else "")

    @property
    def speed(self) -> str:
        """Tokens a second of all runs together."""
        total = sum(progress["tokens_per_second"] for _, progress in self.going.values())
        return f"{total:,.0f} tokens/s" if self.going else ""

    @property
    def left(self) -> str:
        """The time left for the whole grid."""
        seconds = self.last.seconds_left if self.last else None
        return f"{duration(seconds)} left" if seconds is not None and self.last.done < self.last.total else ""

    def line(self) -> str:
        """Everything in one line."""
        return " | ".join(filter(None, (self.counts, self.loss, self.speed, self.left)))

    def summary(self) -> str:
        """The line that stays."""
        return f"{self.counts} in {duration(time.monotonic() - self.began)}"


class Plain(Display):
    """A line every ten seconds: logs, pipes, continuous integration."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = time.monotonic() - _PLAIN_EVERY / 2  # the first one soon

    def show(self, kind: str) -> None:
        """See `Display.show`."""
        if time.monotonic() - self.shown >= _PLAIN_EVERY:
            self.shown = time.monotonic()
            print(self.line(), flush=True)

    def close(self) -> None:
        """See `Display.close`."""
        if self.last is not None:
            print(self.summary(), flush=True)


class Terminal(Display):
    """A bar with the time left, and a line for what goes on, by rich."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__()
        texts = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("left", "speed", "loss"))
        self.bar = Progress(TextColumn("{task.fields[counts]}", markup=False), BarColumn(), *texts)
        self.task = self.bar.add_task("grid", total=None, counts="", left="", speed="", loss="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def show(self, kind: str) -> None:
        """See `Display.show`."""
        parts = sum(p["step"] / p["steps"] for _, p in self.going.values())
        self.bar.update(
            self.task,
            total=self.last.total,
            completed=self.last.done + parts,
            counts=self.counts,
            left=self.left,
            speed=self.speed,
            loss=self.loss,
        )

    def close(self) -> None:
        """See `Display.close`."""
        self.bar.stop()


class Notebook(Display):
    """One line of output that is replaced, so that the executed notebook is tidy."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = None
        self.shown = 0.0

    def show(self, kind: str) -> None:
        """See `Display.show`."""
        if time.monotonic() - self.shown >= _NOTEBOOK_EVERY:
            self.shown = time.monotonic()
            self._put(self.line())

    def close(self) -> None:
        """See `Display.close`."""
        if self.last is not None:
            self._put(self.summary())

    def _put(self, text: str) -> None:
        from IPython.display import Pretty, display

        if self.handle is None:
            self.handle = display(Pretty(text), display_id=True)
        else:
            self.handle.update(Pretty(text))


def display(plan: Plan) -> Display:
    """The display that fits where this process shows its output; a silent one where nothing is to be done."""
    return fitting() if plan.pending else Display()


def fitting() -> Display:
    """The display that fits where this process shows its output."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and hasattr(shell, "kernel"):
        return Notebook()
    return Terminal() if sys.stdout.isatty() else Plain()
