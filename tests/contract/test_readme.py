"""The README is short, and its numbers are those of the scoreboard."""

import csv
import re

from lightning_modules.places import project
from tests.every import every

README = (project() / "README.md").read_text(encoding="utf-8")
INTERVAL = r"(?P<effect>-?[\d.]+) \[(?P<low>-?[\d.]+), (?P<high>-?[\d.]+)\]"
ROW = re.compile(
    rf"^\| \[.+\]\(results/(?P<grid>\w+)/(?P<scale>\w+)/README\.md\) .*\| {INTERVAL}.* (?P<kind>\w+) \|$", re.MULTILINE
)
ROWS = [match.groupdict() for match in ROW.finditer(README)]


def kinds(row):
    """What the scoreboard says of a difference: at the floor, or of speed or quality."""
    return {row["reason"], *row["speed or quality"].split(": ")}


def test_it_has_the_five_ablations():
    grids = {row["grid"] for row in ROWS}
    assert grids == {"masking_ratio", "sentence_objective", "embedding_size", "parameter_sharing", "model_depth"}


@every("row", ROWS)
def test_its_numbers_are_those_of_a_verdict(row):
    with (project() / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        judged = [one for one in csv.DictReader(file) if (one["grid"], one["scale"]) == (row["grid"], row["scale"])]
    printed = [row["effect"], row["low"], row["high"]]
    same = [
        one
        for one in judged
        if one["effect"] and [f"{float(one[c]):.3f}" for c in ("effect", "low", "high")] == printed
    ]
    assert same, f"no verdict of {row['grid']} has {printed}"
    assert any(row["kind"] in kinds(one) for one in same)


def test_what_a_link_says_is_on_its_page():
    said = re.findall(rf"\[[^\[\]|]*?({INTERVAL})[^\[\]|]*\]\((results/\S+)\)", README)
    assert said
    for text, *_, page in said:
        assert text in (project() / page).read_text(encoding="utf-8")


def test_its_counts_are_those_of_the_scoreboard():
    """Recounted from the rows of the board's page, which has one for each measured claim."""
    with (project() / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        kept = {one["claim"] for one in csv.DictReader(file)}
    rows = (project() / "results" / "claims.md").read_text(encoding="utf-8").split("## Claim by claim")[1].splitlines()
    place = next(row for row in rows if row.startswith("| paper")).split(" | ").index("laptop")
    said = [row.split(" | ")[place] for row in rows if row.startswith("| ") and row[:4] not in ("| pa", "| :-")]
    measured = [outcome for outcome in said if not re.match("not run|no grid", outcome)]
    words = ("replicates", "contradicts", "not resolved", "not comparable|by construction|confounded")
    counts = [sum(bool(re.match(word, outcome)) for outcome in measured) for word in words]
    assert f"[{len(kept)} published claims](results/claims.md)" in README
    replicate, contradict, unresolved, threatened = counts
    assert f"{len(measured)} of these are measured: {replicate} replicate, {contradict} contradict, " in README
    assert f"{unresolved} are not resolved, and {threatened} have a threat" in README
