"""Claims are registered by commit before the first record of their grid, or marked post hoc."""

import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from ablations.claims import audit
from tests.unit.synthetic import RATE, make_cell, make_claim, make_grid, make_record

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(n):
    return START + timedelta(days=n)


class Repository:
    def __init__(self, folder):
        self.folder, self.file = folder, folder / "masking.yaml"
        self.git("init", "-q")

    def git(self, *arguments, when=START):
        dates = {"GIT_AUTHOR_DATE": when.isoformat(), "GIT_COMMITTER_DATE": when.isoformat()}
        names = {f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, env=os.environ | dates | names)

    def commit(self, text, when):
        self.file.write_text(text)
        self.git("add", ".", when=when)
        self.git("commit", "-qm", "a step", when=when)


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path)
    made.commit("claims:\n  - claim: paper.first\n", day(0))
    made.commit("claims:\n  - claim: paper.first\n  - id: own.later\n    statement: s\n", day(5))
    return made


def standing(file, ran, **changes):
    claims = [make_claim(id="paper.first"), make_claim(id="own.later", **changes), make_claim(id="own.uncommitted")]
    found = audit.registrations("masking", "laptop", claims, audit.stated(file), lambda claim: ran)
    return [one.standing for one in found]


def test_a_claim_that_was_committed_before_the_first_run_is_registered(repository):
    assert standing(repository.file, day(3)) == [audit.REGISTERED, audit.UNMARKED, audit.UNMARKED]
    assert standing(repository.file, day(6))[:2] == [audit.REGISTERED, audit.REGISTERED]


def test_a_later_claim_says_that_it_is_post_hoc(repository):
    assert standing(repository.file, day(3), post_hoc=True)[1] == audit.POST_HOC


def test_a_grid_that_never_ran_has_nothing_to_audit(repository):
    assert set(standing(repository.file, None)) == {audit.NOT_RUN}


def test_the_first_commit_counts_across_a_rename_and_a_removal(repository):
    repository.git("mv", "masking.yaml", "hiding.yaml")
    repository.git("commit", "-qm", "another name", when=day(7))
    assert audit.stated(repository.folder / "hiding.yaml")["paper.first"] == day(0)
    repository.file = repository.folder / "hiding.yaml"
    repository.commit("claims:\n  - id: own.later\n", day(8))
    repository.commit("claims:\n  - id: own.later\n  - claim: paper.first\n", day(9))
    assert audit.stated(repository.file)["paper.first"] == day(0)


def test_without_git_nothing_is_known(tmp_path):
    (tmp_path / "masking.yaml").write_text("claims:\n  - claim: paper.first\n")
    assert audit.stated(tmp_path / "masking.yaml") is None
    assert standing(tmp_path / "masking.yaml", day(3)) == [audit.UNKNOWN] * 3


def test_of_a_task_it_is_the_first_fine_tuning_and_not_an_older_pretraining():
    cell = make_cell({RATE: 0.4}, seeds=1, task="rte")
    begun = {cell.runs[0].id: day(1), cell.finetunings[0].id: day(4)}
    runs = {run.id: run for run in (*cell.runs, *cell.finetunings)}
    records = {id: make_record(runs[id], 4.0, provenance={"started": when.isoformat()}) for id, when in begun.items()}
    assert audit.first_run([cell], records, "rte.accuracy") == day(4)
    assert audit.first_run([cell], records, "heldout.loss") == day(1)
    del records[cell.finetunings[0].id]
    assert audit.first_run([cell], records, "rte.accuracy") is None


def test_a_comparison_is_seen_once_a_second_side_has_run():
    rates = (0.15, 0.4, 0.8)
    cells = [make_cell({RATE: rate}, seeds=1) for rate in rates]
    grid = make_grid(axes={RATE: list(rates)}, baseline={RATE: 0.15})
    sides = [{RATE: rate} for rate in rates]
    pair, alone = make_claim(a=sides[0], b=sides[1]), make_claim(a=sides[0], b={}, against="heldout.bigram_loss")
    order = make_claim(a={}, b={}, sides=sides, relation="ordering")

    def seen(claim, *days):
        begun = [(cell.runs[0], day(n).isoformat()) for cell, n in zip(cells, days, strict=False)]
        kept = {run.id: make_record(run, 4.0, provenance={"started": when}) for run, when in begun}
        return audit.first_seen(claim, grid, cells, kept)

    assert [seen(claim, 2) for claim in (pair, order, alone)] == [None, None, day(2)]
    assert [seen(claim, 2, 6, 4) for claim in (pair, order, alone)] == [day(6), day(4), day(2)]


TIMES = {  # texts in records -> the earliest time
    ("2026-01-04T00:00:00", "2026-01-05T00:00:00+00:00"): day(3),
    ("2026-01-05T00:00:00+00:00", "2026-01-04T01:00:00+01:00", "2026-01-06"): day(3),
    ("2026-01-06", "yesterday", "", None, 7, "99999-01-01"): day(5),
    ("no time",): None,
}


@pytest.mark.parametrize(("texts", "first"), TIMES.items())
def test_a_time_without_a_zone_is_of_utc_and_a_text_that_is_no_time_says_nothing(repository, texts, first):
    cells = [make_cell({RATE: n / 10}, seeds=1) for n in range(1, len(texts) + 1)]
    runs = [run for cell in cells for run in cell.work]
    kept = {run.id: make_record(run, 4.0, provenance={"started": text}) for run, text in zip(runs, texts, strict=True)}
    found = audit.first_run(cells, kept, "heldout.loss")
    assert found == first
    assert len(standing(repository.file, found)) == 3
