"""Displays of progress: the number of finished runs, the loss and speed of active ones, the time left.

A terminal gets a bar for the grid and one per run. A notebook gets one line that updates itself, so that an executed
one keeps only its last state. A log gets a line every ten seconds.
"""

import contextlib
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ablations.core.formatting import duration, terminal_text
from ablations.planning.plan import Plan
from ablations.running.launch import Event

if TYPE_CHECKING:
    from rich.progress import TaskID

_LOG_EVERY = 10.0  # seconds between lines of a log
_BAR = 24  # columns of a terminal
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
    """A bar for the grid, with speed and time left, and below it one for each active run, with its loss; by rich."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__()
        name, said = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("named", "said"))
        self.bar = Progress(name, BarColumn(_BAR), said)
        self.grid = self.bar.add_task("grid", total=None, named="", said="")
        self.runs: dict[str, tuple[TaskID, float, float]] = {}  # active run -> its bar, and when it was seen how far

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def show(self, kind: str) -> None:
        """Updates all bars."""
        if self.last is None:
            return
        parts = sum(_share(progress) for _, progress in self.active.values() if not progress.get("again"))
        said = " | ".join(filter(None, (self.speed, self.left)))
        self.bar.update(
            self.grid, total=self.last.total, completed=self.last.done + parts, named=self.counts, said=said
        )
        for run_id in self.runs.keys() - self.active.keys():
            self.bar.remove_task(self.runs.pop(run_id)[0])
        for run_id, (label, progress) in self.active.items():
            self._show_run(run_id, label, progress)

    def _show_run(self, run_id: str, label: str, progress: dict[str, Any]) -> None:
        share = _share(progress)
        if run_id not in self.runs:
            task = self.bar.add_task("run", total=1.0, named="", said="")
            self.runs[run_id] = task, time.monotonic(), share
        task, since, before = self.runs[run_id]
        seconds = (time.monotonic() - since) * (1 - share) / (share - before) if share > before else None
        said = _reached(progress) + (f", {duration(seconds)} left" if seconds else "")
        self.bar.update(task, completed=share, named=f"  {terminal_text(label)}", said=said)

    def close(self) -> None:
        """Stops the bars; that of the grid stays."""
        for task, _, _ in self.runs.values():
            self.bar.remove_task(task)
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


def _share(progress: dict[str, Any]) -> float:
    return progress["step"] / progress["steps"]


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
