"""Facts that the texts of grids state of scale `laptop`, from records, and from untrained models that are built here.

What no place in braces can hold: trials of searches, sizes, and what differs between cells before the first step. The
untrained models have the sizes and the seeds of the records, and read random pieces; no corpus is needed.
"""

import functools
import itertools
import math

import pytest
import torch

import ablations
from ablations.core.statistics import mean_interval
from ablations.measurements.curves import value_at
from ablations.measurements.layer_metrics import LAYER_METRICS
from ablations.measurements.measurements import on_plateau
from ablations.planning import grids
from lightning_modules.batch import Example
from lightning_modules.measures.final_metrics import layer_similarity
from tests.conftest import make_tokens
from tests.contract.test_cell_identities import cells
from tests.every import every

pytestmark = pytest.mark.slow

SCALE, ROWS, LOSS, RATE = "laptop", 16, "heldout.loss", "optimizer.peak_lr"
WIDE = ", embedding_size=128"
NONE, ALL, FFN = (f"sharing={kind}{WIDE}" for kind in ("none", "all", "ffn"))


@functools.cache
def untrained(grid, label):
    """Of each seed of a cell before its first step: its layer metrics, and the size of what each layer reads."""
    found = grids.read(grid)
    (system,) = (cell.system for cell in cells(found, SCALE) if cell.label == label)
    tokens = make_tokens(ROWS, system.format.sequence_length, system.data.tokenizer.vocab_size)
    tokens.tables.clear()
    example, own, runs = Example.of(tokens), found.scales[SCALE], []
    for seed in range(own.first_seed, own.first_seed + own.seeds):
        module = system.build(seed)
        layers = layer_similarity(module, [example], bf16=False)
        with torch.no_grad():
            sizes = [float(state.square().mean().sqrt()) for state in module.backbone(example).layers]
        metrics = {name: of(layers[statistic]) for name, (statistic, of) in LAYER_METRICS.items()}
        runs.append(metrics | {"input": sizes[0], "growth": sizes[-1] / sizes[0]})
    return runs


def start(grid, label, metric):
    """The mean of a metric over untrained models."""
    return mean_interval([run[metric] for run in untrained(grid, label)]).mean


@functools.cache
def measured(grid):
    return ablations.open(grid, scale=SCALE).measurements


def cell(grid, label):
    (found,) = (one for one in measured(grid).cells if one.label == label)
    return found


def end(grid, label, metric=LOSS):
    """The mean of a metric over trained models."""
    return mean_interval(list(measured(grid).values(cell(grid, label), metric).values())).mean


def trials(grid, label, metric=LOSS):
    """Learning rate -> the value of a metric in the search's one seed, in the order of the rates."""
    table = measured(grid)
    found = {trial.values[RATE]: table.of_trial(trial, metric) for trial in cell(grid, label).search}
    return {rate: row.value for rate, rows in sorted(found.items()) for row in rows.values()}


def half_way(grid, label):
    """Whether each trial of a cell, half as long as its runs, has passed the bigram baseline."""
    table = measured(grid)
    records = [table.get(run.id) for trial in cell(grid, label).search for run in trial.runs]
    return [record.metrics[LOSS] < record.metrics["heldout.bigram_loss"] for record in records]


def test_untrained_models_that_share_all_turn_their_input_as_much_less_as_trained_ones():
    grid, metric = "parameter_sharing", "layers.later_angle"
    before, after = (of(grid, NONE, metric) - of(grid, ALL, metric) for of in (start, end))
    assert after == pytest.approx(before, abs=1)
    assert max(run[metric] for run in untrained(grid, ALL)) < min(run[metric] for run in untrained(grid, NONE)) - 3


def test_the_start_need_not_decide_the_angle():
    grid, metric = "parameter_sharing", "layers.later_angle"
    assert start(grid, FFN, metric) == pytest.approx(start(grid, ALL, metric), abs=0.5)
    assert end(grid, FFN, metric) >= end(grid, NONE, metric)


