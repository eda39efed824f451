"""The pages of how-to teach with names that are free, and with code that runs as it is printed."""

import re
import textwrap
from typing import get_args

import pytest
from pytorch_lightning import Trainer

from ablations.claims.outcomes import Reason
from ablations.claims.published_claims import claims
from ablations.core import strict_yaml
from ablations.core.disk.reading import Flaw
from ablations.literature import published_values
from ablations.planning import grids, new_grid
from ablations.planning.checks.grid_checks import known_knobs
from ablations.schema.record import Outcome
from lightning_modules.model.settings import StackSettings
from lightning_modules.places import project
from lightning_modules.systems import SYSTEMS
from tests.every import every

GUIDES = project() / "docs/how-to"


def blocks(page):
    """The blocks of Python of a guide, with the lines before them left empty, so that an error names its line."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * (text[: block.start()].count("\n") + 1) + block[1]


def run(page):
    """What the blocks of a page define, run one after the other as their reader does."""
    names = {"__name__": page.replace(".", "_")}
    for block in blocks(page):
        exec(compile(block, str(GUIDES / page), "exec", dont_inherit=True), names)
    return names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*log_every_n_steps.*", "ignore:.*does not have many workers.*")
def test_the_library_alone_trains_as_its_page_shows():
    names = run("library.md")
    losses = names["losses"]
    assert len(losses) == names["steps"]
    assert sum(losses[-8:]) < sum(losses[:8]), "it has learned something"
    assert names["trainer"].callback_metrics["heldout.loss"] < losses[0]


def test_the_figures_of_a_convolution_are_those_that_its_page_computes():
    names, text = run("pruning.md"), (GUIDES / "pruning.md").read_text(encoding="utf-8")
    counts = [names[f"{kind}{rest}"] for kind in ("shared", "unshared") for rest in ("", "_without_biases")]
    assert counts == [34_944, 34_848, 105_705_600, 105_415_200]
    assert all(f"{count:,}" in text for count in counts)
    (remark,) = (row for row in published_values.read("others") if row.paper == "AlexNet")
    readme = (published_values.FOLDER / "README.md").read_text(encoding="utf-8")
    for said in (text, remark.note, readme):  # both counts, and the figure that is one digit from the second
        assert set(re.findall(r"105,\d{3},\d{3}", said)) == {"105,705,600", "105,415,200", "105,415,600"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*log_every_n_steps.*", "ignore:.*does not have many workers.*")
def test_plain_lightning_trains_as_its_page_shows(monkeypatch, tmp_path):
    """One step of each training, the student's among them."""
    monkeypatch.chdir(tmp_path)
    short = {"max_steps": 1, "limit_val_batches": 0, "accelerator": "cpu", "enable_progress_bar": False}

    class Short(Trainer):
        def __init__(self, **given):
            super().__init__(**given | short)

    monkeypatch.setattr("pytorch_lightning.Trainer", Short)
    names = run("lightning.md")
    assert names["student"].model.num_layers == 2
    assert names["module"].global_step == 1


PAGES = [*GUIDES.glob("*.md"), *(project() / "docs").glob("*.md")]
OF_THE_SITE = {"docs/index.md", "docs/api_introduction.md"}


@every("page", sorted({str(page.relative_to(project())) for page in PAGES} - OF_THE_SITE))
def test_a_page_reads_the_same_without_sphinx(page):
    """Wherever the repository is browsed: what Sphinx alone understands is a list of contents at most."""
    text = (project() / page).read_text(encoding="utf-8")
    assert set(re.findall(r"^```\{(.+)\}", text, re.MULTILINE)) <= {"toctree"}
    assert re.findall(r"\{[a-z:]+\}`", text) == []


def test_plain_lightning_is_what_the_readme_shows():
    readme = (project() / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^## In plain Lightning\n(.+?)^## ", readme, re.MULTILINE | re.DOTALL)
    guide = (GUIDES / "lightning.md").read_text(encoding="utf-8")
    assert shown
    assert [block for block in re.findall("```python.+?```", shown[1], re.DOTALL) if block not in guide] == []


def named(value):
    """The dotted names of what YAML holds: keys at any depth."""
    if isinstance(value, dict):
        yield from (key for key in value if "." in str(key))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from named(inner)


def test_the_yaml_of_the_guides_is_read_and_names_what_there_is():
    known, wrong, count = {*known_knobs(), *claims(), "objectives.rtd"}, [], 0  # the last one its page adds
    for page in sorted(GUIDES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            names = set(named(strict_yaml.value(textwrap.dedent(block))))
            count += len(names)
            wrong += [f"{page.name}: {name}" for name in sorted(names - known)]
    assert not wrong, wrong
    assert count > 40


def rows(page, heading):
    """The cells of the rows of the table below a heading of a guide."""
    section = (GUIDES / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [re.split(r" *\| *", row)[1:-1] for row in section.splitlines() if row.startswith("| `")]


def test_the_page_of_positions_has_every_kind():
    kinds = get_args(StackSettings.model_fields["positions"].annotation)
    assert sorted(row[0].strip("`") for row in rows("positions.md", "Kinds")) == sorted(kinds)


@every(
    "heading, words",
    [
        ("Outcomes of a run", {*get_args(Outcome), "orphaned"}),
        ("Why a claim is open", {str(reason) for reason in Reason if reason}),
        ("Damaged files", {*get_args(Flaw)}),
    ],
)
def test_the_page_of_messages_explains_every_word(heading, words):
    explained = [word for row in rows("messages.md", heading) for word in re.findall(r"`(.+?)`", row[0])]
    assert sorted(explained) == sorted(words)


def test_the_page_of_left_to_right_grids_prints_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "home", lambda: tmp_path)
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda: {**known, **{path.stem: path for path in tmp_path.glob("*.yaml")}})
    written = new_grid.write("my_gpt", ["model.num_layers=1,2"], SYSTEMS["gpt2"])
    page = (GUIDES / "left_to_right.md").read_text(encoding="utf-8")
    printed = re.search(r"^```yaml\n(set:\n.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    assert printed in written.read_text(encoding="utf-8")
