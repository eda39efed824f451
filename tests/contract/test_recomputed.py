"""Published intervals come again from `claims.csv` and scipy, aligned effects from the rows of `ablations.frame`."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ablations
from lightning_modules.places import project
from tests.every import every

RESULTS = project() / "results"
CLOSE = {"rtol": 1e-5, "atol": 1e-7}  # the file has eight digits
PAGES = sorted(path.parent for path in RESULTS.glob("*/*/claims.csv") if len(pd.read_csv(path)))
SHEETS = {str(path.relative_to(RESULTS)): pd.read_csv(path) for path in (RESULTS / "claims.csv", *(
    page / "claims.csv" for page in PAGES))}  # fmt: skip


def ends(sheet):
    """The names of the columns of the level and of the interval that decides: pages have the one at 95 % too."""
    of_page = "adjusted level" in sheet
    return ("adjusted level", "adjusted low", "adjusted high") if of_page else ("level", "low", "high")


@every("name", SHEETS)
def test_every_interval_is_computed_again_from_its_row(name):
    sheet = SHEETS[name]
    level, low, high = ends(sheet)
    rows = sheet[sheet["standard error"].notna()]
    logs = rows["test"].astype(str).str.contains("logarithms")
    centre = rows["effect"].where(~logs, np.log(rows["effect"].where(logs)))
    found = stats.t.interval(rows[level], rows["df"], centre, rows["standard error"])
    for end, column in zip(found, (low, high), strict=True):
        assert np.allclose(np.where(logs, np.exp(end), end), rows[column], **CLOSE)


@every("name", SHEETS)
def test_an_ordering_is_computed_again_from_its_steps(name):
    sheet = SHEETS[name]
    level, low, high = ends(sheet)
    for _, row in sheet[sheet["steps"].notna()].iterrows():
        effects, errors, df = map(np.array, zip(*json.loads(row["steps"]), strict=True))
        shared = 1 - (1 - row[level]) / len(effects)
        assert np.isclose(min(effects), row["effect"], **CLOSE)
        assert np.isclose(min(stats.t.interval(row[level], df, effects, errors)[0]), row[low], **CLOSE)
        assert np.isclose(min(stats.t.interval(shared, df, effects, errors)[1]), row[high], **CLOSE)


@every("name", SHEETS)
def test_every_measured_claim_says_by_which_test(name):
    """Only a metric without noise has none: then the interval is a point."""
    sheet = SHEETS[name]
    _, low, high = ends(sheet)
    silent = sheet[sheet[low].notna() & sheet["standard error"].isna() & sheet["steps"].isna()]
    assert (silent[low] == silent[high]).all()
    parts = sheet.dropna(subset=["standard error", "error over runs"])
    squares = parts["error over runs"] ** 2 + parts["error over examples"].fillna(0) ** 2
    if "adjusted level" not in sheet:  # pages show the parts of an ordering's first step too
        assert np.allclose(squares, parts["standard error"] ** 2, rtol=1e-6)


def loss_at(run, tokens):
    return np.interp(np.log(tokens), np.log(run["tokens"]), run["value"])


def crossing(run, bar):
    """The tokens at which a curve first passes the bigram baseline, linear in their logarithm."""
    losses, logs = run["value"].to_numpy(), np.log(run["tokens"].to_numpy())
    at = int(np.argmax(losses <= bar))
    share = (losses[at - 1] - bar) / (losses[at - 1] - losses[at])
    return np.exp(logs[at - 1] + share * (logs[at] - logs[at - 1]))


@pytest.mark.parametrize("page", ["embedding_size", "model_depth"])
def test_aligned_effects_are_computed_again_from_the_curves(page):
    """Each run at the largest multiple of its own crossing that all of them reach; the t interval is the file's."""
    sheet = pd.read_csv(RESULTS / page / "laptop" / "claims.csv")
    sides = {one["claim"]: one["sides"] for one in
             json.loads((RESULTS / page / "laptop" / "claims.json").read_text())["claims"]}  # fmt: skip
    rows = ablations.frame(page, scale="laptop")
    final, bars = (rows.query("metric == @name").drop_duplicates("run").set_index("run")["value"]
                   for name in ("heldout.loss", "heldout.bigram_loss"))  # fmt: skip
    curves = ablations.frame(page, scale="laptop", curves=True).query("metric == 'heldout.loss'")
    of_run = {run: rows.drop_duplicates("step") for run, rows in curves.groupby("run")}
    bars = {run: bars[run] + rows["value"].iloc[-1] - final[run] for run, rows in of_run.items()}  # of fewer sequences
    pairs = sheet[sheet["aligned"].notna() & sheet["relation"].isin([">", "~"])]
    assert len(pairs)
    for _, claim in pairs.iterrows():
        a, b = ([of_run[run] for run in side] for side in sides[claim["claim"]])
        crossed = [[crossing(run, bars[run["run"].iloc[0]]) for run in side] for side in (a, b)]
        reached = [run["tokens"].max() / at for side, at in zip((a, b), crossed, strict=True)
                   for run, at in zip(side, at, strict=True)]  # fmt: skip
        means = [np.mean([loss_at(run, min(reached) * at) for run, at in zip(side, at, strict=True)])
                 for side, at in zip((a, b), crossed, strict=True)]  # fmt: skip
        assert np.isclose(means[1] - means[0], claim["aligned"], **CLOSE)
        low, high = stats.t.interval(0.95, claim["aligned df"], claim["aligned"], claim["aligned standard error"])
        assert np.allclose((low, high), (claim["aligned low"], claim["aligned high"]), **CLOSE)


QUOTED = re.compile(r"by (?P<effect>[\d.]+)(?: nats)? \[(?P<low>-?[\d.]+), (?P<high>-?[\d.]+)\]")


@every("grid", ["masking_ratio", "model_depth"])
def test_the_title_of_a_figure_quotes_an_effect_of_the_records(grid):
    folder = RESULTS / grid / "laptop"
    (alt,) = re.findall(r"^!\[(.*)\]\(knob\.svg\)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    quoted = QUOTED.search(alt)
    assert quoted, alt
    places = len(quoted["effect"].partition(".")[2])
    rows = pd.read_csv(folder / "claims.csv")
    ways = [
        tuple(f"{sign * number + 0.0:.{places}f}" for number in ends)
        for _, row in rows.iterrows()
        for sign, ends in (
            (1, (row["effect"], row["adjusted low"], row["adjusted high"])),
            (-1, (row["effect"], row["adjusted high"], row["adjusted low"])),
        )
    ]
    assert quoted.group("effect", "low", "high") in ways
    drawn = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", (folder / "knob.svg").read_text(encoding="utf-8")))
    assert quoted["effect"] in drawn
    assert quoted["high"] in drawn
