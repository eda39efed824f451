import pytest

from ablations.claims import judging
from ablations.claims.contrasts import official
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, NOT_MEASURED, OPEN, Direction, Reason, Regime, Size
from ablations.core.estimates import linear
from ablations.core.moderation import moderated
from ablations.measurements.measurements import Measurements
from tests.messages import names
from tests.unit.synthetic import (
    COUNTED,
    LAYERS,
    RATE,
    Kept,
    losses,
    make_cell,
    make_claim,
    make_depths,
    make_failure,
    make_grid,
    make_objectives,
    make_record,
)

SIDE_A = [4.402, 4.430, 4.415, 4.421, 4.407]
SIDE_B = [4.513, 4.531, 4.519, 4.506, 4.526]  # 0.104 nats higher


def by_hand(a, b):
    """b minus a, with the noise of both pooled."""
    samples = {"a": a, "b": b}
    return linear([("b", 1.0), ("a", -1.0)], samples, moderated(samples).variances)


def verdict(a=SIDE_A, b=SIDE_B, *, claim=None, extra=(), records=None, **changes):
    cells = [make_cell({RATE: 0.15}), make_cell({RATE: 0.4})]
    found = {**losses(cells[1], a), **losses(cells[0], b), **(records(cells) if records else {})}
    grid = make_grid(claims=[claim or make_claim(), *extra], **changes)
    return judging.verdicts(Measurements(grid, cells, found))[0]


def test_a_lower_loss_on_the_claimed_side_replicates():
    found = verdict()
    assert found.outcome == AS_CLAIMED
    assert found.effect == pytest.approx(0.104)
    assert found.n == 5
    assert 0 < found.adjusted.low < found.effect < found.adjusted.high
    assert found.adjusted.half == pytest.approx(by_hand(SIDE_A, SIDE_B).interval().half)
    sides, effect = ("masking rate 40 %", "better", "15 %"), ("held-out loss", "0.104 nats", "[0.088, 0.120]", "5")
    assert names(found.sentence, AS_CLAIMED, *sides, *effect, "MNLI", "84.5", "84.2", "+0.3")


def test_noise_is_open_for_want_of_power_and_says_what_would_have_been_seen():
    found = verdict([4.4, 4.6, 4.5, 4.7, 4.3], [4.5, 4.4, 4.6, 4.5, 4.5])
    assert found.outcome == OPEN
    assert (found.reason, found.direction, found.size) == (Reason.POWER, Direction.OPEN, Size.ASTRIDE)
    assert found.detectable > abs(found.effect)
    assert names(found.sentence, "80 %", "power")


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([], SIDE_B, Reason.NO_RUN),
        (SIDE_A, [], Reason.NO_RUN),
        ([], [], Reason.NO_RUN),
        (SIDE_A[:4], SIDE_B, Reason.UNFINISHED),  # an estimate at a number of seeds that nobody fixed
    ],
    ids=["no a", "no b", "nothing", "four of five"],
)
def test_missing_data_never_replicate(a, b, reason):
    found = verdict(a, b)
    assert (found.outcome, found.reason, found.is_measured) == (OPEN, reason, False)
    assert found.sentence.startswith(NOT_MEASURED)


def test_one_seed_a_side_is_not_measured():
    cells = [make_cell({RATE: 0.15}, seeds=1), make_cell({RATE: 0.4}, seeds=1)]
    records = {**losses(cells[0], [5.0]), **losses(cells[1], [4.0])}
    (found,) = judging.verdicts(Measurements(make_grid(claims=[make_claim()]), cells, records))
    assert (found.outcome, found.reason, found.is_measured, found.n) == (OPEN, Reason.ONE_SEED, False, 1)
    assert judging.tally([found]) == "1 not measured"


def test_a_side_with_fewer_seeds_counts_with_those_it_has():
    found = verdict(records=lambda cells: {cells[1].runs[4].id: make_failure(cells[1].runs[4])})
    assert (found.n, found.outcome) == (4, AS_CLAIMED)
    assert found.p == pytest.approx(by_hand(SIDE_A[:4], SIDE_B).p)


