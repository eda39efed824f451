"""Files among the records that are no records: named and set aside by every command, and the rest goes on."""

import json
import os
import re
import shutil
import warnings

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records, RecordWarning
from ablations.planning import grids
from ablations.schema.record import checksum
from tests import finished
from tests.unit.core.test_store import make_record


def inserted(text):
    """Text before the first metric."""
    return lambda path: path.write_text(path.read_text().replace('"metrics": {', '"metrics": {' + text, 1))


def changed(**values):
    """Other values with a right checksum: what another version or a program of the user's may have written."""

    def change(path):
        data = json.loads(path.read_text()) | values
        path.write_text(json.dumps(data | {"checksum": checksum(data)}))

    return change


def instead(make):
    def change(path):
        path.unlink()
        make(path)

    return change


def nested(depth):
    return {"within": nested(depth - 1)} if depth else {}


FLAWS = {
    "NaN": (inserted('"x": NaN, '), "malformed"),
    "Infinity": (inserted('"x": -Infinity, '), "malformed"),
    "a number beyond all floats": (inserted('"x": 1e999, '), "malformed"),
    "a number of 5,000 digits": (inserted(f'"x": {"9" * 5000}, '), "truncated"),
    "half a surrogate pair": (inserted(r'"\ud800": 1.0, '), "malformed"),
    "a deep nest": (lambda path: path.write_text("[" * 100_000 + "]" * 100_000), "malformed"),
    "a nest with a right checksum": (changed(provenance=nested(200)), "malformed"),
    "numbers too large to compute with": (changed(metrics={"heldout.loss": 1e308}), "malformed"),
    "a cost too large to compute with": (changed(cost={"seconds": 1e308, "flops": 1e308}), "malformed"),
    "the kind of other runs": (changed(kind="measure"), "malformed"),
    "a folder": (instead(lambda path: path.mkdir()), "unreadable"),
    "a link to itself": (instead(lambda path: path.symlink_to(path.name)), "unreadable"),
    "a link to nothing": (instead(lambda path: path.symlink_to("gone")), "unreadable"),
    "a pipe": (instead(os.mkfifo), "unreadable"),
    "binary": (lambda path: path.write_bytes(bytes(range(256))), "truncated"),
    "a huge file": (lambda path: path.write_bytes(b" " * 2_000_000), "malformed"),
    "the record of another run": (lambda path: path.write_text(path.with_name("other").read_text()), "misplaced"),
}
SOUND = {  # a right checksum, and less than other records have, or other things
    "no cost": changed(cost={}),
    "no seconds": changed(cost={"flops": 1e9}),
    "a cost of nothing": changed(cost={"seconds": 0.0, "flops": 0.0}),
    "no metrics": changed(metrics={}),
    "metrics of another version": changed(metrics={"": 1.0, "a\nb": 2.0, "heldout.loss": 1e100}),
    "no curve": changed(curve={}),
    "a curve of other amounts": changed(curve={name: [1e100, -1e100] for name in ("step", "tokens", "heldout.loss")}),
    "odd provenance": changed(provenance={"attempts": "many", "device": ["cpu"], "commit": 3}),
}
DRIFTED = {  # the checksum is right, the configuration is none
    "generations that are no mapping": {"numerics": [1]},
    "no fingerprints": {"fingerprints": {}},
    "a seed that is no number": {"seed": "one"},
    "an unknown task": {"task": "nosuch", "kind": "finetune"},
}


@pytest.fixture
def spoilt(tmp_path, monkeypatch):
    """The records of a page and some others, most of them damaged; file -> its flaw; how many there are."""
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda *_: {"masking_ratio": known["masking_ratio"]})
    records, flaws = finished.records(tmp_path, "masking_ratio"), {}
    of_page = sorted(path.stem for path in records.files())
    others = [f"{number:016x}" for number in range(len(DRIFTED))]
    for run_id in others:
        path = records.path(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(records.path(of_page[0]), path)
        changed(id=run_id)(path)
    for run_id, damage in zip(of_page, (*FLAWS.values(), *SOUND.values()), strict=False):
        path = records.path(run_id)
        shutil.copy(records.path(of_page[-1]), path.with_name("other"))
        if isinstance(damage, tuple):
            damage, flaws[path.name] = damage
        damage(path)
    for run_id, values in zip(others, DRIFTED.values(), strict=True):
        path = records.path(run_id)
        config = json.loads(path.read_text())["config"] | values
        changed(config=config, kind=config["kind"])(path)
        flaws[path.name] = "drifted"
    return records, flaws, len(of_page) + len(others)


def test_each_is_named_with_its_flaw_and_what_to_do(spoilt):
    records, flaws, total = spoilt
    found = {damage.path.rpartition("/")[2]: damage for damage in records.verify()}
    assert {name: damage.flaw for name, damage in found.items()} == flaws
    for damage in found.values():
        assert damage.flaw == "drifted" or re.search(
            r"[;.] (restore|rename|delete|move|remove|mend|update) ", damage.message, re.IGNORECASE
        )
    done = CliRunner().invoke(app, ["verify", "--results-dir", str(records.folder)])
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert f"{total - len(flaws)} of {total} records are sound" in done.output
    assert all(name in done.output for name in flaws)


def test_plans_and_tables_go_on_with_the_others_and_name_each(spoilt):
    records, flaws, total = spoilt
    unusable = {name for name, flaw in flaws.items() if flaw != "drifted"}
    for command in (["plan", "masking_ratio", "--scale", "laptop"], ["tables"]):
        with warnings.catch_warnings():
            warnings.simplefilter("default", RecordWarning)
            options = [*command, "--results-dir", str(records.folder)]
            done = CliRunner().invoke(app, options, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert {name for name in flaws if name in done.stderr} == unusable, command
        told = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
        assert len(told) == len(unusable), command
    page = (records.folder / "masking_ratio" / "laptop" / "README.md").read_text()
    planned = total - len(DRIFTED)
    assert f"{planned - len(unusable)} of {planned} runs" in page


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_run_is_made_again_in_its_place(tmp_path, flaw):
    records = Records(tmp_path)
    record = records.put(make_record())
    path = records.path(record.id)
    shutil.copy(path, path.with_name("other"))
    FLAWS[flaw][0](path)
    assert records.put(record) == record
    assert records.get(record.id) == record
