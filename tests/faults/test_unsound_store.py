"""Files of a store that are cut, flipped, emptied, deleted or swapped: named by `verify`, or without effect."""

import json
import random
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core import provenance
from ablations.core.store import Records, RecordWarning
from ablations.pages import parameters_page
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.schema.record import checksum
from ablations.schema.run import Run
from lightning_modules import cached
from lightning_modules.data.store import tokenizer_place
from tests import tiny
from tests.depth import cases, some

LIST = "heldout.sha256"
KINDS = {
    "records": "records/*/*.json",
    "losses": "records/*/*.heldout",
    "their digests": "records/*.sha256",
    "packages": "environments/*.json",
    "weights": "weights/*/weights.safetensors",
    "tokenizers": "weights/*/tokenizer.json",
    "digests of weights": "weights/*/*.sha256",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of four pretrainings, all weights kept. Two records are of before: a list has the digests of losses."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        grid, records = grids.read(tiny.grid(folder, steps=4)), Records(folder / "results")
        for seeds in (1, 2):
            patch.setattr(provenance, "packages", lambda seeds=seeds: (f"package=={seeds}",))
            execute(plan(grid, "smoke", records=records, seeds=seeds), records, "inline", retries=0)
        ids = [path.stem for path in records.files()]
        assert command(records, "keep", *ids).exit_code == 0
        shutil.rmtree(folder / "cache" / "runs")
        digests = [of_before(records, run) for run in ids[:2]]
        (records.folder / "records" / LIST).write_text("".join(digests))
        assert records.verify() == []
        assert len([*records.folder.glob("environments/*.json")]) == 2
        yield records


def of_before(records, run):
    """Takes the digest of the losses out of a record; returns its line in the list of a store."""
    path = records.path(run)
    data = json.loads(path.read_text())
    digest = data["provenance"].pop("heldout")
    path.write_text(json.dumps(data | {"checksum": checksum(data)}))
    return f"{digest}  {run[:2]}/{run}.heldout\n"


def command(records, *words):
    return CliRunner().invoke(app, [*words, "--results-dir", str(records.folder)])


@pytest.fixture
def copied(made, tmp_path, monkeypatch):
    """Makes a copy of the store."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    numbers = iter(range(1000))
    return lambda: Records(shutil.copytree(made.folder, tmp_path / str(next(numbers)) / "results"))


def read(records):
    """What the store gives of each run: record, losses by sequence, weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        given = {}
        for path in sorted((records.folder / "weights").iterdir()):
            run, kept = path.name, records.weights(path.name)
            given[run] = (records.get(run), records.sums(run), kept and kept.read_bytes())
            given[run] += (records.snapshot().sums(run),)
        return given


def damaged(paths: list[Path], draws: random.Random):
    """Damages to files of a kind, by name: each damages one of them, or swaps two."""
    path = draws.choice(paths)
    size = path.stat().st_size

    def flip(place):
        content = bytearray(path.read_bytes())
        content[place] ^= 1 << draws.randrange(8)
        path.write_bytes(content)

    def swap():
        one, other = draws.sample(paths, 2)
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)

    yield "cut", lambda: path.write_bytes(path.read_bytes()[: draws.randrange(size)])
    yield "empty", lambda: path.write_bytes(b"")
    yield "deleted", path.unlink
    yield "longer", lambda: path.write_bytes(path.read_bytes() + b"x")
    for _ in range(4):
        yield "flipped", lambda: flip(draws.randrange(size))
    if len(paths) > 1:
        yield "swapped", swap


# what a damage of these kinds changes without a word: nothing that is read, and a missing record is run again
HARMLESS = {
    "records": {"deleted"},
    "digests of weights": {"cut", "longer", "flipped"},
    "tokenizers": {"swapped"},  # equal files
}


@pytest.mark.parametrize("kind", some(KINDS, 4))
@pytest.mark.parametrize("seed", cases(1, 20))
def test_no_damage_gives_another_number_in_silence(made, copied, kind, seed):
    draws, expected = random.Random(f"{kind} {seed}"), read(made)
    for number in range(9):
        records = copied()
        paths = sorted(records.folder.glob(KINDS[kind]))
        damages = [*damaged(paths, draws)]
        if number == len(damages):
            break
        name, damage = damages[number]
        damage()
        found, given = records.verify(), read(records)
        for run, parts in given.items():
            assert all(part in (None, right) for part, right in zip(parts, expected[run], strict=True)), (name, found)
        if not found:
            assert name in HARMLESS.get(kind, ()), name
            assert given == expected or kind == "records", name


def test_losses_without_a_digest_are_compared_with_the_record(copied):
    records = copied()
    (records.folder / "records" / LIST).unlink()
    path = records.files()[0]
    data = json.loads(path.read_text())
    data["metrics"]["heldout.loss"] += 0.1
    path.write_text(json.dumps(data | {"checksum": checksum(data)}))
    assert f"{path.parent.name}/{path.stem}.heldout" in named(records)


def named(records):
    """The paths that `verify` names, below the folder of records."""
    return [damage.path.removeprefix("records/") for damage in records.verify()]


@pytest.mark.parametrize("lines", [0, 1, None], ids=["empty", "cut at the end of a line", "deleted"])
def test_a_lost_list_of_digests_is_missed_and_can_be_written(copied, lines):
    records = copied()
    path = records.folder / "records" / LIST
    whole = path.read_text()
    path.unlink() if lines is None else path.write_text("".join(whole.splitlines(keepends=True)[:lines]))
    (damage,) = records.verify()
    assert (damage.path, damage.flaw) == (f"records/{LIST}", "missing")
    assert re.findall(r"\d+", damage.message)[0] == str(2 - (lines or 0))
    answer = command(records, "verify")
    assert answer.exit_code == 1
    assert "4 of 4 records are sound" in answer.output
    advice = damage.message.rpartition(": ")[2]
    subprocess.run(advice, shell=True, cwd=path.parent, check=True)
    assert records.verify() == []
    assert set(whole.splitlines()) <= set(path.read_text().splitlines())