FLAT_A, FLAT_B = [value + 2 for value in SIDE_A], [value + 2 for value in SIDE_B]


def test_two_sides_on_the_plateau_have_a_verdict_and_its_regime_beside_it():
    other = make_claim(id="other", relation="~", margin=0.2)
    above, below = (verdict(a, b, extra=[other]) for a, b in ((SIDE_A, SIDE_B), (FLAT_A, FLAT_B)))
    assert (above.outcome, above.regime.is_past_counting) == (AS_CLAIMED, True)
    assert (below.outcome, below.regime) == (AS_CLAIMED, Regime.PLATEAU)
    assert "2 of 2 sides not shown to be better than the bigram baseline" in below.remarks
    assert (above.p, above.adjusted_p) == pytest.approx((below.p, below.adjusted_p))
    assert (above.adjusted.low, above.adjusted.high) == pytest.approx((below.adjusted.low, below.adjusted.high))


@pytest.mark.parametrize(
    ("nats", "is_below", "sides"),
    [
        (4.6, False, ""),  # what counting reaches is worse than both
        (4.45, False, "1 of 2 sides"),
        (4.3, True, "2 of 2 sides"),
    ],
)
def test_the_floor_is_what_counting_reaches_where_that_is_kept(tmp_path, nats, is_below, sides):
    cells = [make_cell({RATE: 0.15}), make_cell({RATE: 0.4})]
    records = Kept(losses(cells[1], SIDE_A) | losses(cells[0], SIDE_B), tmp_path, cells, nats)
    (found,) = judging.verdicts(Measurements(make_grid(claims=[make_claim()]), cells, records))
    assert (found.outcome, found.regime is Regime.BELOW) == (AS_CLAIMED, is_below)
    assert (f"{sides} not shown to be better than the {COUNTED}" in found.remarks) is bool(sides)


def test_better_than_the_mixture_is_not_better_than_the_product(tmp_path):
    """A control that counts beat has learned nothing, whatever the bigram baseline says."""
    cells = [make_cell({RATE: 0.15}), make_cell({RATE: 0.4})]
    claim = make_claim(positive_control={"at": {RATE: 0.4}})
    found = losses(cells[1], SIDE_A) | losses(cells[0], SIDE_B)
    told = {}
    for nats in (4.6, 4.3):
        records = Kept(found, tmp_path / str(nats), cells, nats)
        (told[nats],) = judging.verdicts(Measurements(make_grid(claims=[claim]), cells, records))
    assert [one.outcome for one in told.values()] == [AS_CLAIMED] * 2
    assert (told[4.6].regime.is_past_counting, told[4.3].regime) == (True, Regime.PLATEAU)
    assert f"is no better than the {COUNTED}" in told[4.3].remarks


def test_device_classes_are_never_compared():
    found = verdict(records=lambda cells: losses(cells[1], SIDE_A, provenance={"device": "NVIDIA H200"}))
    assert found.outcome == OPEN
    assert found.n == 0
    assert "device classes" in found.remarks


def test_seeds_without_noise_decide_nothing():
    found = verdict([4.0] * 5, [4.5] * 5)
    assert found.outcome == OPEN
    assert found.reason is Reason.NO_NOISE


@pytest.mark.parametrize(
    ("margin", "outcome"),
    [(0.2, AS_CLAIMED), (0.11, OPEN), (0.01, AGAINST)],
    ids=["in", "across", "beyond"],
)
def test_near_equality_has_a_margin(margin, outcome):
    found = verdict(claim=make_claim(relation="~", margin=margin))
    assert found.outcome == outcome
    assert found.direction is Direction.POSITIVE  # equal or not, the difference has a direction
    assert (found.p < 0.05) == (outcome != OPEN)
    assert names(found.sentence, "margin", f"{margin} nats")


def test_a_side_that_is_not_planned_is_named():
    found = verdict(claim=make_claim(a={RATE: 0.9}))
    assert found.outcome == OPEN
    assert found.reason is Reason.UNTESTABLE
    assert "masking rate 90 %" in found.remarks


