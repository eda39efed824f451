"""The published claims: rows that are whole, agree with the papers' tables, and mean one thing by a relation."""

from decimal import Decimal
from itertools import pairwise

import pytest

from ablations.claims import published_claims
from ablations.claims.published_claims import COLUMNS, claims, counted_as, with_parts
from ablations.literature.published_values import Published, files, read
from lightning_modules.config import ConfigError
from tests.every import every

ID = "mask15.r.40_gt_15_mnli"
ALL = with_parts()
# the model of each side answers another question, so the sides share no metric of the table
UNTABLED = ("albert.t5.nsp_easy",)
PRINTED = [row for file in files() for row in read(file)]
WITH_VALUES = [id for id, claim in ALL.items() if claim.values and id not in UNTABLED]


def tabled(claim: published_claims.PublishedClaim, side: str) -> list[Published]:
    """The values of a side in the tables of that number, those of earlier versions included."""
    number = claim.table.split()[0]
    return [
        row
        for row in PRINTED
        if (row.paper, row.variant, row.metric) == (claim.paper, side, claim.metric)
        and row.table.split()[0].split("-")[0] == number
    ]


@every("id", WITH_VALUES)
def test_every_value_of_a_claim_stands_in_the_papers_table(id):
    claim = ALL[id]
    for side, value in zip(claim.sides, claim.values, strict=True):
        printed = {Decimal(row.value.lstrip("~")) for row in tabled(claim, side)}
        assert Decimal(value.lstrip("~")) in printed, f"{claim.place}: {side}"


@every("id", WITH_VALUES)
def test_better_is_better_whichever_direction_of_the_metric_that_is(id):
    claim = ALL[id]
    (better,) = {row.better for side in claim.sides for row in tabled(claim, side)}
    values = list(claim.values_as_asked.values())
    if better == "lower":
        values = [-value for value in values]
    if claim.relation in (">", "<", "ordering", "trend"):
        assert all(a > b for a, b in pairwise(values)), claim.place
    elif claim.relation == "interaction":
        a, b, c, d = values
        assert a - b > c - d, claim.place


def test_effects_are_differences_of_the_values():
    for claim in ALL.values():
        if len(claim.values) == 2 and claim.relation in ("<", ">"):
            a, b = (Decimal(value.lstrip("~")) for value in claim.values)
            assert Decimal(claim.effect.lstrip("~")) == a - b, claim.place


def test_the_published_claims_are_whole():
    """227 claims of the papers, and those that grids add from tables of the same papers; parts count with theirs."""
    added = [claim for claim in claims().values() if claim.note.startswith("added")]
    assert len(claims()) - len(added) == 227
    assert all(claim.statement.endswith(".") for claim in ALL.values())
    assert {counted_as(id) for id in ALL} == set(claims())
    assert counted_as("") == ""


def test_the_worse_side_first_is_asked_the_other_way_round():
    claim = ALL["albert.t4.allshared_hurts_e768"]
    assert (claim.relation, claim.values) == ("<", ("79.8", "82.3"))
    assert (claim.as_asked, claim.values_as_asked) == (">", {"a": 82.3, "b": 79.8})
    assert claim.published == "Avg: 79.8 against 82.3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relation": "better"}, "relation is 'better'. Allowed"),
        ({"statement": ""}, "'statement' is empty"),
        ({"id": ID}, f"there is already a claim '{ID}'"),
        ({"sides": "one; two; three"}, "'>' needs 2 sides, not 3"),
        ({"values": "84.5"}, "1 values for 2 sides"),
        ({"values": "84.5; more"}, "the value 'more' is not a number"),
        ({"part_of": ID + "x"}, f"part_of: there is no published claim '{ID}x' among 3. Did you mean '{ID}'?"),
        ({"part_of": "a.part"}, "part_of: 'a.part' is itself part of a claim"),
    ],
)
def test_bad_rows_are_named_with_their_line(tmp_path, change, message):
    good = {column: getattr(ALL[ID], column) for column in COLUMNS}
    good |= {"sides": "; ".join(good["sides"]), "values": "; ".join(good["values"])}
    rows = [good, good | {"id": "other.id"} | change, good | {"id": "a.part", "part_of": ID}]
    lines = [",".join(COLUMNS), *(",".join(f'"{row[column]}"' for column in COLUMNS) for row in rows)]
    (tmp_path / "some.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"some.csv:3") as found:
        published_claims.claims(tmp_path)
    assert message in str(found.value)
