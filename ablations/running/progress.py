"""Displays of progress: the number of finished runs, the loss and speed of active ones, the time left.

A terminal gets a bar, a notebook one line that updates itself (an executed notebook keeps only its last state), and
a log a line every ten seconds.
"""

import contextlib
import sys
import time
from types import TracebackType
from typing import Any, Self

from ablations.core.formatting import duration, terminal_text
from ablations.planning.plan import Plan
from ablations.running.launch import Event

_LOG_EVERY = 10.0  # seconds between lines of a log
_NOTEBOOK_EVERY = 0.5  # seconds between updates of a notebook's line


class Display:
    """Follows the events of one execution. A context manager; itself the ``on_event`` of `execute.execute`."""

    def __init__(self) -> None:
        self.last: Event | None = None
        self.active: dict[str, tuple[str, dict[str, Any]]] = {}  # run -> label and progress
        self.ended: dict[str, int] = {}
        self.began = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Receives one event."""
        self.last = event
        if event.kind == "progress" and event.progress:
            self.active[event.run_id] = (event.label, event.progress)
        elif event.kind == "finished":
            self.active.pop(event.run_id, None)
            self.ended[event.outcome] = self.ended.get(event.outcome, 0) + 1
        elif event.kind == "started":
            self.active.pop(event.run_id, None)
        self.show(event.kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self.close()

    def show(self, kind: str) -> None:
        """Shows the current state."""

    def close(self) -> None:
        """Shows the final state."""

    @property
    def counts(self) -> str:
        """``7/25 runs``, with the outcomes that are not ``done``."""
        if self.last is None:
            return "nothing to run"
        other = [f"{count} {outcome}" for outcome, count in sorted(self.ended.items()) if outcome != "done"]
        return f"{self.last.done}/{self.last.total} runs" + (f" ({', '.join(other)})" if other else "")

    @property
    def reached(self) -> str:
        """How far each active run is: step and loss, or tokens of a measurement."""
        parts = [f"{terminal_text(label)}: {_reached(progress)}" for label, progress in self.active.values()]
        return "; ".join(parts[:2]) + (f"; and {len(parts) - 2} more" if len(parts) > 2 else "")

    @property
    def speed(self) -> str:
        """Tokens per second over all runs."""
        total = sum(progress["tokens_per_second"] for _, progress in self.active.values())
        return f"{total:,.0f} tokens/s" if self.active else ""

    @property
    def left(self) -> str:
        """The time left for the whole grid."""
        last = self.last
        if last is None or last.seconds_left is None or last.done >= last.total:
            return ""
        return f"{duration(last.seconds_left)} left"

    def line(self) -> str:
        """The current state in one line."""
        return " | ".join(filter(None, (self.counts, self.reached, self.speed, self.left)))

    def summary(self) -> str:
        """The final state in one line."""
        return f"{self.counts} in {duration(time.monotonic() - self.began)}"


class LogDisplay(Display):
    """A line every ten seconds: for logs, pipes, continuous integration."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = time.monotonic() - _LOG_EVERY / 2  # the first line comes early

    def show(self, kind: str) -> None:
        """Prints a line if the last one is ten seconds old."""
        if time.monotonic() - self.shown >= _LOG_EVERY:
            self.shown = time.monotonic()
            print(self.line(), flush=True)

    def close(self) -> None:
        """Prints the final state."""
        if self.last is not None:
            print(self.summary(), flush=True)


class Terminal(Display):
    """A bar with the time left, speed and loss, drawn by rich."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__()
        texts = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("left", "speed", "reached"))
        self.bar = Progress(TextColumn("{task.fields[counts]}", markup=False), BarColumn(), *texts)
        self.task = self.bar.add_task("grid", total=None, counts="", left="", speed="", reached="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def show(self, kind: str) -> None:
        """Updates the bar."""
        if self.last is None:
            return
        parts = sum(p["step"] / p["steps"] for _, p in self.active.values() if not p.get("again"))
        self.bar.update(
            self.task,
            total=self.last.total,
            completed=self.last.done + parts,
            counts=self.counts,
            left=self.left,
            speed=self.speed,
            reached=self.reached,
        )

    def close(self) -> None:
        """Stops the bar."""
        self.bar.stop()


class Notebook(Display):
    """One line of output that replaces itself, which keeps the executed notebook tidy."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = None
        self.shown = 0.0

    def show(self, kind: str) -> None:
        """Replaces the line, twice a second at most."""
        if time.monotonic() - self.shown >= _NOTEBOOK_EVERY:
            self.shown = time.monotonic()
            self._put(self.line())

    def close(self) -> None:
        """Replaces the line by the final state."""
        if self.last is not None:
            self._put(self.summary())

    def _put(self, text: str) -> None:
        from IPython.display import Pretty, display

        if self.handle is None:
            self.handle = display(Pretty(text), display_id=True)
        else:
            self.handle.update(Pretty(text))


def _reached(progress: dict[str, Any]) -> str:
    """How far a run is; a measurement has no loss, and its steps are tokens."""
    of_all = f"{progress['step']:,.0f}/{progress['steps']:,.0f}"
    return f"{of_all} tokens" if progress["loss"] is None else f"step {of_all}, loss {progress['loss']:.3f}"


def display(plan: Plan) -> Display:
    """The display for the output of this process; a silent one if no run is pending."""
    return fitting() if plan.pending else Display()


def fitting() -> Display:
    """The display for the output of this process: notebook, terminal or log."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and hasattr(shell, "kernel"):
        return Notebook()
    return Terminal() if sys.stdout.isatty() else LogDisplay()