def test_more_contrasts_widen_the_interval_and_repeated_ones_do_not():
    alone = verdict()
    again = make_claim(id="mask15.qnli", published_metric="QNLI", a={RATE: 0.15}, b={RATE: 0.4})
    repeated = verdict(extra=[again])
    other = verdict(extra=[make_claim(id="other", size="beyond", margin=0.1)])
    unrun = verdict(extra=[make_claim(id="other", a={RATE: 0.8})])
    assert repeated.family == alone.family == 1
    assert repeated.adjusted == alone.adjusted == alone.raw
    assert other.family == 2
    assert other.adjusted.level > alone.adjusted.level
    assert other.raw == alone.raw
    assert unrun.adjusted == alone.adjusted, "a family counts the tests that have runs"


def test_what_cannot_be_decided_does_not_ease_the_others():
    def constant(cells):
        sides = ((cells[1], SIDE_A, 0.6), (cells[0], SIDE_B, 0.5))
        return {
            run.id: record.but(metrics=record.metrics | {"heldout.accuracy": accuracy})
            for cell, values, accuracy in sides
            for run, record in zip(cell.runs, losses(cell, values).values(), strict=True)
        }

    found = verdict(extra=[make_claim(id="other", metric="heldout.accuracy")], records=constant)
    assert found.outcome == AS_CLAIMED
    assert found.adjusted.level == pytest.approx(0.975)  # the first of two steps, although the other one's p is 0


def test_other_axes_stand_at_the_baseline():
    cells = [make_cell({RATE: rate, LAYERS: n}) for n in (2, 4) for rate in (0.15, 0.4)]
    found = {}
    for cell in cells:
        shift = 0.0 if cell.values[LAYERS] == 2 else 1.0
        found |= losses(cell, [v + shift for v in (SIDE_A if cell.values[RATE] == 0.4 else SIDE_B)])
    grid = make_grid(axes={RATE: [0.15, 0.4], LAYERS: [2, 4]}, baseline={RATE: 0.15})
    deeper = make_claim(id="deep", a={LAYERS: 4}, b={LAYERS: 2})
    first, second = judging.verdicts(
        Measurements(grid.but(claims=[grid.claims[0].to_dict(), deeper.to_dict()]), cells, found)
    )
    assert first.effect == pytest.approx(0.104)
    assert second.outcome == AGAINST
    assert second.effect == pytest.approx(-1.0)


def test_zipped_axes_move_along():
    cells = [make_cell({RATE: 0.15, LAYERS: 2}), make_cell({RATE: 0.4, LAYERS: 4})]
    grid = make_grid(axes={RATE: [0.15, 0.4], LAYERS: [2, 4]}, zip=[[RATE, LAYERS]], baseline={RATE: 0.15, LAYERS: 2})
    (found,) = judging.verdicts(Measurements(grid, cells, losses(cells[0], SIDE_B) | losses(cells[1], SIDE_A)))
    assert found.outcome == AS_CLAIMED


# --- against a simple method, on a task, and at scales with stand-ins

SOP = {"metric": "heldout.sop_accuracy", "against": "heldout.sop_majority", "b": {}}


def objectives_verdict(*asked, change=None):
    grid, cells, records = make_objectives(claims=[make_claim(id=f"c{n}", **claim) for n, claim in enumerate(asked)])
    records = {id: change(record) if change else record for id, record in records.items()}
    return judging.verdicts(Measurements(grid, cells, records)), cells


def test_a_score_is_compared_with_that_of_a_simple_method():
    asked = {
        **SOP,
        "a": {"objective": "pairs, SOP"},
        "published": {"a": 86.5, "b": 53.3},
        "published_metric": "SOP (%)",
    }
    (found,), cells = objectives_verdict(asked)
    assert found.outcome == AS_CLAIMED
    assert found.effect == pytest.approx(0.2, abs=0.005)
    assert (found.a, found.b) == ("pairs, SOP", "the majority class")
    sides = ("pairs, SOP", "better", "the majority class", "accuracy on swapped pairs")
    assert names(found.sentence, AS_CLAIMED, *sides, "5", "SOP", "86.5", "53.3", "+33.2")
    assert found.runs == (tuple(run.id for run in cells[3].runs),)


