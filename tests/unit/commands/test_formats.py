"""Listings and answers in the formats of programs and documents."""

import csv
import io
import json

from typer.testing import CliRunner

from ablations.commands.cli import app


def printed(*words):
    ended = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_listing_has_the_same_rows_in_every_format():
    rows = json.loads(printed("systems", "--format", "json"))
    assert list(csv.DictReader(io.StringIO(printed("systems", "--format", "csv")))) == rows
    lines = printed("systems", "--format", "markdown").splitlines()
    assert len(lines) == len(rows) + 2
    assert lines[0] == f"| {' | '.join(rows[0])} |"
    assert printed("systems", "--format", "names").split() == [row["system"] for row in rows]


def test_what_is_no_list_is_names_and_values(tmp_path):
    (tmp_path / "results" / "records").mkdir(parents=True)
    told = json.loads(printed("verify", "--results-dir", str(tmp_path / "results"), "--format", "json"))
    rows = csv.DictReader(io.StringIO(printed("verify", "--results-dir", str(tmp_path / "results"), "--format", "csv")))
    assert {row["name"] for row in rows} == told.keys()


def test_an_unknown_format_names_the_nearest_and_what_is_allowed():
    ended = CliRunner().invoke(app, ["published", "albert.t4", "--format", "markdwn"])
    assert ended.exit_code == 2
    assert "markdown" in ended.output
    assert "tex" in ended.output
