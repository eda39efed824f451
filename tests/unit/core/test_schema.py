"""Grids are read strictly; runs are identified by what determines their numbers."""

import pytest

from ablations.planning import grids
from ablations.schema.kinds import KINDS
from ablations.schema.run import Run
from lightning_modules import NUMERICS
from lightning_modules.config import ConfigError, identity
from lightning_modules.systems import SYSTEMS
from tests import tiny

SYSTEM = SYSTEMS["roberta_base"]


def test_grids_are_found_by_name_and_by_path(tmp_path, monkeypatch):
    file = tiny.grid(tmp_path)
    assert "tiny" not in grids.available()
    monkeypatch.setattr(grids, "FOLDER", tmp_path)
    assert grids.available()["tiny"] == file
    assert grids.read("tiny") == grids.read(file)
    with pytest.raises(ConfigError, match=r"there is no grid 'tinny'\. Did you mean 'tiny'\?"):
        grids.read("tinny")
    with pytest.raises(ConfigError, match="there is no such file"):
        grids.read(tmp_path / "absent.yaml")


def test_a_grids_name_is_that_of_its_file(tmp_path):
    file = tiny.grid(tmp_path, extra="name: other\n")
    with pytest.raises(ConfigError, match=r"tiny\.yaml:\d+: name: .*file"):
        grids.read(file)
    bad = file.rename(tmp_path / "Not-A-Name.yaml")
    with pytest.raises(ConfigError, match=r"Not-A-Name\.yaml:1: .*lower-case letters"):
        grids.read(bad)


def test_combinations_that_do_not_go_together_are_named(tmp_path):
    file = tiny.grid(tmp_path)
    text = file.read_text().replace("  model.num_heads: 2\n", "").replace("  model.hidden_size: 16\n", "")
    file.write_text(text.replace("axes:\n", "axes:\n  model.hidden_size: [16, 24]\n  model.num_heads: [8, 16]\n"))
    with pytest.raises(ConfigError, match=r"hidden_size=24, num_heads=16.* do not go together: .*Exclude"):
        grids.read(file)
    rule = "exclude: [{when: {model.hidden_size: 24, model.num_heads: 16}, reason: no multiple}]\n"
    file.write_text(file.read_text() + rule)
    assert len(grids.read(file).exclude) == 1


def test_a_run_is_identified_by_what_determines_its_numbers():
    run = Run.pretraining(SYSTEM, 0, {"text": "aa"})
    assert run.id == identity(run.essence())[:16]
    assert run.numerics == {part: NUMERICS[part] for part in KINDS["pretrain"].numerics}
    assert Run.read(run.to_dict()).id == run.id
    same = [SYSTEM.but(name="another name"), SYSTEM.but(paper="another source"), SYSTEM.but(**{"model.ffn_size": 3072})]
    assert {Run.pretraining(system, 0, {"text": "aa"}).id for system in same} == {run.id}
    different = [
        Run.pretraining(SYSTEM, 1, {"text": "aa"}),
        Run.pretraining(SYSTEM, 0, {"text": "ab"}),
        Run.pretraining(SYSTEM.but(**{"model.dropout": 0.2}), 0, {"text": "aa"}),
        Run.pretraining(SYSTEM.but(**{"training.precision": "fp32"}), 0, {"text": "aa"}),
        run.but(numerics={**run.numerics, "data": 99}),
        run.but(parents=["0" * 16]),
    ]
    assert len({run.id, *(other.id for other in different)}) == 7