def test_untrained_models_move_their_input_as_far_whatever_they_share():
    for metric in ("layers.first_distance", "layers.later_distance"):
        assert start("parameter_sharing", NONE, metric) == pytest.approx(
            start("parameter_sharing", ALL, metric), rel=0.05
        )


def test_a_step_of_the_rate_moves_distances_as_much_as_sharing_does():
    grid = "parameter_sharing"
    assert cell(grid, NONE).chosen == cell(grid, ALL).chosen
    for metric, times in (("layers.first_distance", 1.0), ("layers.later_distance", 0.75)):
        none, every = (list(trials(grid, label, metric).values()) for label in (NONE, ALL))
        step = max(after - before for before, after in itertools.pairwise(none))
        assert step > times * max(own - shared for own, shared in zip(none, every, strict=True))
        assert none == sorted(none)
        assert every == sorted(every)
    assert step < end(grid, NONE, metric) - end(grid, ALL, metric), "at the later layers it is less than sharing does"


def test_nothing_shared_and_all_pass_the_baseline_together():
    table, crossed = measured("parameter_sharing"), []
    for label in (NONE, ALL):
        steps = [next(step for step in range(10, 3001, 10) if below(record, step))
                 for record in table.finished(cell("parameter_sharing", label)).values()]  # fmt: skip
        crossed.append(math.exp(sum(map(math.log, steps)) / len(steps)))
    assert crossed[0] == pytest.approx(crossed[1], rel=0.04)


def below(record, step):
    found = value_at(record, "steps", step)
    return found is not None and found[0] < record.metrics["heldout.bigram_loss"]


def test_which_trials_of_sharing_and_width_had_passed_the_baseline():
    sharing = [f"sharing={kind}" for kind in ("none", "attention", "ffn", "all")]
    wide = [passed for kind in sharing for passed in half_way("parameter_sharing", f"{kind}{WIDE}")]
    narrow = [passed for kind in sharing for passed in half_way("parameter_sharing", f"{kind}, embedding_size=48")]
    assert (all(wide), narrow.count(False), len(narrow)) == (True, 10, 12)
    passed = {(width, kind): half_way("embedding_size", f"embedding_size={width}, {kind}")
              for width in (32, 48, 64, 128) for kind in ("sharing=none", "sharing=all")}  # fmt: skip
    assert all(passed[128, "sharing=none"] + passed[128, "sharing=all"])
    assert not any(passed[32, "sharing=none"] + passed[32, "sharing=all"] + passed[64, "sharing=all"])
    assert sum(passed[48, "sharing=none"] + passed[48, "sharing=all"]) < 3


def test_neighbouring_rates_of_widths_differ_by_as_much_as_is_said():
    steps = [abs(after - before) for one in measured("embedding_size").cells
             for before, after in itertools.pairwise(trials("embedding_size", one.label).values())]  # fmt: skip
    assert (round(min(steps), 3), round(max(steps), 2)) == (0.001, 0.17)


@pytest.mark.parametrize(("kind", "saved"), [("none", 0.06), ("all", 0.25)])
def test_how_many_parameters_narrow_words_save(kind, saved):
    narrow, wide = (cell("embedding_size", f"embedding_size={width}, sharing={kind}").system.parameters()
                    for width in (48, 128))  # fmt: skip
    assert 1 - narrow / wide == pytest.approx(saved, abs=0.005)


@every("kind", ["none", "all"])
@every("width, share", [(64, 0.7), (48, 0.6)])
def test_when_the_full_width_was_where_narrow_words_end(kind, width, share):
    narrow, wide = (mean_curve("embedding_size", f"embedding_size={of}, sharing={kind}") for of in (width, 128))
    steps = next(step for step, loss in wide if loss <= narrow[-1][1])
    assert steps / wide[-1][0] == pytest.approx(share, abs=0.02)


def mean_curve(grid, label):
    """Steps and mean losses of a cell, every tenth step between the first and the last measured one."""
    runs = list(measured(grid).finished(cell(grid, label)).values())
    last = int(max(runs[0].curve["step"]))
    losses = ((step, [value_at(run, "steps", step) for run in runs]) for step in range(10, last + 1, 10))
    return [(step, sum(found[0] for found in values) / len(values)) for step, values in losses if all(values)]


