"""Where things lie, in a checkout and in an installed package."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from ablations.core import notebooks
from ablations.core.store import Records
from ablations.planning import grids, scales
from lightning_modules import places
from lightning_modules.config import ConfigError
from tests.messages import naming


@pytest.fixture
def placed(tmp_path, monkeypatch):
    """The module as it is in ``tmp_path/root``, beside a given pyproject.toml, seen from ``tmp_path/work``."""

    def load(described: str | None):
        package = tmp_path / "root" / "lightning_modules"
        package.mkdir(parents=True)
        shutil.copy(places.__file__, package)
        if described is not None:
            (tmp_path / "root" / "pyproject.toml").write_text(described)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.delenv("ABLATIONS_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        spec = importlib.util.spec_from_file_location("placed", package / "places.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_a_checkout_holds_everything(placed, tmp_path):
    module = placed('[project]\nname = "ablations"\n')
    assert module.project() == tmp_path / "root"
    assert module.cache() == tmp_path / "root" / ".cache"
    assert module.own("grids") == []


@pytest.mark.parametrize("described", [None, '[project]\nname = "another"\n', "not = [toml", "[tool.black]\n"])
def test_an_installed_package_holds_nothing_of_the_users(placed, tmp_path, described):
    """Whatever another package left in site-packages."""
    module = placed(described)
    assert module.project() == tmp_path / "work"
    assert module.own("grids") == [tmp_path / "work" / "grids"]
    assert module.cache().is_relative_to(tmp_path / "user")
    assert module.cache().name == "ablations"


def test_the_named_cache_wins_everywhere(placed, tmp_path, monkeypatch):
    module = placed(None)
    monkeypatch.setenv("ABLATIONS_CACHE", "here")
    assert module.cache() == tmp_path / "work" / "here"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """The library as an installed one sees it, in the working directory ``tmp_path``."""
    monkeypatch.setattr(places, "checkout", lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _put(source: Path, folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(source, folder / name))


def test_own_grids_and_scales_stand_beside_those_of_the_project(installed):
    shipped = set(grids.available())
    grid = _put(grids.locate("masking_ratio"), installed / "grids", "mine.yaml")
    scale = _put(scales.available()["gpu"], installed / "scales", "big.yaml")
    assert grids.available()["mine"] == grid
    assert set(grids.available()) == shipped | {"mine"}
    assert scales.available()["big"] == scale
    assert scales.read("big").description == scales.read("gpu").description
    assert grids.home() == installed / "grids"


def test_an_own_grid_may_not_take_the_name_of_another(installed):
    _put(grids.locate("masking_ratio"), installed / "grids", "masking_ratio.yaml")
    with pytest.raises(ConfigError, match="two grids are called 'masking_ratio'"):
        grids.available()
    _put(scales.available()["gpu"], installed / "scales", "gpu.yaml")
    with pytest.raises(ConfigError, match="two scales are called 'gpu'"):
        scales.available()


def test_an_own_notebook_comes_first_and_one_may_be_given_by_path(installed):
    shipped = notebooks.find("masking_ratio")
    own = _put(shipped, installed / "notebooks", "masking_ratio.ipynb")
    assert notebooks.find("masking_ratio") == own
    assert notebooks.find("masking_ratio", str(shipped)) == shipped
    with pytest.raises(ConfigError, match="no such file"):
        notebooks.find("masking_ratio", "nowhere.ipynb")


@pytest.mark.parametrize("variable", ["ABLATIONS_CACHE", "ABLATIONS_DATA"])
def test_a_name_that_is_no_text_is_refused_by_its_variable(monkeypatch, tmp_path, variable):
    monkeypatch.setenv(variable, os.fsdecode(os.fsencode(tmp_path) + b"/a clone\xff"))
    with pytest.raises(ConfigError, match=naming(variable, "UTF-8", r"a clone\xff")):
        {"ABLATIONS_CACHE": places.cache, "ABLATIONS_DATA": places.data_home}[variable]()


@pytest.mark.parametrize("name", [b"a clone\xff", b"~nobody there\xff/results"])
def test_results_are_refused_by_their_option(name):
    with pytest.raises(ConfigError, match=naming("--results-dir", "UTF-8")):
        Records(os.fsdecode(name))


def test_a_home_of_nobody_is_a_name_like_others():
    assert Records("~nobody there/results").folder.name == "results"
