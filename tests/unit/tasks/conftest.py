"""An encoder of letters, and a folder for the files of data sets."""

import pytest

from tests.toy_shapes import letters


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return letters(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_DATA", str(tmp_path))
    return tmp_path