def test_a_projection_makes_the_input_of_untrained_layers_smaller():
    labels = [f"embedding_size={width}, sharing=none" for width in (32, 48, 64, 128)]
    sizes = [start("embedding_size", label, "input") for label in labels]
    assert sizes == sorted(sizes)
    assert sizes[3] / sizes[2] == pytest.approx(3, abs=0.25)


def test_untrained_passes_of_one_layer_add_up():
    growth = {kind: start("model_depth", f"num_layers=8, {kind}", "growth") for kind in ("shared", "own")}
    assert growth == pytest.approx({"shared": 2.4, "own": 1.3}, abs=0.05)


def test_leads_over_one_layer_are_smaller_at_the_highest_rate_than_at_the_lowest():
    for kind, layers in (("own", 4), ("own", 2), ("shared", 2)):
        one, deeper = (trials("model_depth", f"num_layers={n}, {kind}") for n in (1, layers))
        lowest, *_, highest = (one[rate] - deeper[rate] for rate in one)
        assert 0 < highest < 0.7 * lowest


def test_what_the_search_of_depths_found():
    grid, chosen = "model_depth", {}
    for one in measured(grid).cells:
        assert not any(half_way(grid, one.label))
        chosen[tuple(run.id for run in one.runs)] = one.chosen[RATE] == max(trials(grid, one.label))
    assert (sum(chosen.values()), len(chosen)) == (6, 7)
    rates = [cell(grid, f"num_layers=8, {kind}").chosen for kind in ("own", "shared")]
    assert rates[0] != rates[1]
    four, two = (trials(grid, f"num_layers={layers}, shared") for layers in (4, 2))
    assert all(four[rate] < two[rate] for rate in four)


def test_one_layer_is_ahead_after_as_much_compute():
    grid, table = "model_depth", measured("model_depth")
    (one,) = {record.cost["flops"] for record in table.finished(cell(grid, "num_layers=1, own")).values()}
    runs = [table.get(run.id) for trial in cell(grid, "num_layers=4, own").search for run in trial.runs]
    assert f"{one:.2g}" == "1.6e+13"
    assert {f"{run.cost['flops']:.2g}" for run in runs} == {"2e+13"}
    assert (f"{end(grid, 'num_layers=1, own'):.2f}", f"{min(run.metrics[LOSS] for run in runs):.2f}") == (
        "4.31",
        "4.57",
    )


def test_no_model_that_hides_most_left_the_plateau():
    most = cell("masking_ratio", "rate=0.8")
    assert all(on_plateau(most, record) for record in measured("masking_ratio").finished(most).values())


def test_hiding_more_is_behind_after_as_many_predictions():
    steps = 8000 * 10 / 26  # of the 62 words between [CLS] and [SEP], 15 % are 10 and 40 % are 26
    table = measured("masking_ratio")
    more = [value_at(run, "steps", steps)[0] for run in table.finished(cell("masking_ratio", "rate=0.4")).values()]
    less = [run.curve[LOSS][-1] for run in table.finished(cell("masking_ratio", "rate=0.15")).values()]
    assert [f"{sum(losses) / len(losses):.2f}" for losses in (more, less)] == ["4.49", "4.23"]


def test_the_lead_of_hiding_more_first_grows_then_narrows():
    curves = [dict(mean_curve("masking_ratio", f"rate={rate}")) for rate in (0.15, 0.4)]
    early, third, last = (curves[0][step] - curves[1][step] for step in (1340, 2670, 8000))
    assert early < third > last > 0


def test_how_much_of_pairs_is_padding():
    costs = [
        record.cost for record in measured("sentence_objective").finished(cell("sentence_objective", "pairs")).values()
    ]
    assert [round(1 - cost["real_tokens"] / cost["tokens"], 2) for cost in costs] == [0.18] * len(costs)
