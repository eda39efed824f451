import pytest

from ablations.literature.published_values import COLUMNS, joined, printed_difference, read
from lightning_modules.config import ConfigError

HEADER = ",".join([*COLUMNS[:4], "rate", *COLUMNS[4:]])
ROW = "Mask15,2202.08005,T1,m=0.15,0.15,MNLI,84.20,%,dev,higher,paper,copy,"


def write(folder, *rows, header=HEADER):
    (folder / "some.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_values_stay_as_printed(tmp_path):
    (row,) = read("some", folder=write(tmp_path, ROW))
    assert (row.value, row.number, row.line) == ("84.20", 84.2, 2)
    (row,) = read("some", folder=write(tmp_path, ROW.replace("84.20", "~1.0")))
    assert (row.value, row.number) == ("~1.0", 1.0)


def test_a_missing_column_file_or_table_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"some.csv:1: the columns unit are missing"):
        read("some", folder=write(tmp_path, header=HEADER.replace(",unit", "")))
    with pytest.raises(ConfigError, match=r"Did you mean 'mask15.csv'"):
        read("mask16")
    with pytest.raises(ConfigError, match=r"Did you mean 'README mask-rate'"):
        read("mask15", "README maskrate")
    with pytest.raises(ConfigError, match="no such file"):
        read("../grids/masking_ratio")


def test_cells_are_joined_by_value(tmp_path):
    rows = read("some", folder=write(tmp_path, ROW, ROW.replace("0.15,MNLI", "0.30,MNLI").replace("84.20", "84.5")))
    match = {"rate": "masking.rate"}
    assert joined(rows, match, {"masking.rate": 0.1 + 0.2})["MNLI"].value == "84.5"
    assert joined(rows, match, {"masking.rate": 0.2}) == {}
    assert joined(rows, match, {}) == {}
    with pytest.raises(ConfigError, match=r"lines 2 and 3 both give MNLI"):
        joined(rows, {}, {"masking.rate": 0.15})
    with pytest.raises(ConfigError, match=r"Did you mean 'rate'"):
        joined(rows, {"rte": "masking.rate"}, {})


def test_differences_keep_the_printed_digits():
    assert printed_difference(84.5, 84.2) == "+0.3"
    assert printed_difference("80.80", "84.2") == "-3.40"
