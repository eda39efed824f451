"""The page of a grid, a folder of Markdown, tables and figures made from measurements; and the index of all pages.

All of it is rebuilt from the records, without training or a corpus.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ablations.claims import judging, scoreboard
from ablations.claims.headline import headline, quotes
from ablations.claims.verdict import Verdict
from ablations.core import notebooks, store
from ablations.core.formatting import (
    Sheet,
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

_COLUMNS = 8  # of a table on a page; its file has all
_UNJUDGED = "**Not judged.** The numbers of this scale mean nothing: it tests that everything runs."
_FIRST = ("masking_ratio", "sentence_objective", "embedding_size", "parameter_sharing", "model_depth")  # of the README
_SECTIONS = {
    "claims": "Verdicts",
    "table": "Results",
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
    verdicts = judged.verdicts(plan.scale, measured)
    made = _sheets(measured, verdicts)
    written: dict[str, Path] = {}
    for name, sheets in made.items():
        if sheets:
            written |= {path.name: path for path in tables.write(folder, name, sheets).values()}
        else:
            tables.remove(folder, name)
    told = heading.subtitle(plan, measured)
    said = headline(measured, verdicts, _quoted(plan, measured, verdicts))
    drawn = {name: grid_figures.draw(name, measured, told, said) for name in grid_figures.FIGURES}
    drawn["alignment"] = alignments.alignments(alignment_table.contrasts(verdicts), f"{told}; {alignments.MARKS}")
    for name, figure in drawn.items():
        path = folder / f"{name}.svg"
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            written[path.name] = grid_figures.save(figure, path)
    written |= inference_page.publish(measured, folder)
    page = folder / "README.md"
    shown = {name: sheets[0] for name, sheets in made.items() if sheets and name != "claims"}
    store.write(page, _page(plan, measured, folder, shown, verdicts).encode())
    card = cards.write(folder, _card(plan, measured, verdicts))
    return written | {page.name: page, card.name: card}


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


def _card(plan: Planned, measured: Measurements, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    finished, planned = heading.counts(plan, measured)
    answer_in_words = " ".join(_told(plan, measured, verdicts))
    return {
        "question": plan.grid.question,
        "finished": finished,
        "planned": planned,
        "verdicts": judging.tally(verdicts),
        "headline": headline(measured, verdicts, _quoted(plan, measured, verdicts)),
        "claims": [scoreboard.card(verdict) for verdict in verdicts],
    } | {name: text for name, text in (("overridden", heading.overridden(plan)), ("answer", answer_in_words)) if text}


def _caveat(plan: Planned, measured: Measurements) -> str:
    own = plan.grid.scales[plan.scale].caveat if plan.scale in plan.grid.scales else ""
    of_scale = scales.caveat(plan.scale, [cell.system for cell in plan.cells])
    parts = [of_scale, _recipe(plan), search_report.in_short(measured)]
    parts += conclusion.caveat(own, measured).split("\n")  # a paragraph of the grid's file is a line
    said = [markdown_text(part) for part in parts if part]
    listed = (
        "\n\n" + "\n".join(f"* {part[0].upper()}{part[1:]}" for part in said) if len(said) > 1 else f" {' '.join(said)}"
    )
    return f"**Caution:**{listed}" if said else ""


def _recipe(plan: Planned) -> str:
    """What of the recipe is the same in all cells, as a sentence; empty where no scale pins one."""
    if not scales.has_recipe(plan.scale) or SYSTEM_AXIS in plan.grid.axes:
        return ""
    searched = dict.fromkeys(path_text(path) for cell in plan.cells for path in cell.chosen)
    if not searched:
        return "Every model of this page is trained by the same recipe. Only what the grid asks about differs."
    chosen = f"Each cell has the {' and '.join(searched)} that its own search chose"
    return f"{chosen}. The rest of the recipe is the same, but for what the grid asks about."


def _told(plan: Planned, measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    """The answer in words. It is of the grid as it is, not overridden."""
    return conclusion.sentences(conclusion.stated(plan), measured, verdicts)


def _quoted(plan: Planned, measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    return conclusion.quoted(conclusion.stated(plan), measured, verdicts)


def _page(
    plan: Planned, measured: Measurements, folder: Path, sheets: Mapping[str, Sheet], verdicts: Sequence[Verdict]
) -> str:
    grid = plan.grid
    finished, planned = heading.counts(plan, measured)
    description = grid.scales[plan.scale].description if plan.scale in grid.scales else ""
    drawn = [name for name in grid_figures.FIGURES if (folder / f"{name}.svg").exists()]
    quoted = _quoted(plan, measured, verdicts)
    said, named = headline(measured, verdicts, quoted), quotes(measured, verdicts, quoted)
    pictures = [f"![{markdown_text(grid_figures.caption(name, said))}]({name}.svg)" for name in drawn]
    equal = f"**Equal compute:** {markdown_text(text)}" if (text := equal_compute.in_short(measured)) else ""
    speed = alignment_table.in_short(verdicts, named)
    told = _told(plan, measured, verdicts)
    limits = [answer.holds(measured), _caveat(plan, measured)]  # right below an answer in words
    answered = [heading.overridden(plan), answer.lead(measured, verdicts, told, said)]
    answered += [*limits, equal] if told else [equal, *limits]
    numbers = "\n".join(f"* {line}" for line in answer.means(measured)) if told or said else ""
    rest = f" {markdown_code(_command(plan))} trains the rest."
    lead = [
        *filter(None, [*answered, *pictures[:1], numbers]),
        f"Grid {markdown_code(grid.name)} at scale {markdown_code(plan.folder_name)}{': ' * bool(description)}"
        f"{markdown_text(description)}.",
        f"**{finished} of {planned} runs finished.**"
        + ("" if finished == planned else f" This page is incomplete.{rest}"),
    ]
    lead += filter(None, [_stale(plan)])
    if grid.paper:
        lead.append(f"Published ablation: {markdown_text(grid.paper)}.")
    parts = ["\n\n".join(lead), *(["## About", grid.about] if grid.about else [])]
    parts += inference_page.part(folder)
    if verdicts:
        alone = [text] if (text := heading.judged(plan)) else []
        unjudged = [] if scales.judges(plan.scale) else [_UNJUDGED]
        parts += [f"## {_SECTIONS['claims']}", *alone, *unjudged, *verdict_table.part(verdicts), _links("claims")]
    for name, title in _SECTIONS.items():
        if name in sheets:
            is_drawn = name == "alignment" and (folder / f"{name}.svg").exists()
            found = alignments.answer(alignment_table.contrasts(verdicts))
            picture = [f"![{found}. {alignments.CAPTION}]({name}.svg)"] * is_drawn
            parts += [
                f"## {title}",
                *[speed] * (name == "alignment" and bool(speed)),
                *picture,
                *_narrow(name, sheets[name]),
            ]
            parts += [*_computed(measured), _links(name), *pictures[1:]] if name == "table" else [_links(name)]
        elif name == "alignment" and (text := alignment_table.part(measured, verdicts)):
            parts += [f"## {title}", text]
    tasks = {run.task for cell in plan.cells for run in (*cell.zero_shot, *cell.awaited) if run.task}
    parts += checkpoint_table.part(plan.grid, plan.scale, folder, tasks)
    commands = [_command(plan, f"show {{}} --format {end}", f"written('{end}')") for end in ("csv", "tex")]
    long, tex = map(markdown_code, commands)
    parts += [
        "## What is held equal",
        held_equal.lines(plan),
        "## Cost",
        _cost(plan, measured),
        "## Every number",
        f"Every number of every run, one per row, as CSV: {long}. The file docs/records.md has its columns and "
        f"metrics. The tables of this page in LaTeX: {tex}.",
        "## Regenerate",
        _commands(plan),
    ]
    if (folder / "notebook.ipynb").exists():
        parts.append(_notebook(folder / "notebook.ipynb", finished))
    return f"# {markdown_text(grid.question)}\n\n" + "\n\n".join(parts) + "\n"


def _notebook(path: Path, done: int) -> str:
    """A link to the executed notebook, which says so if the page has runs that it does not show."""
    shown = notebooks.runs_shown(path)
    older = f" It was executed with {shown:,} of these {done:,} runs." if shown is not None and shown < done else ""
    return f"Executed notebook: [notebook.ipynb](notebook.ipynb).{older}"


def _narrow(name: str, sheet: Sheet) -> list[str]:
    """A table with its first columns, and where the others are, as Markdown."""
    shown = sheet.narrow(_COLUMNS)
    empty = {"", None, tables.NOTHING}  # rows of what is left out
    shown = replace(shown, rows=[row for row in shown.rows if {*row[shown.left :]} - empty or not row[shown.left :]])
    left = [heading for heading in sheet.headings if heading not in shown.headings]
    shown = replace(shown, notes=[note for note in shown.notes if not _is_about(note, left, shown.headings)])
    more = f"[{name}.md]({name}.md) has {len(left)} more: {markdown_text(', '.join(left))}."
    table, _, notes = markdown(shown).rstrip("\n").partition("\n\n")
    return list(filter(None, [table, more * bool(left), notes]))


def _is_about(note: str, left: Sequence[str], shown: Sequence[str]) -> bool:
    """Whether a note explains only columns that are left out: it begins with the first word of their headings."""
    column = note.partition(":")[0].lower()
    about_shown, about_left = (any(heading.startswith(column) for heading in heads) for heads in (shown, left))
    return about_left and not about_shown


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


def _commands(plan: Planned) -> str:
    """How to make the page again. Its bytes do not depend on where the results folder lies."""
    is_beside = grids.results_dir(plan.grid.name, plan.scale).name == UNPUBLISHED
    tables = f"ablations tables --results-dir results/{UNPUBLISHED}" if is_beside else "make tables"
    return (
        f"`{tables}` rebuilds this page from the records, without training or corpora. To train missing runs: "
        f"{markdown_code(_command(plan))}. Another results folder than `results` is named by `--results-dir`."
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
