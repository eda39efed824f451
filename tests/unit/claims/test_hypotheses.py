"""What a study says of its claims before anything has run."""

from ablations.claims.hypotheses import hypotheses
from tests.unit import synthetic
from tests.unit.synthetic import LAYERS, RATE, make_claim


def asked(**changes):
    grid, cells, _ = synthetic.make_study(claims=[make_claim(**changes)])
    (found,) = hypotheses(grid, cells)
    return found


def test_what_a_scale_leaves_open_is_said():
    assert asked(a={RATE: 0.6}).open == "side a (masking rate 60 %) is not among the cells of this scale"
    assert asked(metric="rte.accuracy").open == "no model is fine-tuned on rte at this scale"
    assert asked(metric="lambada.accuracy").open == "no model is asked lambada at this scale"
    assert asked().open == ""


def test_stand_ins_are_named_with_what_they_stand_for():
    grid, cells, _ = synthetic.make_depths()
    (found,) = hypotheses(grid, cells)
    assert found.to_dict()["sides"] == ("num_layers 4, own (for 12)", "num_layers 1, own (for 3)")
    assert grid.claims[0].asked[0][LAYERS] == 12
