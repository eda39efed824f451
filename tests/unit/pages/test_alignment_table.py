"""What a page says of speed and quality, and the values by seed beside its verdicts."""

import csv
import re

import pytest

from ablations.claims import judging
from ablations.core.formatting import markdown
from ablations.pages import alignment_table, equal_compute, report, seed_values
from tests.messages import names
from tests.unit.claims.test_alignment import BAR, bent, changed, course, only, study
from tests.unit.synthetic import RATE, make_claim, make_plan

CLAIMS = [
    make_claim(published={}),
    make_claim(id="again", published={}, a={RATE: 0.15}, b={RATE: 0.4}),  # the same cells, the other way round
    make_claim(id="never", published={}, a={RATE: 0.4}, b={RATE: 0.8}),
]
CURVES = {0.15: bent(6e6) + 0.2, 0.4: bent(6e6), 0.8: bent(30e6)}


@pytest.fixture(scope="module")
def measured():
    return study(CURVES, CLAIMS)


@pytest.fixture(scope="module")
def verdicts(measured):
    return judging.verdicts(measured)


def rows(sheet):
    return [dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows]


def test_each_contrast_has_one_row_with_three_alignments(verdicts):
    reading, everything, trace = alignment_table.sheets(verdicts)
    first, never = rows(reading)
    assert first["contrast"] == "masking rate 40 % against 15 %"
    assert first["at equal tokens"].startswith("+0.2")
    assert first["at equal FLOPs"].startswith("+0.2")
    assert (first["it is"], never["it is"]) == ("quality", "not aligned")
    assert never["at equal multiples of the crossing"] == never["multiple"] == ""
    numbers = rows(everything)[0]
    assert numbers["multiples low"] < numbers["multiples"] < numbers["multiples high"] < numbers["tokens"]
    assert numbers["offset"] == pytest.approx(numbers["multiples"], abs=0.01)
    assert [claim["claim"] for claim in trace["claims"]] == ["mask15.40_gt_15", "again", "never"]
    assert names(markdown(reading), "4 of 4 runs of masking rate 80 % never pass the bigram baseline")
    slope = 0.75 / 0.4 * (2**0.4 - 1) * 4**-0.4  # of the last doubling, which ends at four times the crossing
    assert first["final slope"] == f"{slope:.2f} and {slope:.2f}"


def test_the_answer_names_the_largest_settled_difference_that_is_aligned(verdicts, measured):
    said = alignment_table.in_short(verdicts)
    found = verdicts[0].aligned.contrasts[0].multiples
    assert names(said, "0.200", "masking rate 40 % against 15 %", f"{found.mean:.4f}", "1 not aligned")
    assert re.search(r"crossing \(6 M and [\d.]+ M tokens\): quality", said)
    alone = only(study({0.15: bent(30e6), 0.4: bent(6e6)}))
    assert alignment_table.in_short([alone]) == ""
    assert alignment_table.sheets([]) is None


def test_the_page_has_the_picture_the_table_and_the_sentence(measured, tmp_path):
    plan = make_plan(measured.grid, measured.cells)
    report.publish(plan, measured, tmp_path)
    section = (tmp_path / "details.md").read_text().partition(f"## {alignment_table.TITLE}")[2].partition("\n## ")[0]
    assert "](alignment.svg)" in section
    assert section.startswith("\n\nOf the ")
    assert "| masking rate 40 % against 15 % |" in (tmp_path / "alignment.md").read_text()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    report.publish(plan, measured, tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    bare = measured
    for rate in CURVES:
        bare = changed(bare, rate, lambda record, run: record.but(curve={}))
    report.publish(plan, bare, tmp_path)
    assert alignment_table.TITLE not in (tmp_path / "details.md").read_text()
    assert not list(tmp_path.glob("alignment.*"))


def test_cells_have_their_crossing_and_final_slope_at_equal_compute(measured):
    reading, everything, _ = equal_compute.sheets(measured)
    by_rate = {row["masking rate"]: row for row in rows(reading)}
    assert by_rate["40 %"]["crossing (tokens)"] == "6 M [5 M, 7 M]"
    assert by_rate["80 %"]["crossing (tokens)"] == "none by 24 M"
    assert {row["cell"]: row["crossed"] for row in rows(everything)} == {"rate=0.15": 4, "rate=0.4": 4, "rate=0.8": 0}
    late = changed(measured, 0.4, lambda record, run: course(run, bent(30e6)) if run.seed == 1 else record)
    by_rate = {row["masking rate"]: row for row in rows(equal_compute.sheets(late)[0])}
    assert by_rate["40 %"]["crossing (tokens)"] == "1 of 4 none by 24 M"
    early = changed(measured, 0.4, lambda record, run: course(run, bent(6e6) - BAR + 0.1))
    by_rate = {row["masking rate"]: row for row in rows(equal_compute.sheets(early)[0])}
    assert by_rate["40 %"]["crossing (tokens)"] == "before 1 M"


def test_values_by_seed_are_those_of_the_cells_that_claims_compare(measured, verdicts, tmp_path):
    reading, everything, trace = seed_values.sheets(measured, verdicts[:1])
    assert [row["cell"] for row in rows(reading)] == ["masking rate 15 %", "masking rate 40 %"]
    first = rows(everything)[0]
    values = measured.values(measured.cells[0], "heldout.loss")
    assert [first[f"seed {seed}"] for seed in range(4)] == list(values.values())
    assert rows(reading)[0]["seed 2"] == f"{values[2]:.3f}"
    runs = trace["values"][0]["runs"]
    assert runs == {str(run.seed): run.id for run in measured.cells[0].runs}
    assert seed_values.sheets(measured, []) is None
    report.publish(make_plan(measured.grid, measured.cells), measured, tmp_path)
    with (tmp_path / "seeds.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3
