"""Plans of grids whose cells continue from one pretraining, and what is wrong with such grids."""

import pytest

from ablations.measurements.trunks import trunks_of
from ablations.planning import grids, scale_files, scales
from ablations.planning.plan import plan
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, diff, identity
from lightning_modules.systems import SYSTEMS
from tests import tiny
from tests.unit.run_graphs import RATE, planned, read

START, PEAK = "training.start", "optimizer.peak_lr"
TRUNK = f"{{training.steps: 25, {RATE}: 0.15}}"


def test_arms_share_one_trunk_a_seed(tmp_path):
    found = planned(tmp_path, rates="[0.15, 0.3, 0.4]", seeds=2, knobs={START: TRUNK})
    assert len(found.runs) == 2 * (1 + 3)
    assert [run.seed for run in found.trunks] == [0, 1]
    for cell in found.cells:
        assert [run.parents for run in cell.runs] == [(trunk.id,) for trunk in found.trunks]
    assert found.runs[0] == found.trunks[0]  # before its arms
    trunk = found.trunks[0]
    assert (trunk.system.training.steps, trunk.system.get(RATE), trunk.parents) == (25, 0.15, ())
    assert found.costs[trunk.id].steps == 25
    assert found.label(trunk.id) == "trunk of 25 steps, seed 0"
    assert Run.pretraining(trunk.system, 0, trunk.fingerprints).id == trunk.id  # the plain run of these settings


def test_searches_have_trunks_of_their_own_seeds(tmp_path):
    search = f"search:\n  axes: {{{PEAK}: [1.0e-3, 2.0e-3]}}\n  metric: heldout.loss\n"
    knobs = {START: f"{{training.steps: 25, {RATE}: 0.15, {PEAK}: 1.0e-3}}"}
    found = planned(tmp_path, rates="[0.15, 0.4]", seeds=2, knobs=knobs, extra=search)
    assert [(run.seed, run.id in found.states) for run in found.trunks[:1]] == [(1000, True)]
    assert {run.seed for run in found.runs} == {1000}
    assert len(found.runs) == 1 + 4
    assert {run.parents for run in found.runs[1:]} == {(found.runs[0].id,)}
    assert all(found.costs[trunk.id].steps == 25 for trunk in found.trunks)  # also those of the seeds that follow


def test_cells_of_different_trunks_are_refused_with_what_differs(tmp_path):
    with pytest.raises(ConfigError, match=rf"tiny\.yaml:4: set\.{START}: .*differ in {RATE}\. Name these"):
        read(tmp_path, rates="[0.15, 0.4]", knobs={START: "{training.steps: 25}"})


@pytest.mark.parametrize(
    ("start", "place", "message"),
    [
        ("{training.stepz: 3}", "set.training.start.training.stepz", "Did you mean 'training.steps'?"),
        ("{model.hidden_size: 32}", "set.training.start.model.hidden_size", "must be 16 as here"),
        ("{data.tokenizer.vocab_size: 200}", "set.training.start.data.tokenizer.vocab_size", "must be as here"),
        (
            "{data.corpora: [novels]}",
            "set.training.start.data.corpora",
            "set data.tokenizer.corpora to [novels], to read",
        ),
        ("{data.tokenizer.corpora: [novels]}", "set.training.start.data.tokenizer.corpora", "to read other text"),
        ("{training: {}}", "set.training.start.training", "cannot be given as a whole"),
        (
            "{training.start: {training.stepz: 3}}",
            "set.training.start.training.start.training.stepz",
            "Did you mean 'training.steps'?",
        ),
        (
            "{training.start: {model.hidden_size: 32}}",
            "set.training.start.training.start.model.hidden_size",
            "must be 16 as here",
        ),
        ("{training.steps: 0}", "set.training.start.training.steps", "greater than or equal to 1"),
        ("{format.sequence_length: 999}", "set.training.start", "longer than model.max_positions 32"),
        ("25", "set.training.start", "must be a mapping"),
    ],
)
def test_bad_starts_are_refused_at_their_line(tmp_path, start, place, message):
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, knobs={START: start})
    (problem,) = raised.value.problems
    assert problem.path == f"tiny.yaml:4: {place}"
    assert message in problem.message


