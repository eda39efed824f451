"""The page of a grid, a folder of Markdown, tables and figures made from measurements; and the index of all pages.

All of it is rebuilt from the records, without training or a corpus.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.claims import judging, scoreboard
from ablations.claims.outcomes import NOT_RESOLVED, Direction
from ablations.claims.verdict import Verdict
from ablations.core import store
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
from ablations.figures import grid_figures
from ablations.measurements import trunks
from ablations.measurements.measurements import Measurements, device_class
from ablations.pages import (
    cards,
    checkpoint_table,
    equal_compute,
    heading,
    held_equal,
    inference_page,
    probe_table,
    search_report,
    tables,
    task_table,
)
from ablations.pages.held_equal import Planned
from ablations.pages.lead import answer, conclusion
from ablations.planning import scales
from ablations.schema.record import Record
from lightning_modules.files import read

_VERDICT_NOTE = (
    "These intervals are widened for the number of claims and looks (Holm) and count the noise of held-out examples "
    "where their scores are kept; those under Results do neither."
)
_SECTIONS = {
    "tasks": "Task by task",
    "probes": "What the states know",
    "equal_compute": "At equal compute",
    "search": "Search",
}


def publish(plan: Planned, measured: Measurements, folder: Path) -> dict[str, Path]:
    """Writes the tables, verdicts, figures and page of a grid at a scale.

    Args:
        plan: The cells, in order; ``plan.folder_name`` differs from ``plan.scale`` if the grid was overridden.
        measured: The measurements of its cells.
        folder: ``results/<grid>/<folder name>``; created if missing. Other files in it stay (the executed notebook).

    Returns:
        Every file written, by name. A table or figure without data is not written; its old files are removed.
    """
    verdicts = judging.verdicts(measured)
    made = {
        "table": tables.results(measured),
        "claims": tables.claims(verdicts) if verdicts else None,
        "tasks": task_table.per_task(measured),
        "probes": probe_table.table(measured),
        "equal_compute": equal_compute.sheets(measured),
        "search": search_report.searches(measured),
    }
    written: dict[str, Path] = {}
    for name, sheets in made.items():
        if sheets:
            written |= _named(tables.write(folder, name, sheets))
        else:
            tables.remove(folder, name)
    for name, (draw, _, marks) in grid_figures.FIGURES.items():
        figure, path = draw(measured, f"{heading.subtitle(plan, measured)}; {marks}"), folder / f"{name}.svg"
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            written[path.name] = grid_figures.save(figure, path)
    written |= inference_page.publish(measured, folder)
    page = folder / "README.md"
    shown = {name: sheets[0] for name, sheets in made.items() if sheets and name != "claims"}
    store.write(page, _page(plan, measured, folder, shown, verdicts).encode())
    card = folder / cards.NAME
    store.write(card, (json.dumps(_card(plan, measured, verdicts), indent=1, ensure_ascii=False) + "\n").encode())
    return written | {page.name: page, card.name: card}


def _named(paths: Mapping[str, Path]) -> dict[str, Path]:
    return {path.name: path for path in paths.values()}


def _card(plan: Planned, measured: Measurements, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    finished, planned = heading.counts(plan, measured)
    answer_in_words = " ".join(_told(plan, measured, verdicts))
    return {
        "question": plan.grid.question,
        "finished": finished,
        "planned": planned,
        "verdicts": judging.tally(verdicts),
        "claims": [scoreboard.card(verdict, measured) for verdict in verdicts],
    } | {name: text for name, text in (("overridden", heading.overridden(plan)), ("answer", answer_in_words)) if text}


def _caveat(plan: Planned) -> str:
    own = plan.grid.scales[plan.scale].caveat if plan.scale in plan.grid.scales else ""
    searched = dict.fromkeys(path_text(path) for cell in plan.cells for path in cell.chosen)
    free = f"Of the recipe each cell has the {' and '.join(searched)} that its own search chose." if searched else ""
    text = " ".join(filter(None, [scales.caveat(plan.scale), free, own]))
    return f"**Caution:** {markdown_text(text)}" if text else ""


def _told(plan: Planned, measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    """The answer in words; of the grid as it stands alone."""
    if plan.overrides or plan.scale not in plan.grid.scales:
        return []
    return conclusion.sentences(plan.grid.scales[plan.scale].conclusion, measured, verdicts)


def _page(
    plan: Planned, measured: Measurements, folder: Path, sheets: Mapping[str, Sheet], verdicts: Sequence[Verdict]
) -> str:
    grid = plan.grid
    finished, planned = heading.counts(plan, measured)
    description = grid.scales[plan.scale].description if plan.scale in grid.scales else ""
    drawn = [name for name in grid_figures.FIGURES if (folder / f"{name}.svg").exists()]
    pictures = [f"![{grid_figures.FIGURES[name][1]}]({name}.svg)" for name in drawn]
    equal = f"**Equal compute:** {markdown_text(text)}" if (text := equal_compute.in_short(measured)) else ""
    told = _told(plan, measured, verdicts)
    limits = [answer.holds(measured), _caveat(plan)]  # right below an answer in words
    answered = [heading.overridden(plan), answer.lead(measured, verdicts, told)]
    answered += [*limits, equal] if told else [equal, *limits]
    numbers = "\n".join(f"* {line}" for line in answer.means(measured)) if told else ""
    lead = [
        *filter(None, [*answered, *pictures[:1], numbers]),
        f"Grid {markdown_code(grid.name)} at scale {markdown_code(plan.folder_name)}{': ' * bool(description)}"
        f"{markdown_text(description)}.",
        f"**{finished} of {planned} runs finished.**" + ("" if finished == planned else " This page is incomplete."),
    ]
    lead += filter(None, [_stale(plan)])
    if grid.paper:
        lead.append(f"Published ablation: {markdown_text(grid.paper)}.")
    parts = ["\n\n".join(lead), *(["## About", grid.about] if grid.about else [])]
    if verdicts:
        lines = "\n".join(_verdict_line(verdict) for verdict in verdicts)
        parts += ["## Verdicts", lines, _VERDICT_NOTE, _links("claims")]
    parts += ["## Results", markdown(sheets["table"]).rstrip("\n"), *_computed(measured), _links("table")]
    parts += pictures[1:]
    for name, title in _SECTIONS.items():
        if name in sheets:
            parts += [f"## {title}", markdown(sheets[name]).rstrip("\n"), _links(name)]
    tasks = {run.task for cell in plan.cells for run in (*cell.zero_shot, *cell.awaited) if run.task}
    parts += checkpoint_table.part(plan.grid, plan.scale, folder, tasks)
    parts += inference_page.part(folder)
    parts += [
        "## What is held equal",
        held_equal.lines(plan),
        "## Cost",
        _cost(plan, measured),
        "## Regenerate",
        _commands(plan),
    ]
    if (folder / "notebook.ipynb").exists():
        parts.append("Executed notebook: [notebook.ipynb](notebook.ipynb).")
    return f"# {markdown_text(grid.question)}\n\n" + "\n\n".join(parts) + "\n"


def _verdict_line(verdict: Verdict) -> str:
    outcome, _, rest = verdict.sentence.partition(": ")
    proxy = f" Compared by proxy: {markdown_text(verdict.proxy)}." if verdict.proxy else ""
    origin = ", ".join((verdict.claim.origin, *verdict.marks))
    claim = f"*{markdown_text(verdict.claim.statement)}* ({markdown_text(origin)})"
    return f"* {claim}: **{outcome}**: {markdown_text(rest)}.{proxy}{_alternative(verdict)}"


def _alternative(verdict: Verdict) -> str:
    """What else could explain a settled result, be it a direction or an equality, as a sentence of Markdown."""
    is_open = verdict.direction is Direction.OPEN and verdict.outcome == NOT_RESOLVED
    if is_open or not verdict.claim.alternative:
        return ""
    return f" Could something simpler explain it? {markdown_text(verdict.claim.alternative)}"


def _computed(measured: Measurements) -> list[str]:
    """Which numbers are in no record, but follow from the answers that records keep."""

    def listed(counts: Mapping[str, int]) -> str:
        shown = sorted({metric.name for metric in measured.grid.metrics} & {*counts})
        return ", ".join(f"{markdown_code(name)} of {counts[name]} runs" for name in shown)

    computed, absent = listed(measured.computed), listed(measured.absent)
    lines = [f"Computed from the answers in records that are older than the metric: {computed}."] if computed else []
    return lines + [f"**Missing here:** {absent}; the dev examples that give it are not available."] * bool(absent)


def _links(name: str) -> str:
    files = (f"[{end}]({name}.{end})" for end in ("md", "csv", "tex", "json"))
    return f"As files: {', '.join(files)}; the JSON names the runs behind each number."


def _cost(plan: Planned, measured: Measurements) -> str:
    ids = sorted(heading.ids(plan)[0])
    records = [record for id in ids if (record := measured.get(id)) is not None]
    if not records:
        return "No run has been made."
    total = {name: sum(record.cost.get(name, 0.0) for record in records) for name in ("seconds", "tokens", "flops")}
    devices = ", ".join(sorted({printable(device_class(record)) for record in records} - {""}))
    where = f" on {markdown_text(devices)}" if devices else ""
    return (
        f"{len(records)} runs, {duration(total['seconds'])} of computing{where}, {quantity(total['tokens'])} tokens, "
        f"{quantity(total['flops'])} floating-point operations{_commits(records)}."
        + _trunk_cost(plan, measured)
        + search_report.cost_sentence(measured)
    )


def _trunk_cost(plan: Planned, measured: Measurements) -> str:
    """What the trunks took, on top; empty without any."""
    found = trunks.of_cells(plan.cells)
    records = [record for run in found if (record := measured.get(run.id)) is not None]
    if not found:
        return ""
    took = duration(sum(record.cost.get("seconds", 0.0) for record in records))
    seeds = ", ".join(str(run.seed) for run in found)
    return f" On top, charged once: {len(found)} trunks (seeds {seeds}) that all cells continue, {took} of computing."


def _commits(records: Sequence[Record]) -> str:
    """The commits of the code, in how many runs it was changed, and how many codes there are if more than commits."""
    origins = [record.provenance for record in records]
    commits = sorted({str(origin["commit"])[:10] for origin in origins if origin.get("commit")})
    codes = {str(origin["code"]) for origin in origins if origin.get("code")}
    changed = sum(origin.get("dirty") is True for origin in origins)
    known = all(origin.get("code") for origin in origins if origin.get("dirty") is True)
    parts = [f"at commit{'s' * (len(commits) > 1)} {', '.join(map(markdown_code, commits))}"] if commits else []
    parts += [f"changed code in {changed} of these runs"] if changed else []
    if changed or len(codes) > max(1, len(commits)):
        parts.append(f"{len(codes)} different code{'s' * (len(codes) != 1)}" if known else "how many codes is unknown")
    return f"; {', '.join(parts)}" if parts else ""


def _stale(plan: Planned) -> str:
    """How many runs have records by code of another generation only, and what to do; empty if none."""
    count = sum(state == "stale" for state in plan.states.values())
    are, them, records = ("is", "it", "its record stays") if count == 1 else ("are", "them", "their records stay")
    text = f"**{count} run{'s' * (count > 1)} {are} stale:** code of another generation of numerics made {them}"
    return f"{text}. To make {them} again: {markdown_code(_command(plan))}; {records}." if count else ""


def _commands(plan: Planned) -> str:
    return (
        "`make tables` rebuilds this page from the records, without training or corpora. To train missing runs: "
        f"{markdown_code(_command(plan))}."
    )


def _command(plan: Planned) -> str:
    command = f"ablations run {plan.grid.name} --scale {plan.scale}"
    if plan.overrides:
        options = ", ".join(f"{name}={value!r}" for name, value in plan.overrides.items())
        command = f"ablations.open({plan.grid.name!r}, {plan.scale!r}, {options}).run()"
    return command


def index(results_dir: Path) -> Path:
    """Writes ``results/README.md``: every published page with its runs and its verdicts, one line each.

    Reads the ``page.json`` of every ``<grid>/<scale>/`` folder, in alphabetical order. Lists executed notebooks that
    belong to no grid, ``essays/<name>/notebook.ipynb``, at the end.
    """
    rows, details = [], []
    for folder, page in cards.cards(results_dir):
        where = folder.relative_to(results_dir).as_posix()
        runs = f"{page['finished']} of {page['planned']}"
        question = " ".join(filter(None, [markdown_text(page["question"]), markdown_safe(page["overridden"])]))
        link = markdown_link(where, f"{where}/README.md")
        rows.append(f"| {link} | {question} | {runs} | "
                    f"{markdown_text(page['verdicts'])} |")  # fmt: skip
        if page["claims"]:
            parts = [f"## {link}", markdown_safe(page["answer"])]
            details.append("\n\n".join([*filter(None, parts), "\n".join(map(_claim_line, page["claims"]))]))
    head = "# Results\n\n`make tables` rebuilds every number on these pages from `records/`.\n\n"
    table = "| ablation | question | runs | verdicts |\n| :-- | :-- | --: | :-- |\n" + "".join(
        f"{row}\n" for row in rows
    )
    if not rows:
        table = "No page has been published yet.\n"
    path, counts = results_dir / "README.md", "published/parameters.md"
    if (results_dir / counts).is_file():
        about = "the papers' counts beside ours, made without records"
        head += f"[Parameters of published configurations]({counts}): {about}.\n\n"
    if (results_dir / "published/systems.md").is_file():
        head += "[Systems of 2018 to 2020](published/systems.md): sizes over the date, and told costs beside ours.\n\n"
    if (results_dir / "statistics" / "README.md").is_file():
        about = "coverage, false findings and power on simulated grids"
        head += f"[How far the statistics can be trusted](statistics/README.md): {about}.\n\n"
    if (results_dir / "claims.md").is_file():
        head += "[Which published claims hold](claims.md): the scoreboard of all papers.\n\n"
    details += _essays(results_dir)
    body = table + "".join(f"\n{detail}\n" for detail in details)
    store.write(path, (head + body).encode())
    return path


def _claim_line(claim: Mapping[str, Any]) -> str:
    flags = (not claim["claim"], claim.get("continued"), claim.get("post_hoc"))
    marks = itertools.compress(("own hypothesis", trunks.WORD, "post hoc"), flags)
    own = f" ({', '.join(marks)})" if any(flags) else ""
    return f"* *{markdown_text(claim['statement'])}*{own}: {markdown_text(claim['sentence'])}."


def _essays(results_dir: Path) -> list[str]:
    """A section with one line per essay: the heading in its first cell."""
    lines = []
    for path in sorted(results_dir.glob("essays/*/notebook.ipynb")):
        try:
            heading = "".join(json.loads(read(path, within=results_dir))["cells"][0]["source"]).partition("\n")[0]
        except (OSError, ValueError, LookupError, TypeError):  # no notebook: the link still shows it
            heading = path.parent.name
        where = path.relative_to(results_dir).as_posix()
        lines.append(f"* {markdown_link(heading.lstrip('# '), where)}: executed once; not rebuilt from records")
    return ["## Essays\n\n" + "\n".join(lines)] if lines else []
