"""A wheel in an environment of its own: it has all that its commands read, and writes nothing beside itself."""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from lightning_modules.places import project
from tests import own_study, tiny
from tests.conftest import of_all_workers
from tests.messages import names

RATE = "objectives.mlm.masking.rate"
NO_INDEX = ("--disable-pip-version-check", "--no-deps", "--no-index")


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel of this checkout, and a fresh environment with it; one for all workers.

    What the project depends on comes from the environment of the tests.
    """
    folder = of_all_workers(tmp_path_factory) / "installed"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            build(folder)
    return folder


def build(folder: Path) -> None:
    call = [sys.executable, "-m", "pip", "wheel", "--quiet", *NO_INDEX, "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*call, str(folder), str(project())], check=True, cwd=folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    (site,) = (folder / "env").glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    call = [sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python"), "install", "--quiet"]
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*call, *NO_INDEX, str(wheel)], check=True, cwd=folder)


class Installed:
    """The environment; every command starts in an empty folder, as a user whose home is empty too."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.bin = built / "env" / "bin"
        (self.site,) = (built / "env").glob("lib/*/site-packages")
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()

    def __call__(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
        """Runs a command of the environment."""
        left_out = ("PYTHONPATH", "ABLATIONS_CACHE", "XDG_CACHE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment |= {"HOME": str(self.home), "COLUMNS": "200"}
        command = [str(self.bin / str(words[0])), *map(str, words[1:])]
        return subprocess.run(
            command, cwd=cwd or self.work, env=environment, capture_output=True, text=True, check=False
        )

    def files(self) -> dict[str, str]:
        """Every file in site-packages with its digest."""
        return {
            str(path.relative_to(self.site)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.site.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def installed(built, tmp_path) -> Installed:
    return Installed(built, tmp_path)


def test_the_wheel_has_every_file_of_the_packages_and_the_notebooks(built):
    listed = ["git", "ls-files", "ablations", "lightning_modules", "notebooks"]
    tracked = subprocess.run(listed, cwd=project(), capture_output=True, text=True, check=True).stdout.split()
    names = {f"ablations/{name}" if name.startswith("notebooks/") else name for name in tracked}
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names - packed == set(), "missing in the wheel"
    assert {name.split("/")[0] for name in packed} == {"ablations", "lightning_modules"}


def test_an_editable_installation_is_a_path_alone(tmp_path):
    """Copies of files in site-packages would grow old beside the checkout."""
    code = "import sys, hatchling.build; hatchling.build.build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=project(), check=True, capture_output=True)
    (built,) = tmp_path.iterdir()
    with zipfile.ZipFile(built) as archive:
        assert [name for name in archive.namelist() if ".dist-info/" not in name] == ["_ablations.pth"]
        assert archive.read("_ablations.pth").decode().split() == [str(project())]


@pytest.mark.nightly
def test_an_installed_package_runs_in_an_empty_folder_and_stays_as_it_was(installed):
    before = installed.files()
    filters = ("--filter", f"{RATE}=0.15", "--seeds", 1)
    ran = installed("ablations", "run", "masking_ratio", "--scale", "smoke", *filters)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = installed.work / "results" / "unpublished"  # a trial
    records = [json.loads(path.read_text()) for path in results.glob("records/*/*.json")]
    assert [record["outcome"] for record in records] == ["done"]
    assert {record["provenance"]["commit"] for record in records} == {None}
    (page,) = results.glob("masking_ratio/*/README.md")
    notebook = json.loads((page.parent / "notebook.ipynb").read_text())
    assert any(cell.get("outputs") for cell in notebook["cells"]), "the notebook is part of the wheel and runs"
    assert {path.name for path in installed.work.iterdir()} == {"results"}
    stores = list(installed.home.rglob("ablations/stores"))
    assert len(stores) == 1, "the cache is in the user's cache folder"
    assert installed.files() == before


PLUGIN = """\
from lightning_modules.tasks.shapes.texts import Row, Texts
from lightning_modules.tasks.task import Task


def rows(split):
    return iter([Row(f"Day {n} of {split}.", None, ("dry", "wet")[n % 2]) for n in range(20)])


ROWS = (Task("weather", "Weather: is it wet?", "made here", Texts(("dry", "wet")), ("accuracy",), rows),)
"""


@pytest.mark.nightly
def test_a_study_of_ones_own_holds_all_that_it_makes(installed):
    """Its grids, data, plugins, records, pages, models and cache, all of them read back."""
    before = installed.files()
    study = installed.work / "my_study"
    assert installed("ablations", "init", "my_study").returncode == 0
    (study / "reviews.csv").write_text("n,review,stars\n" + "".join(f"{n},Film {n}.,{n % 2}\n" for n in range(200)))
    (study / "pairs.tsv").write_text("a\tb\tsame\n" + "".join(f"cat {n}\tdog {n}\t{n % 2}\n" for n in range(200)))
    asked = [
        {"id": str(n), "question": "Who came?", "answers": [{"text": "Bob", "answer_start": 0}]} for n in range(40)
    ]
    passages = [{"paragraphs": [{"context": f"Bob came. Day {n}.", "qas": [one]}]} for n, one in enumerate(asked)]
    (study / "passages.json").write_text(json.dumps({"data": passages}))
    (study / "my_tasks.py").write_text(PLUGIN)
    own_study.parts(study, "my_tasks")

    def done(*words, code=0):
        ended = installed(*words, cwd=study / "data")
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert words[0] != "ablations" or ended.stderr.startswith(f"study {study}")
        return ended.stdout + ended.stderr * (code > 0)

    done("ablations", "data", "add", "../reviews.csv", "--text", "review", "--label", "stars")
    done("ablations", "data", "add", "../pairs.tsv", "--text", "a", "--second", "b", "--label", "same")
    done("ablations", "data", "add", "../passages.json")
    text = tiny.text(study / "text")
    knobs = (f'data.corpora=["{text}"]', "data.tokenizer.vocab_size=300", "model.positions=learned", "model.norm=post")
    done(
        "ablations", "new", "depths", "--axis", "model.num_layers=1,2", *[w for knob in knobs for w in ("--set", knob)]
    )
    grid = study / "grids" / "depths.yaml"
    grid.write_text(grid.read_text().replace("# tasks: [rte]", "tasks: [reviews, weather, pairs, passages]"))
    smoke = ("--scale", "smoke", "--no-notebook")
    done("ablations", "run", "depths", *smoke, "--seeds", 1, "--executor", "inline")
    (page,) = study.glob("results/unpublished/depths/*/table.md")
    records = {record["id"]: record for record in map(_json, study.glob("results/unpublished/records/*/*.json"))}
    assert sorted(record["kind"] for record in records.values()) == [*["finetune"] * 8, *["pretrain"] * 2]
    table = page.read_bytes()
    page.unlink()
    done("ablations", "tables", "--results-dir", study / "results" / "unpublished")
    assert page.read_bytes() == table
    shown = ("../notebooks/grid.ipynb", "out.ipynb", "-p", "grid", "depths", "-p", "scale", "smoke", "-p", "seeds", 1)
    done("python", "-m", "papermill", *shown)

    done("ablations", "run", "own", *smoke, "--executor", "local", "--jobs", 2)
    mine = [
        record
        for record in map(_json, study.glob("results/unpublished/records/*/*.json"))
        if record["id"] not in records
    ]
    assert len({record["metrics"].get("train.rtd") or record["metrics"]["heldout.loss"] for record in mine}) == 4
    objective, positions = "plugin my_objective", "plugin my_positions"
    read = [{objective, positions} & record["config"]["fingerprints"].keys() for record in mine]
    assert sorted(map(sorted, read)) == [[], [objective], [objective, positions], [positions]]
    with (study / "my_positions.py").open("a") as file:
        file.write("# other code\n")
    assert "2 of 4 runs to train" in done("ablations", "plan", "own", "--scale", "smoke"), "other code is another run"
    for axis, near in (("model.positions=distance_bia,rotary", "distance_bias"), ("objectives.rtb=null,{}", "rtd")):
        assert names(done("ablations", "new", "other", "--axis", axis, code=2), near)

    start = next(id for id, record in records.items() if record["kind"] == "pretrain")
    tuned = next(id for id, record in records.items() if record["config"].get("task") == "reviews")
    (row,) = json.loads(done("ablations", "ask", tuned, "Film 1.", "--format", "json"))
    assert {row["answer"], row["majority class"]} <= {"0", "1"}
    done("ablations", "export", start, study / "start")
    short = ("--scale", "smoke", "--set", "finetuning.max_length=32", "--output", study / "results" / "evaluated")
    done("ablations", "finetune", "--from", study / "start", "--task", "pairs", *short, "--save", study / "tuned")
    (row,) = json.loads(done("ablations", "ask", study / "tuned", "cat 1", "dog 1", "--format", "json"))
    model = AutoModelForSequenceClassification.from_pretrained(study / "tuned").eval()
    inputs = AutoTokenizer.from_pretrained(study / "tuned")("cat 1", "dog 1", return_tensors="pt")
    chances = model(**inputs).logits.softmax(1)[0]
    assert row["probability"] == pytest.approx(chances.max().item(), abs=1e-5)
    assert row["answer"] == model.config.id2label[int(chances.argmax())]
    assert installed.files() == before
    assert {path.name for path in installed.work.iterdir()} == {"my_study"}
    assert not list(installed.home.rglob("stores")), "the cache is in the study"


def _json(path):
    return json.loads(path.read_text())


def test_pins_are_written_in_a_checkout_only(installed):
    asked = installed("python", "-m", "lightning_modules.pin", "corpus", "wikipedia-mini")
    assert asked.returncode != 0
    assert "checkout" in asked.stderr