def test_other_text_is_read_by_the_pieces_of_the_start_alone():
    """Spelling out the corpora that the tokenizer has anyway changes nothing, in either order."""
    system, corpora = SYSTEMS["bert_base"], ["wikipedia-2015", "novels"]
    spelt = system.but(**{"data.corpora": corpora[::-1], "data.tokenizer.corpora": corpora})
    assert identity(spelt.essence()) == identity(system.but(**{"data.corpora": corpora}).essence())
    other = spelt.but(**{"data.corpora": ["wikipedia-mini"], START: {"data.corpora": corpora}})
    assert other.ancestor().essence() == spelt.essence()
    assert set(other.corpora) == {"wikipedia-mini", *corpora}
    assert identity(other.essence()) != identity(spelt.but(**{START: {"training.steps": 1_000_000}}).essence())
    with pytest.raises(
        ConfigError, match=r"training\.start\.data\.corpora: .*set data\.tokenizer\.corpora to \[novels"
    ):
        system.but(**{"data.corpora": ["wikipedia-mini"], START: {"data.corpora": corpora}})
    with pytest.raises(ConfigError, match=r"data\.tokenizer.*no corpus 'novel'"):
        system.but(**{"data.tokenizer.corpora": ["novel"]})


def test_a_start_and_a_warm_start_exclude_each_other():
    with pytest.raises(ConfigError, match=r"training\.start: training\.warm_start says as well"):
        SYSTEMS["roberta_base"].but(**{START: {"training.steps": 3}, "training.warm_start": [6]})


# --- identity


def test_what_a_start_repeats_is_no_part_of_the_identity():
    system = SYSTEMS["bert_base"].but(**{"model.positions": "rotary"})  # of which the table of positions is settled
    short = {"training.steps": 5, "objectives.sentence": None, "format.kind": "full_sentences"}
    long = {**short, RATE: 0.15, "format.negatives": "swapped", "model.num_layers": 12}
    one, same = (system.but(**{START: start}) for start in (short, long))
    assert identity(one.essence()) == identity(same.essence())
    assert one.resolved().resolved().essence() == one.essence()
    assert "training.start" not in diff(one, one.but(**{"objectives.sentence": None}))  # they continue from the same
    others = [
        system,
        system.but(**{START: {**short, "training.steps": 6}}),
        system.but(**{START: {**short, RATE: 0.4}}),
    ]
    assert len({identity(each.essence()) for each in (one, *others)}) == 4


@pytest.mark.parametrize("name", ["transfer", "pretraining_gain"])
def test_grids_of_fine_tunings_start_from_the_trunks_of_another_grid(name):
    trunk = plan(grids.read("sentence_objective"), "laptop").trunks
    found = plan(grids.read(name), "laptop")
    for cell in found.cells:
        assert [run.id for run in cell.planned] == [run.id for run in trunk]
    searched = {run.id for run in found.runs if run.kind == "pretrain" and run.seed >= 1000}
    assert len(searched) == (name == "transfer")


def test_a_scale_that_is_like_another_has_its_own_trunk():
    trunks = plan(grids.read("sentence_objective"), "laptop-wide").trunks
    assert {(run.system.model.hidden_size, run.system.training.steps) for run in trunks} == {(256, 6000)}
    assert not {run.id for run in trunks} & {run.id for run in plan(grids.read("sentence_objective"), "laptop").trunks}


# --- chains

CHAIN = f"{{training.steps: 20, {RATE}: 0.2, {START}: {{training.steps: 30, {RATE}: 0.15}}}}"


