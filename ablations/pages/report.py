"""The page of a grid, a folder of Markdown, tables and figures made from measurements; and the index of all pages.

All of it is rebuilt from the records, without training or a corpus.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ablations.claims import judging, scoreboard
from ablations.claims.alignment import Contrast
from ablations.claims.headline import headline, quotes
from ablations.claims.verdict import Verdict
from ablations.core import notebooks, store
from ablations.core.formatting import (
    Sheet,
    capital,
    duration,
    markdown,
    markdown_code,
    markdown_link,
    markdown_safe,
    markdown_text,
    path_text,
    printable,
    quantity,
)
from ablations.core.provenance import THEN
from ablations.figures import alignments, grid_figures
from ablations.measurements import trunks
from ablations.measurements.measurements import Measurements, device_class
from ablations.pages import (
    alignment_table,
    cards,
    checkpoint_table,
    equal_compute,
    heading,
    held_equal,
    inference_page,
    judged,
    mean_table,
    probe_table,
    rate_table,
    retained_table,
    saving_table,
    search_report,
    seed_values,
    tables,
    task_table,
    translation_table,
    verdict_table,
)
from ablations.pages.held_equal import Planned
from ablations.pages.lead import answer, conclusion
from ablations.planning import grids, scales
from ablations.schema.grid import SYSTEM_AXIS
from ablations.schema.record import Record
from lightning_modules.files import read
from lightning_modules.places import UNPUBLISHED

DETAILS = "details.md"
_COLUMNS = 7  # of the table of cells on a page; its file has all
_ROWS = 12  # of that table, without simple methods
_NAMED = 4  # cells without a run
_DOUBTS, _WORDS = 5, 890  # at most: doubts on a page, and words in all
_UNJUDGED = "**Not judged.** The numbers of this scale mean nothing: it tests that everything runs."
_FIRST = ("masking_ratio", "sentence_objective", "embedding_size", "parameter_sharing", "model_depth")  # of the README
_SECTIONS = {
    "claims": "Claims",
    "table": "Cells",
    "translations": translation_table.TITLE,
    "shown": translation_table.SHOWN_TITLE,
    "means": mean_table.TITLE,
    "savings": saving_table.TITLE,
    "retained": retained_table.TITLE,
    "tasks": "Task by task",
    "probes": "What the states know",
    "equal_compute": "At equal compute",
    "alignment": alignment_table.TITLE,
    "search": "Search",
    "rates": rate_table.TITLE,
    "seeds": "Values by seed",
}


def publish(plan: Planned, measured: Measurements, folder: Path) -> dict[str, Path]:
    """Writes the tables, verdicts, figures and page of a grid at a scale.

    Args:
        plan: The cells, in order; ``plan.folder_name`` differs from ``plan.scale`` if the grid was overridden.
        folder: ``results/<grid>/<folder name>``; created if missing. Other files in it stay (the executed notebook).

    Returns:
        Every file written, by name. A table or figure without data is not written; its old files are removed.
    """
    page = _Page(plan, measured, folder, judged.verdicts(plan.scale, measured))
    written: dict[str, Path] = {}
    for name, sheets in page.sheets.items():
        if sheets:
            written |= {path.name: path for path in tables.write(folder, name, sheets).values()}
        else:
            tables.remove(folder, name)
    told = heading.subtitle(plan, measured)
    drawn = {name: grid_figures.draw(name, measured, told, page.headline) for name in grid_figures.FIGURES}
    drawn["alignment"] = alignments.alignments(page.contrasts, f"{told}; {alignments.MARKS}")
    for name, figure in drawn.items():
        path = folder / f"{name}.svg"
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            written[path.name] = grid_figures.save(figure, path)
    written |= inference_page.publish(measured, folder)
    for name, text in (("README.md", page.short()), (DETAILS, page.details())):
        store.write(folder / name, text.encode())
        written[name] = folder / name
    card = cards.write(folder, page.card())
    return written | {card.name: card}


def _sheets(measured: Measurements, verdicts: Sequence[Verdict]) -> dict[str, tables.Sheets | None]:
    """The tables of a page by name, in its order; None for those that it does not have."""
    return {
        "claims": tables.claims(verdicts) if verdicts else None,
        "table": tables.results(measured),
        "translations": translation_table.scores(measured),
        "shown": translation_table.shown(measured),
        "means": mean_table.sheets(measured),
        "savings": saving_table.sheets(measured),
        "retained": retained_table.sheets(measured),
        "tasks": task_table.per_task(measured),
        "probes": probe_table.table(measured),
        "equal_compute": equal_compute.sheets(measured),
        "alignment": alignment_table.sheets(verdicts),
        "search": search_report.searches(measured),
        "rates": rate_table.sheets(measured, verdicts),
        "seeds": seed_values.sheets(measured, verdicts),
    }


def rendered(scale: str, measured: Measurements, notation: Literal["md", "tex"]) -> str:
    """All tables of a page in one notation, each below the title of its section."""
    made = _sheets(measured, judged.verdicts(scale, measured)).items()
    mark = {"md": "### {}\n\n", "tex": "% {}\n"}[notation]
    return "\n".join(mark.format(_SECTIONS[name]) + tables.rendered(found, notation) for name, found in made if found)


@dataclass(frozen=True)
class _Page:
    """What is written about a grid at a scale: a page of three screens, one with all the rest, and a card."""

    plan: Planned
    measured: Measurements
    folder: Path
    verdicts: Sequence[Verdict]

    @cached_property
    def sheets(self) -> dict[str, tables.Sheets | None]:
        """See `_sheets`."""
        return _sheets(self.measured, self.verdicts)

    @cached_property
    def quoted(self) -> list[str]:
        """The ids of the claims that the answer in words quotes. It is of the grid as it is, not overridden."""
        return conclusion.quoted(conclusion.stated(self.plan), self.measured, self.verdicts)

    @cached_property
    def told(self) -> list[str]:
        """The answer in words."""
        return conclusion.sentences(conclusion.stated(self.plan), self.measured, self.verdicts)

    @cached_property
    def headline(self) -> str:
        """The answer in one line."""
        return headline(self.measured, self.verdicts, self.quoted)

    @property
    def contrasts(self) -> list[Contrast]:
        """The pairs of cells that are compared at equal compute too."""
        return alignment_table.contrasts(self.verdicts)

    @cached_property
    def pictures(self) -> list[str]:
        """The figures of the measurements, as Markdown; the first goes with the answer."""
        drawn = [name for name in grid_figures.FIGURES if (self.folder / f"{name}.svg").exists()]
        return [f"![{markdown_text(grid_figures.caption(name, self.headline))}]({name}.svg)" for name in drawn]

    @cached_property
    def doubts(self) -> list[str]:
        """What could explain the results, and what the scale cannot show: the weightiest first, as Markdown."""
        grid, scale = self.plan.grid, self.plan.scale
        own = grid.scales[scale].caveat if scale in grid.scales else ""
        parts = conclusion.caveat(own, self.measured).split("\n")  # a paragraph of the grid's file is a line
        parts.append(scales.caveat(scale, [cell.system for cell in self.plan.cells]))
        parts += [search_report.in_short(self.measured), equal_compute.in_short(self.measured)]
        limits = [markdown_text(capital(one)) for one in parts if one]
        return [*verdict_table.alternatives(self.verdicts), *limits, *verdict_table.threats(self.verdicts)]

    @cached_property
    def shown_doubts(self) -> list[str]:
        """Those that the page has room for."""
        room, shown = _WORDS - _words("\n".join(self.before + self.after)), list[str]()
        for doubt in self.doubts:
            if len(shown) < _DOUBTS and (words := _words(doubt)) <= room:
                shown.append(doubt)
                room -= words
        return shown

    def short(self) -> str:
        """The page of three screens."""
        doubts = ["## What could explain it", _bullets(self.shown_doubts)] if self.shown_doubts else []
        return "\n\n".join(filter(None, [*self.before, *doubts, *self.after])) + "\n"

    @cached_property
    def before(self) -> list[str]:
        """Question, answer and picture, claims, cells."""
        plan, measured, verdicts = self.plan, self.measured, self.verdicts
        finished, planned = heading.counts(plan, measured)
        rest = f" This page is incomplete. {markdown_code(_command(plan))} trains the rest."
        table = self.sheets["table"]
        return [
            f"# {markdown_text(plan.grid.question)}",
            heading.overridden(plan),
            answer.lead(measured, self.told, self.headline or "None yet" * bool(verdicts)),
            *self.pictures[:1],
            answer.holds(measured),
            f"**{finished} of {planned} runs finished.**{rest * (finished < planned)}",
            _stale(plan),
            *(["## Claims"] if verdicts else []),
            "" if scales.judges(plan.scale) or not verdicts else _UNJUDGED,
            verdict_table.table(verdicts),
            answer.tally(verdicts),
            *(["## Cells", *_cells(table[0])] if table else []),
        ]

    @cached_property
    def after(self) -> list[str]:
        """How it was made, and where the rest is."""
        files = [f"[{title}]({name}.md)" for name, title in _SECTIONS.items() if self.sheets[name]]
        grid = self.plan.grid
        made = [f"Published ablation: {markdown_text(grid.paper)}."] if grid.paper else []
        made += filter(None, [*held_equal.lines(self.plan)[:1], _recipe(self.plan), _cost(self.plan, self.measured)])
        made += _commands(self.plan)
        return [
            "## How it was made",
            _bullets(made),
            f"[More of this page]({DETAILS}): remarks on the claims, figures, what is held equal.",
            f"Tables, each with its notes: {', '.join(files)}.",
        ]

    def details(self) -> str:
        """All the rest: about the grid, the numbers in words, remarks, the other figures, what is held equal."""
        plan, measured, grid = self.plan, self.measured, self.plan.grid
        description = grid.scales[plan.scale].description if plan.scale in grid.scales else ""
        at = f" at scale {markdown_code(plan.folder_name)}{': ' * bool(description)}{markdown_text(description)}."
        parts = [
            f"# {markdown_text(grid.question)}",
            f"Details of [the page](README.md) of the grid {markdown_code(grid.name)}{at}",
            *(["## About", grid.about] if grid.about else []),
            *(["## In words", _bullets(found)] if (found := answer.means(measured)) else []),
            *(["## Claims", heading.judged(plan), *verdict_table.remarks(self.verdicts)] if self.verdicts else []),
        ]
        if left := [doubt for doubt in self.doubts if doubt not in self.shown_doubts]:
            parts += ["## What else could explain it", _bullets(left)]
        parts += inference_page.part(self.folder)
        for name, title in _SECTIONS.items():
            if said := self._section(name):
                parts += [f"## {title}", *said, *([_links(name)] if self.sheets[name] else [])]
        tasks = {run.task for cell in plan.cells for run in (*cell.zero_shot, *cell.awaited) if run.task}
        parts += checkpoint_table.part(grid, plan.scale, self.folder, tasks)
        parts += ["## What is held equal", _bullets(held_equal.lines(plan)), _every_number(plan)]
        if (self.folder / "notebook.ipynb").exists():
            parts.append(_notebook(self.folder / "notebook.ipynb", heading.counts(plan, measured)[0]))
        return "\n\n".join(filter(None, parts)) + "\n"

    def _section(self, name: str) -> list[str]:
        """What is said of a table next to its file: its figure, its answer in short."""
        if name == "table":
            return [*self.pictures[1:], *_computed(self.measured)]
        if name != "alignment":
            return []
        named = quotes(self.measured, self.verdicts, self.quoted)
        said = [alignment_table.in_short(self.verdicts, named), alignment_table.part(self.measured, self.verdicts)]
        found = f"{alignments.answer(self.contrasts)}. {alignments.CAPTION}"
        is_drawn = (self.folder / "alignment.svg").exists()
        return [*filter(None, said), *[f"![{found}](alignment.svg)"] * is_drawn]

    def card(self) -> dict[str, Any]:
        """What the overviews say of the page; see `cards`."""
        finished, planned = heading.counts(self.plan, self.measured)
        found = {
            "question": self.plan.grid.question,
            "finished": finished,
            "planned": planned,
            "verdicts": judging.tally(self.verdicts),
            "headline": self.headline,
            "claims": [scoreboard.card(verdict) for verdict in self.verdicts],
        }
        words = {"overridden": heading.overridden(self.plan), "answer": " ".join(self.told)}
        return found | {name: text for name, text in words.items() if text}


def _words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _cells(sheet: Sheet) -> list[str]:
    """The table of the cells with its first columns, and in a line the cells that have no run."""
    shown = sheet.narrow(_COLUMNS)
    runs = shown.headings.index("runs")
    unrun = [row for row in shown.rows if str(row[runs]).startswith("0 of ")]
    empty = {"", None, tables.NOTHING}  # rows of what is left out
    rows = [row for row in shown.rows if row not in unrun and {*row[shown.left :]} - empty]
    methods = [row for row in rows if row[runs] == tables.NOTHING]
    made = [row for row in rows if row not in methods]
    names = "; ".join(", ".join(map(str, row[: shown.left])) for row in unrun)
    lacking = f"{len(unrun)} cells have no run." if len(unrun) > _NAMED else f"Without a run: {markdown_text(names)}."
    return [
        markdown(replace(shown, rows=[*made[:_ROWS], *methods], notes=())).rstrip("\n"),
        f"{len(made) - _ROWS} more cells are in the file." if len(made) > _ROWS else "",
        lacking if unrun else "",
        "Mean ± half-width of the 95 % t interval over seeds. [All columns](table.md), with what each means.",
    ]


def _recipe(plan: Planned) -> str:
    """What of the recipe is the same in all cells, as a sentence; empty where no scale pins one."""
    if not scales.has_recipe(plan.scale) or SYSTEM_AXIS in plan.grid.axes:
        return ""
    searched = dict.fromkeys(path_text(path) for cell in plan.cells for path in cell.chosen)
    if not searched:
        return "Every model of this page is trained by the same recipe. Only what the grid asks about differs."
    chosen = f"Each cell has the {' and '.join(searched)} that its own search chose"
    return f"{chosen}. The rest of the recipe is the same, but for what the grid asks about."


def _notebook(path: Path, done: int) -> str:
    """A link to the executed notebook, which says so if the page has runs that it does not show."""
    shown = notebooks.runs_shown(path)
    older = f" It was executed with {shown:,} of these {done:,} runs." if shown is not None and shown < done else ""
    return f"Executed notebook: [notebook.ipynb](notebook.ipynb).{older}"


def _computed(measured: Measurements) -> list[str]:
    """Which numbers are in no record, but follow from the answers that records keep."""

    def listed(counts: Mapping[str, int]) -> str:
        shown = sorted({metric.name for metric in measured.grid.metrics} & {*counts})
        return ", ".join(f"{markdown_code(name)} of {counts[name]} runs" for name in shown)

    computed, absent = listed(measured.computed), listed(measured.absent)
    lines = [f"Computed from the answers in records that are older than the metric: {computed}."] if computed else []
    return lines + [f"**Missing here:** {absent}. The dev examples that give it are not available."] * bool(absent)


def _links(name: str) -> str:
    files = (f"[{end}]({name}.{end})" for end in ("md", "csv", "json"))
    return f"As files: {', '.join(files)}. The JSON names the runs behind each number."


def _cost(plan: Planned, measured: Measurements) -> str:
    ids = sorted(heading.ids(plan)[0])
    records = [record for id in ids if (record := measured.get(id)) is not None]
    if not records:
        return "No run has been made."
    total = {name: sum(record.cost.get(name, 0.0) for record in records) for name in ("tokens", "flops")}
    devices = ", ".join(sorted({printable(device_class(record)) for record in records} - {""}))
    where = f" on {markdown_text(devices)}" if devices else ""
    moved = sum(THEN in device_class(record) for record in records)
    where += f" ({moved} resumed on another kind of device)" if moved else ""
    return (
        f"{len(records)} runs, {quantity(total['flops'])} FLOPs, {quantity(total['tokens'])} tokens, "
        f"{_computing(records)}{where}{_commits(records)}."
        + _trunk_cost(plan, measured)
        + search_report.cost_sentence(measured)
    )


def _computing(records: Sequence[Record]) -> str:
    """``3 h of processor time``; where a record lacks that, the time that passed, which other work made longer."""
    if all("cpu_seconds" in record.cost for record in records):
        return f"{duration(sum(record.cost['cpu_seconds'] for record in records))} of processor time"
    return f"{duration(sum(record.cost.get('seconds', 0.0) for record in records))} of computing on a shared machine"


def _trunk_cost(plan: Planned, measured: Measurements) -> str:
    found = trunks.of_cells(plan.cells)
    records = [record for run in found if (record := measured.get(run.id)) is not None]
    if not found:
        return ""
    took = quantity(sum(record.cost.get("flops", 0.0) for record in records)) + " FLOPs"
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in found))
    return f" On top, charged once: {len(found)} trunks (seeds {seeds}) that all cells continue, {took}."


def _commits(records: Sequence[Record]) -> str:
    """The commits of the code, in how many runs it was changed, and how many codes there are if more than commits."""
    origins = [record.provenance for record in records]
    commits = sorted({str(origin["commit"])[:10] for origin in origins if origin.get("commit")})
    codes = {str(origin["code"]) for origin in origins if origin.get("code")}
    changed = sum(origin.get("dirty") is True for origin in origins)
    known = all(origin.get("code") for origin in origins if origin.get("dirty") is True)
    parts = [f"at commit{'s' * (len(commits) > 1)} {', '.join(map(markdown_code, commits))}"] if commits else []
    parts += [f"changed code in {changed} of these runs"] if changed else []
    if not known:
        parts.append("how many codes is unknown")
    elif len(codes) > max(1, len(commits)):
        parts.append(f"{len(codes)} different codes")
    elif changed:
        parts.append("all by the same code" if len(codes) == 1 else f"{len(codes)} codes in all")
    return f"; {', '.join(parts)}" if parts else ""


def _stale(plan: Planned) -> str:
    """How many runs have records by code of another generation only, and what to do; empty if none."""
    count = sum(state == "stale" for state in plan.states.values())
    are, them, records = ("is", "it", "its record stays") if count == 1 else ("are", "them", "their records stay")
    text = f"**{count} run{'s' * (count > 1)} {are} stale:** code of another generation of numerics made {them}"
    return f"{text}. To make {them} again: {markdown_code(_command(plan))} ({records})." if count else ""


def _commands(plan: Planned) -> list[str]:
    """How to make the page again. Its bytes do not depend on where the results folder lies."""
    is_beside = grids.results_dir(plan.grid.name, plan.scale).name == UNPUBLISHED
    tables = f"ablations tables --results-dir results/{UNPUBLISHED}" if is_beside else "make tables"
    return [
        f"`{tables}` rebuilds this page from the records, without training or corpora.",
        f"{markdown_code(_command(plan))} trains missing runs.",
    ]


def _every_number(plan: Planned) -> str:
    """Where all numbers of the page are."""
    commands = [_command(plan, f"show {{}} --format {end}", f"written('{end}')") for end in ("csv", "tex")]
    long, tex = map(markdown_code, commands)
    return (
        f"Every number of every run, one per row, as CSV: {long}. The file docs/records.md has its columns and "
        f"metrics. The tables in LaTeX: {tex}."
    )


def _command(plan: Planned, words: str = "run {}", call: str = "run()") -> str:
    """What to type: words of the command line around the grid, or of an overridden one a call of its study."""
    if not plan.overrides:
        return f"ablations {words.format(f'{plan.grid.name} --scale {plan.scale}')}"
    options = ", ".join(f"{name}={value!r}" for name, value in plan.overrides.items())
    return f"ablations.open({plan.grid.name!r}, {plan.scale!r}, {options}).{call}"


def index(results_dir: Path) -> Path:
    """Writes ``results/README.md``: every published page with its question, answer and runs, a row each.

    Reads the ``page.json`` of every ``<grid>/<scale>/`` folder: those of the README first, then in alphabetical order.
    A page without a judged claim has its counted verdicts for an answer. Lists executed notebooks that belong to no
    grid, ``essays/<name>/notebook.ipynb``.
    """
    parts = ["# Results", "`make tables` rebuilds every number on these pages from `records/`."]
    overviews = {
        "claims.md": "[Which published claims hold](claims.md): the scoreboard of all papers.",
        "lectures.md": "[The tables of the lectures](lectures.md): which grids ask the same, and their answers.",
        "statistics/README.md": "[How far the statistics can be trusted](statistics/README.md): coverage, false "
        "findings and power on simulated grids.",
        "published/parameters.md": "[Parameters of published configurations](published/parameters.md): the papers' "
        "counts and ours, made without records.",
        "published/systems.md": "[Systems of 2018 to 2020](published/systems.md): sizes over the date, and costs.",
    }
    parts.append("\n".join(f"* {line}" for name, line in overviews.items() if (results_dir / name).is_file()))
    places = {grid: place for place, grid in enumerate(_FIRST)}
    pages = sorted(cards.cards(results_dir), key=lambda page: places.get(page[0].parent.name, len(places)))
    rows: dict[bool, list[str]] = {True: [], False: []}  # whether half of the runs are there
    for folder, page in pages:
        where = folder.relative_to(results_dir).as_posix()
        question = " ".join(filter(None, [markdown_text(page["question"]), markdown_safe(page["overridden"])]))
        runs, said = f"{page['finished']} of {page['planned']}", page["headline"] or page["verdicts"]
        link = markdown_link(where, f"{where}/README.md")
        rows[2 * page["finished"] >= page["planned"]].append(
            f"| {link} | {question} | {markdown_text(said)} | {runs} |"
        )
    head = ["| ablation | question | answer | runs |", "| :-- | :-- | :-- | --: |"]
    parts += ["\n".join([*head, *rows[True]])] * bool(rows[True])
    if rows[False]:
        parts += ["Under half of their runs:", "\n".join([*head, *rows[False]])]
    if pages:
        parts.append(
            "*Leads* is less than *beats*: counting, speed or something else may explain the lead. The pages say more."
        )
    else:
        parts.append("No page has been published yet.")
    shown = {folder.parent.name for folder, _ in pages}
    if others := {*grids.available()} - shown:
        parts.append(f"{len(others)} more grids have no page here: `ablations list` describes them.")
    parts += _essays(results_dir)
    store.write(path := results_dir / "README.md", ("\n\n".join(filter(None, parts)) + "\n").encode())
    return path


def _essays(results_dir: Path) -> list[str]:
    """A section with one line per essay: the heading in its first cell."""
    lines = []
    for path in sorted(results_dir.glob("essays/*/notebook.ipynb")):
        try:
            heading = "".join(json.loads(read(path, within=results_dir))["cells"][0]["source"]).partition("\n")[0]
        except (OSError, ValueError, LookupError, TypeError):  # no notebook: the link still shows it
            heading = path.parent.name
        where = path.relative_to(results_dir).as_posix()
        lines.append(f"* {markdown_link(heading.lstrip('# '), where)}: executed once, not rebuilt from records")
    return ["## Essays\n\n" + "\n".join(lines)] if lines else []
