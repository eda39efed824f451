"""The README is short, and its numbers are those of the scoreboard."""

import csv
import re

from lightning_modules.places import project
from tests.every import every

README = (project() / "README.md").read_text(encoding="utf-8")
INTERVAL = r"(?P<effect>-?[\d.]+) \[(?P<low>-?[\d.]+), (?P<high>-?[\d.]+)\]"
ROW = re.compile(
    rf"^\| \[.+\]\(results/(?P<grid>\w+)/(?P<scale>\w+)/README\.md\) .*\| {INTERVAL}.* \| (?P<regime>[a-z ]+) \|$",
    re.MULTILINE,
)
ROWS = [match.groupdict() for match in ROW.finditer(README)]


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
    assert any(row["regime"] == one["regime"] for one in same)


def test_what_a_link_says_is_on_its_page():
    said = re.findall(rf"\[[^\[\]|]*?({INTERVAL})[^\[\]|]*\]\((results/\S+)\)", README)
    assert said
    for text, *_, page in said:
        assert text in (project() / page).read_text(encoding="utf-8")


def test_its_counts_are_those_of_the_scoreboard():
    """The last row of each scale's table on the board's page."""
    with (project() / "results" / "claims.csv").open(encoding="utf-8", newline="") as file:
        kept = {one["claim"] for one in csv.DictReader(file)}
    assert f"[{len(kept)} published claims](results/claims.md)" in README
    board = (project() / "results" / "claims.md").read_text(encoding="utf-8")
    for part in board.split("## At scale `")[1:]:
        (sums,) = re.findall(r"^\| all \|(.*)\|$", part, re.MULTILINE)
        counts = [count.strip() for count in sums.split("|")][3:]
        assert f"| {part.partition('`')[0]} | {' | '.join(counts)} |" in README