def test_a_chain_is_planned_link_by_link_once_for_all_arms(tmp_path):
    found = planned(tmp_path, rates="[0.15, 0.3, 0.4]", seeds=2, knobs={START: CHAIN})
    assert len(found.runs) == 2 * (2 + 3)
    first, middle = found.runs[:2]
    assert [run.system.training.steps for run in (first, middle)] == [30, 20]
    assert (first.parents, middle.parents) == ((), (first.id,))
    assert all(cell.runs[0].parents == (middle.id,) for cell in found.cells)
    assert [(run.seed, run.system.training.steps) for run in found.trunks] == [(0, 30), (0, 20), (1, 30), (1, 20)]
    assert Run.pretraining(first.system, 0, first.fingerprints).id == first.id  # a plain run of these settings


def test_each_link_reads_its_text_in_an_order_of_its_own():
    system = SYSTEMS["bert_base"].but(**{START: {"training.steps": 5, START: {"training.steps": 6}}})
    assert [trunk.training.steps for trunk in system.trunks] == [5, 6]
    seeds = [each.data_seed(7) for each in (system, *system.trunks)]
    assert len(set(seeds)) == 3
    assert seeds[2] == 7


def test_the_identity_of_a_chain_is_that_of_its_differences():
    system = SYSTEMS["bert_base"]
    middle = {"training.steps": 5, RATE: 0.2}
    one, same = (
        system.but(**{START: {**middle, START: {"training.steps": 6, **spelt}}})
        for spelt in ({}, {RATE: 0.2, "model.num_layers": 12})
    )
    assert identity(one.essence()) == identity(same.essence())
    assert one.resolved().resolved().essence() == one.essence()
    others = [
        system.but(**{START: middle}),
        system.but(**{START: {**middle, START: {"training.steps": 7}}}),
        system.but(**{START: {**middle, START: {"training.steps": 6, RATE: 0.15}}}),
        system.but(**{START: {**middle, START: {"training.steps": 6, START: {"training.steps": 6}}}}),
    ]
    assert len({identity(each.essence()) for each in (one, *others)}) == 5
    assert identity(system.but(**{START: {**middle, START: {}}}).essence()) == identity(others[0].essence())


def test_every_text_and_probe_of_a_chain_is_in_the_identity():
    system = SYSTEMS["roberta_base"].but(**{"data.corpora": ["novels"], "data.tokenizer.corpora": ["wikipedia-mini"]})
    far = {"data.corpora": ["wikipedia-mini"], "evaluation.probes": ["agreement"]}
    arm = system.but(**{START: {"data.corpora": ["wikipedia-2015"], START: far}})
    names = {"novels", "wikipedia-2015", "wikipedia-mini"}
    run = Run.pretraining(arm, 0, dict.fromkeys(names, "aa"))
    assert set(arm.corpora) == names
    assert set(run.fingerprints) == names | {"probes.agreement"}
    assert set(run.start.fingerprints) == {"wikipedia-2015", "wikipedia-mini", "probes.agreement"}
    assert set(run.start.start.fingerprints) == {"wikipedia-mini", "probes.agreement"}
    assert Run.read(run.to_dict()).start.start.id == run.start.parents[0]
    other = Run.pretraining(arm, 0, dict.fromkeys(names, "aa") | {"wikipedia-mini": "bb"})
    assert len({run.id, other.id}) == 2


def test_arms_may_have_other_links_behind_them_if_the_first_is_one(tmp_path):
    root = f"{START}: {{training.steps: 30, {RATE}: 0.15, training.batch_size: 4}}"
    extra = f"variants:\n  from:\n    target: {{{START}: {{training.steps: 20, training.batch_size: 2, {root}}}}}\n"
    extra += f"    general: {{{root}}}\n"
    found = plan(read(tmp_path, rates="[0.15]", seeds=1, axes="  from: [target, general]\n", extra=extra), "smoke")
    assert len(found.runs) == 4
    behind = [trunks_of(cell.runs[0]) for cell in found.cells]
    assert [len(trunks) for trunks in behind] == [2, 1]
    assert behind[0][-1] == behind[1][-1]


# --- words of another vocabulary


