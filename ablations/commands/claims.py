"""``ablations claims``: the scoreboard in a terminal."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import Format, In, Notation, Results, echo, existing, listing, plain, reporting_errors

if TYPE_CHECKING:
    from ablations.claims.scoreboard import Entry
    from ablations.core.store import Records


def claims(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of claims. Default: all.")] = None,
    grid: Annotated[str | None, typer.Option("--grid", "-g", help="Only claims that this grid tests.")] = None,
    paper: Annotated[str | None, typer.Option("--paper", "-p", help="Only claims of this paper.")] = None,
    scale: Annotated[str | None, typer.Option("--scale", "-s", help="Only verdicts at this scale.")] = None,
    survives: Annotated[
        bool,
        typer.Option(
            "--survives",
            help="Only claims that replicate or contradict as wholes, all of whose tests survive Holm over all tests "
            "of their scale.",
        ),
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="When was each claim stated, and when did its grid first run?")
    ] = False,
    form: In = Notation.table,
    results_dir: Results = None,
) -> None:
    """Shows the published claims with their verdicts and runs: the scoreboard."""
    with reporting_errors():
        if audit:
            _audit(results_dir, plain(form, "an audit"))
            raise typer.Exit()
        from ablations.pages import scoreboard_page, tables

        whole = scoreboard_page.gathered(_records(results_dir).snapshot())
        board = _named(_chosen(whole, grid, paper, scale), ids or ())
        if survives:
            board = _surviving(board, whole)
        if not board:
            asked = {"the grid": grid, "the paper": paper, "the ids": ", ".join(ids or ())}
            said = ", ".join(f"{name} '{value}'" for name, value in asked.items() if value)
            echo(f"No claim has {said or 'a verdict that survives'}.", err=True)
        if form is Notation.names:
            echo("\n".join(entry.claim.id for entry in board))
        elif form is Notation.json:
            _, numbers, runs = scoreboard_page.sheets(board)
            rows = [dict(zip(numbers.headings, row, strict=True)) for row in numbers.rows]
            made = {(claim["asked"], claim["grid"], claim["scale"]): claim["runs"] for claim in runs["claims"]}
            keyed = [row | {"runs": made.get((row["asked"], row["grid"], row["scale"]), ())} for row in rows]
            listing(keyed, Format.json, "claim")
        elif form is Notation.table:
            _print(board, scale, narrowed=any((ids, grid, paper, scale, survives)))
        else:
            echo(tables.rendered(scoreboard_page.sheets(board), form.name), nl=False)


def _chosen(board: "list[Entry]", grid: str | None, paper: str | None, scale: str | None) -> "list[Entry]":
    from dataclasses import replace

    from ablations.claims.published_claims import papers
    from ablations.pages import scoreboard_page
    from ablations.planning import grids
    from lightning_modules.config import ConfigError, Problem, did_you_mean

    by_name = {name.lower(): name for name in papers()}
    levels = scoreboard_page.scales(board)
    for option, value, allowed in (
        ("--grid", grid, grids.available()),
        ("--paper", paper and paper.lower(), by_name),
        ("--scale", scale, levels),
    ):
        if value is not None and value not in allowed:
            raise ConfigError([Problem(option, f"'{value}' has no claims.{did_you_mean(value, allowed)}")])
    kept = []
    for entry in board:
        if (grid and grid not in entry.grids) or (paper and entry.claim.paper.lower() != paper.lower()):
            continue
        answers = [a for a in entry.answers if scale in (None, a.scale) and grid in (None, a.grid)]
        kept.append(replace(entry, answers=tuple(answers)))
    return kept


def _surviving(board: "list[Entry]", whole: "list[Entry]") -> "list[Entry]":
    """The claims that survive every rule, with their verdicts at the scales where they do.

    The board may be narrowed to a grid. Whether a claim survives is decided by the answers of all grids.
    """
    from dataclasses import replace

    all_of = {entry.claim.id: entry for entry in whole}
    kept = [
        replace(entry, answers=tuple(a for a in entry.answers if all_of[entry.claim.id].survives(a.scale)))
        for entry in board
    ]
    return [entry for entry in kept if entry.answers]


def _named(board: "list[Entry]", ids: Sequence[str]) -> "list[Entry]":
    """The claims with some ids; a part of a claim is counted with the whole."""
    from ablations.claims.published_claims import counted_as, unknown, with_parts
    from lightning_modules.config import ConfigError

    known = with_parts()
    if wrong := [name for name in ids if name not in known]:
        raise ConfigError(unknown(name, known) for name in wrong)
    wanted = set(map(counted_as, ids))
    return [entry for entry in board if entry.claim.id in wanted] if ids else board


def _print(board: "list[Entry]", only: str | None, *, narrowed: bool) -> None:
    from ablations.core.formatting import markdown
    from ablations.pages import scoreboard_page

    for scale in scoreboard_page.scales(board):
        echo(f"Published claims at scale {scale}", bold=True)
        echo(markdown(scoreboard_page.summary(board, scale)))
    if narrowed:
        for entry in board:
            echo(f"{entry.claim.id}: {entry.claim.statement}", bold=True)
            echo(f"  {entry.claim.paper}, {entry.claim.table}. Published: {entry.claim.published or 'no numbers'}")
            for answer in entry.answers:
                echo(f"  {answer.grid}/{answer.scale}: {answer.sentence}")
                echo(f"    runs: {', '.join(answer.runs) or 'none'}")
            if not entry.answers:
                unrun = f"tested by {', '.join(entry.grids)}, not run{f' at scale {only}' if only else ''}"
                echo("  " + (unrun if entry.grids else "no grid tests it"))
    else:
        echo(markdown(scoreboard_page.sheets(board)[0]))


def _records(results_dir: str | None) -> "Records":
    """The records of a results folder, which is there if it is named."""
    from ablations.core.store import Records

    return existing(results_dir) if results_dir else Records()


def _audit(results_dir: str | None, form: Format) -> None:
    """Prints when each claim was stated and when its grid first ran; exits with 1 if one is later and not marked."""
    from ablations.claims import audit as auditing
    from ablations.planning import grids, scales
    from ablations.planning.plan import plan
    from ablations.planning.recorded import at_hand
    from lightning_modules.config import ConfigError

    snapshot, found = _records(results_dir).snapshot(), []
    for name, grid in grids.readable()[0].items():
        known = auditing.stated(grids.locate(name)) if grid.claims else None
        for scale in grid.scales if grid.claims else ():
            if scales.is_trial(scale) or not at_hand(grid, scale):
                continue
            try:
                planned = plan(grid, scale, records=snapshot)
            except ConfigError:  # data that are neither pinned nor available: no run is known
                continue
            ran = functools.partial(auditing.first_seen, grid=grid, cells=planned.cells, records=snapshot)
            found += auditing.registrations(name, scale, planned.grid.claims, known, ran)
    rows = [
        {"claim": one.claim, "grid": one.grid, "scale": one.scale, "standing": one.standing,
         "stated": one.stated.isoformat() if one.stated else "", "first run": one.ran.isoformat() if one.ran else ""}
        for one in found if one.standing != auditing.NOT_RUN
    ]  # fmt: skip
    listing(rows, form, "claim")
    late = [one for one in found if one.standing == auditing.UNMARKED]
    for one in late:
        what = f"{one.claim} of {one.grid} was stated after runs at {one.scale}: mark it 'post_hoc: true'"
        echo(what, err=True, fg="red")
    if late:
        raise typer.Exit(1)