@pytest.mark.parametrize("kept", [0, 1], ids=["all digests lost", "one digest lost"])
def test_losses_that_are_lost_with_their_digest_are_missed(copied, kept):
    records = copied()
    path = records.folder / "records" / LIST
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:] * kept))
    lost = lines[0].split()[1]
    (records.folder / "records" / lost).unlink()
    assert named(records) == [LIST] * (1 - kept) + [lost]


def test_a_store_without_losses_by_sequence_is_sound(copied):
    """As versions that did not keep them left it."""
    records = copied()
    for path in records.files():
        if "heldout" in json.loads(path.read_text())["provenance"]:
            of_before(records, path.stem)
        path.with_suffix(".heldout").unlink()
    (records.folder / "records" / LIST).unlink()
    assert records.verify() == []


def test_a_run_with_more_sequences_than_are_kept_one_by_one_is_sound(copied):
    records = copied()
    path = records.files()[0]
    data = json.loads(path.read_text())
    data["config"]["system"]["evaluation"]["final_sequences"] = 1 << 17
    data["id"] = Run.read(data["config"]).id
    shutil.rmtree(records.folder / "weights" / path.stem)
    for old in (path, path.with_suffix(".heldout")):
        old.unlink()
    of_many = records.path(data["id"])
    of_many.parent.mkdir(exist_ok=True)
    of_many.write_text(json.dumps(data | {"checksum": checksum(data)}))
    assert records.verify() == []


def test_lists_of_packages_are_written_again_when_a_run_needs_them(copied, monkeypatch):
    monkeypatch.setattr(provenance, "packages", lambda: ("package==1",))
    records = copied()
    name = provenance.environment(records.folder)
    path = records.folder / "environments" / f"{name}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert [damage.path for damage in records.verify()] == [f"environments/{name}.json"]
    assert provenance.environment(records.folder) == name
    assert path.read_bytes() == whole
    path.unlink()
    assert [damage.flaw for damage in records.verify()] == ["missing"]


def test_tables_of_published_configurations_are_named_and_written_again(tmp_path):
    records = Records(tmp_path)
    (tmp_path / "records").mkdir()
    paths = [path for path in parameters_page.publish(tmp_path) if path.suffix != ".svg"]
    assert command(records, "verify").exit_code == 0
    whole, draws = [path.read_bytes() for path in paths], random.Random(0)
    for path in paths:
        _, damage = draws.choice([*damaged([path], draws)])
        damage()
    answer = command(records, "verify", "--format", "json")
    assert answer.exit_code == 1
    assert json.loads(answer.stdout)["paths"] == [path.relative_to(tmp_path).as_posix() for path in paths]
    parameters_page.publish(tmp_path)
    assert [path.read_bytes() for path in paths] == whole


def of_another_model(path):
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    from safetensors.numpy import save

    name = next(name for name, tensor in tensors.items() if tensor.ndim == 2)
    return save(tensors | {name: tensors[name][:1]})


def with_aliases(text):
    def content(path):
        from safetensors.torch import load, save

        return save(load(path.read_bytes()), {"aliases": text})

    return content


def of_no_number(path):
    from safetensors.torch import load, save

    tensors = load(path.read_bytes())
    tensors["backbone.embeddings.word.weight"][0, 0] = float("nan")
    return save(tensors)


WEIGHTS = {
    "a value that is no number": of_no_number,
    "garbage": lambda path: b"\0" * 100,
    "no bytes": lambda path: b"",
    "other shapes": of_another_model,
    "further names that are none": with_aliases("5"),
    "further names of nothing": with_aliases('{"backbone.x": "nosuch"}'),
    "a deep nest": with_aliases("[" * 100_000),
}


@pytest.mark.parametrize("content", WEIGHTS)
def test_weights_that_do_not_fit_are_an_error_in_words(copied, content):
    records = copied()
    run = records.files()[0].stem
    path = records.folder / "weights" / run / "weights.safetensors"
    raw = WEIGHTS[content](path)
    cached.write(path, lambda file: file.write(raw), path.parents[1])
    assert records.weights(run) == path
    assert [damage.path for damage in records.verify()] == [f"weights/{run}/weights.safetensors"]
    answer = command(records, "ask", run, "the [MASK] sees")
    assert answer.exit_code == 2, answer.output
    assert isinstance(answer.exception, SystemExit)
    assert "weights.safetensors" in answer.output
    assert ("backbone.embeddings.word.weight" in answer.output) == (content == "a value that is no number")


def test_a_tokenizer_that_is_none_is_named_and_does_not_reach_the_cache(copied):
    records = copied()
    run = records.files()[0].stem
    path = records.folder / "weights" / run / "tokenizer.json"
    cached.write(path, lambda file: file.write(b"{}"), path.parents[1])
    assert [damage.path for damage in records.verify()] == [f"weights/{run}/tokenizer.json"]
    place = tokenizer_place(records.get(run).run().system.data)
    cached.remove(place)
    answer = command(records, "ask", run, "the [MASK] sees")
    assert answer.exit_code == 2, answer.output
    assert isinstance(answer.exception, SystemExit)
    assert "tokenizer.json" in answer.output
    assert not place.exists()