def test_another_vocabulary_is_taken_over_where_that_is_said():
    system = SYSTEMS["bert_base"].but(**{"data.corpora": ["wikipedia-mini"], "data.tokenizer.vocab_size": 5000})
    start = {"data.corpora": ["novels"], "data.tokenizer.vocab_size": 4000}
    arm = system.but(**{START: start, "training.vocabulary": "remapped"})
    assert arm.ancestor().training.vocabulary == "same"
    assert arm.ancestor().data.tokenizer.vocab_size == 4000
    assert identity(arm.essence()) == identity(
        system.but(**{START: start | {"training.vocabulary": "same"}, "training.vocabulary": "remapped"}).essence()
    )
    chain = system.but(**{START: {START: start, "training.vocabulary": "remapped"}})
    assert [one.training.vocabulary for one in (chain, *chain.trunks)] == ["same", "remapped", "same"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({START: {"data.tokenizer.kind": "byte_bpe"}}, r"start\.data\.tokenizer\.kind: must be wordpiece as here"),
        ({START: {"training.steps": 3}}, r"start\.data\.tokenizer: is the one here: set training\.vocabulary to same"),
        ({}, r"training: .*start is empty: name that training in start, or set vocabulary to same"),
    ],
)
def test_what_cannot_be_remapped_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        SYSTEMS["bert_base"].but(**{"training.vocabulary": "remapped", **changes})


# --- the trunk of a scale

FILE = "description: x\nset: {model.dropout: 0.3, format.sequence_length: 16}\ntrunk: {training.steps: 25}\n"


@pytest.fixture
def scale(monkeypatch, tmp_path):
    folder = tmp_path / "scales"
    folder.mkdir()
    (folder / "smoke.yaml").write_text(FILE)
    monkeypatch.setattr(scale_files, "FOLDER", folder)
    return folder / "smoke.yaml"


def named(folder, *, knobs="", **options):
    """The tiny grid, whose entry for the scale names its trunk."""
    file = tiny.grid(folder, **options)
    entry = f"  smoke: {{set: {{{START}: trunk{knobs}}}}}\n"
    file.write_text(file.read_text().replace("  smoke: {description: seconds}\n", entry))
    return grids.read(file)


def test_a_scales_trunk_is_its_system_whatever_a_grid_varies(scale, tmp_path):
    extra = "variants: {by: {both: {}, one: {model.segment_types: 0, objectives.mlm.masking.units.kind: spans}}}\n"
    varied = named(tmp_path, rates="[0.15, 0.4]\n  by: [both, one]", seeds=1, extra=extra)
    knobs = ", optimizer.peak_lr: 0.1, model.dropout: 0.0"
    other = named(tmp_path, rates="[0.15]", seeds=1, knobs=knobs)
    varied, other = (plan(grid, "smoke") for grid in (varied, other))
    (trunk,), (same,) = varied.trunks, other.trunks
    assert len(varied.cells) == 4
    assert trunk.id == same.id
    system = trunk.system
    assert (system.training.steps, system.model.dropout, system.get(RATE)) == (25, 0.3, 0.15)
    assert system.model.hidden_size == 16, "what shapes the weights is the grid's"


def test_a_trunk_that_a_scale_does_not_have_is_refused(scale, tmp_path):
    scale.write_text("description: x\nset: {format.sequence_length: 16}\n")
    with pytest.raises(ConfigError, match=r"training\.start: the file of 'smoke' has no 'trunk:'\. .*Or describe it"):
        named(tmp_path)


@pytest.mark.parametrize(
    ("knob", "message"),
    [("training.stepz: 25", "Did you mean 'training.steps'?"), ("training.steps: 0", "greater than")],
)
def test_a_bad_trunk_is_refused_at_its_line(scale, knob, message):
    scale.write_text(FILE.replace("training.steps: 25", knob))
    with pytest.raises(ConfigError, match=r"smoke\.yaml:3: trunk\.") as raised:
        scales.read("smoke")
    assert message in str(raised.value)
