"""A page says what stood for a text, in words, task by task."""

from ablations.pages.held_equal import lines, rule
from ablations.schema.run import Run
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.reading.text_vectors import READERS
from tests.unit import synthetic

TASKS = ("sst2", "cola", "stsb", "squad1", "wnut17")


def cell_reading(*, direction="both", tasks=TASKS, **settings):
    home = synthetic.make_cell({"model.direction": direction}, seeds=2)
    system = home.system.but(**{"model.direction": direction})
    runs = [Run.pretraining(system, run.seed, run.fingerprints) for run in home.runs]
    tuned = [Run.finetuning_of(run, task, "aa", FineTuning(**settings)) for run in runs for task in tasks]
    return home.model_copy(update={"finetunings": tuple(tuned)})


def test_cells_that_read_differently_are_not_taken_for_one():
    said = rule([cell_reading(), cell_reading(reader="mean", pooler=False)])
    assert f"{READERS['first'].words} or {READERS['mean'].words}, without BERT's pooler (SST-2, CoLA and STS-B)" in said


def test_the_page_says_it(tmp_path):
    grid, cells, records = synthetic.make_study()
    cells = [cell.model_copy(update={"finetunings": cell_reading(reader="max").finetunings}) for cell in cells]
    synthetic.publish_page(synthetic.make_plan(grid, cells), records, tmp_path)
    assert READERS["max"].words in (tmp_path / "details.md").read_text()


def streaming(row_starts):
    home = synthetic.make_cell({"model.direction": "both"}, seeds=1)
    stream = {"format.kind": "stream", "format.frame": "none", "format.row_starts": row_starts}
    return home.model_copy(update={"system": home.system.but(**stream)})


def test_a_seed_sets_what_the_cells_say():
    grid, _, _ = synthetic.make_study()
    for cells, said in [
        ([streaming("even")] * 2, "seeds read the same stream in the same order"),
        ([streaming("drawn")], "where the rows of its stream begin"),
        ([streaming("even"), cell_reading()], "data order and corruption"),
        ([streaming("even"), streaming("drawn")], "data order and corruption"),
    ]:
        assert any(said in line for line in lines(synthetic.make_plan(grid, cells))), said


def common(*systems, **grid):
    """The line of knobs that all cells of a grid have."""
    cells = [synthetic.make_cell({synthetic.LAYERS: n}).but(system=system) for n, system in enumerate(systems, start=2)]
    plan = synthetic.make_plan(synthetic.make_grid(claims=[], figure=None, published=[], **grid), cells)
    return next((line for line in lines(plan) if "Set in every cell" in line), "")


def test_only_what_all_cells_have_and_the_base_has_not_is_called_equal():
    base = SYSTEMS[synthetic.make_grid().base]
    asked = {"training.batch_size": 4, "model.num_layers": 2, "optimizer.peak_lr": base.optimizer.peak_lr}
    two = base.but(**{"training.batch_size": 4, "model.num_layers": 2})
    said = common(two, two.but(**{"model.num_layers": 3}), set=asked | {"finetuning.reader": "mean"})
    assert "`training.batch_size` = 4" in said
    assert "num_layers" not in said  # one cell has three
    assert "peak_lr" not in said  # as the base system has it
    assert "`finetuning.reader` = mean" in said  # not a knob of systems
    assert "num_layers" not in common(base, base)  # the scale says four