@pytest.mark.parametrize("objective", ["pairs", "one segment"])
def test_a_model_without_the_score_decides_nothing(objective):
    (found,), _ = objectives_verdict({**SOP, "a": {"objective": objective}})
    assert found.outcome == OPEN
    assert found.n == 0
    assert found.sentence.startswith(NOT_MEASURED)
    assert found.reason is Reason.UNTESTABLE
    assert (found.a, found.b) == (objective, "the majority class")


def test_each_simple_method_is_a_test_of_its_own():
    against = {**SOP, "a": {"objective": "pairs, SOP"}}
    found, _ = objectives_verdict(
        against, {**against, "published": {}}, {**against, "against": "heldout.sop_bow"},
        {**against, "against": "", "b": {"objective": "pairs, NSP"}},
    )  # fmt: skip
    assert {verdict.family for verdict in found} == {3}
    assert [verdict.b for verdict in found[1:]] == [
        "the majority class", "the TF-IDF + logistic regression", "pairs, NSP"
    ]  # fmt: skip
    assert found[2].effect == pytest.approx(found[0].effect - 0.05)


@pytest.mark.parametrize("task", ["qnli", "qnli_own"])
def test_official_data_answer_a_claim_where_a_scale_has_them(task):
    cells, records = [make_cell({RATE: rate}, task=task) for rate in (0.15, 0.4)], {}
    for cell, score in zip(cells, (0.6, 0.7), strict=True):
        for run in cell.finetunings:
            metrics = {f"{task}.accuracy": score + run.seed**2 / 1000 * score}
            records[run.id] = make_record(run, 0.0, kind="finetune", metrics=metrics, curve={})
    both = [{"name": f"{name}.accuracy", "label": f"{name}.accuracy"} for name in ("qnli_own", "qnli")]
    claim = make_claim(metric="qnli_own.accuracy", official="qnli.accuracy")
    other = make_claim(id="other")  # without runs, it does not count
    found, _ = judging.verdicts(Measurements(make_grid(claims=[claim, other], metrics=both), cells, records))
    assert (found.outcome, found.metric, found.claim.metric) == (AS_CLAIMED, f"{task}.accuracy", f"{task}.accuracy")
    assert found.proxy.startswith("fine-tuned accuracy there, held-out loss here")
    assert ("; own split: official dev" in found.proxy) == (task == "qnli_own")
    assert (found.family, found.adjusted.level) == (1, 0.95)


def test_the_control_of_a_stand_in_is_not_asked_of_official_data():
    control = {"at": {RATE: 0.15}, "above": "qnli_own.accuracy.words"}
    claim = make_claim(metric="qnli_own.accuracy", official="qnli.accuracy", positive_control=control)
    own, whole = ([make_cell({RATE: 0.15}, task=task)] for task in ("qnli_own", "qnli"))
    assert official(claim, own).positive_control == claim.positive_control
    assert (official(claim, whole).metric, official(claim, whole).positive_control) == ("qnli.accuracy", None)


def test_a_published_value_without_a_stand_in_is_not_among_the_cells():
    grid, cells, records = make_depths()
    own = make_claim(a={LAYERS: 24, "layers": "own"}, b={LAYERS: 3, "layers": "own"})
    (found,) = judging.verdicts(Measurements(grid.but(claims=[own.to_dict()]), cells, records))
    assert found.outcome == OPEN
    assert "side a (num_layers 24, own) is not among the cells" in found.remarks
    # 4 is a value of ours and none of theirs
    own = make_claim(a={LAYERS: 4, "layers": "own"}, b={LAYERS: 3, "layers": "own"})
    (found,) = judging.verdicts(Measurements(grid.but(claims=[own.to_dict()]), cells, records))
    assert found.outcome == OPEN
