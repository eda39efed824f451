"""YAML: what is written is what is read."""

import pytest

from ablations.core import strict_yaml
from lightning_modules.config import ConfigError


@pytest.fixture
def load(tmp_path):
    def read(text):
        file = tmp_path / "grid.yaml"
        file.write_text(text, encoding="utf-8")
        return strict_yaml.load(file)

    return read


def problems(document):
    with pytest.raises(ConfigError) as raised:
        document.check()
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1e-5", 1e-5),
        ("-2.5E+3", -2500.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("7", 7),
        ("-0", 0),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("~", None),
        ("null", None),
        ("", None),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("2024-01-01", "2024-01-01"),
        (".nan", ".nan"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|\n  1\n", "1\n"),
    ],
)
def test_scalars_are_what_they_look_like(load, written, meant):
    document = load(f"key: {written}")
    document.check()
    value = document.data["key"]
    assert value == meant
    assert type(value) is type(meant)


def test_one_value_is_read_like_a_file():
    assert strict_yaml.value("[0.15, 4e-1, true, post]") == [0.15, 0.4, True, "post"]
    assert strict_yaml.value("") is None
    with pytest.raises(ConfigError, match="could be octal"):
        strict_yaml.value("012")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        strict_yaml.value("[1, 2")


def test_every_problem_is_said_with_its_line(load):
    document = load("a: 012\nb:\n  x: 1\n  y: 2\n  x: 3\nc: 1e999\n7: seven\nd: !mine x\n")
    assert problems(document) == [
        "grid.yaml:1: a: 012 could be octal. Drop the leading zero, or quote it.",
        "grid.yaml:5: b.x: is written twice (first on line 3)",
        "grid.yaml:6: c: 1e999 is too large a number",
        "grid.yaml:7: a key must be text. Put it in quotes.",
        "grid.yaml:8: d: the tag !mine is not allowed",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\t- 1\n", "grid.yaml:2: a tab is not allowed here. Indent with spaces."),
        ("a: [1, 2\nb: 3\n", "grid.yaml:2: expected ',' or ']', but got ':' (column 2)"),
        ("a: *missing", "grid.yaml:1: found undefined alias 'missing' (column 4)"),
        ("--- 1\n--- 2\n", "grid.yaml:2: but found another document (column 1)"),
        ("", "grid.yaml:1: is empty"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "python/object/apply:os.system is not allowed",
        ),
    ],
)
def test_broken_yaml_names_the_line(load, text, message):
    assert message in problems(load(text))[0]


def test_anchors_work_within_bounds(load):
    document = load("a: &rates [0.15, 0.4]\nb: *rates\n")
    document.check()
    assert document.data == {"a": [0.15, 0.4], "b": [0.15, 0.4]}


@pytest.mark.slow
def test_files_too_deep_or_too_large_are_refused(load):
    for opening, count in (("[", 3000), ("[", 500_000), ("- ", 300_000), ("? ", 300_000), ("{a: ", 200_000)):
        assert "nested too deeply" in problems(load("a: " * (opening == "[") + opening * count))[0]
    assert "t most 1,048,576 are allowed" in problems(load("a: " + "x" * (1 << 20)))[0]


def test_bytes_that_are_not_text_are_refused(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_bytes(b"a: \xff\xfe\x00")
    assert "is not valid YAML" in problems(strict_yaml.load(file))[0]
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        strict_yaml.load(tmp_path / "absent.yaml")
