"""What a study says of its claims before anything has run."""

from ablations.claims.hypotheses import hypotheses, text
from tests.unit import synthetic
from tests.unit.synthetic import LAYERS, RATE, make_claim


def asked(**changes):
    grid, cells, _ = synthetic.make_study(claims=[make_claim(**changes)])
    (found,) = hypotheses(grid, cells)
    return found


def test_a_hypothesis_names_statement_source_sides_metric_and_direction():
    shown = text([asked()])
    assert shown.startswith(
        "1. *40 % masking is better than 15 %* (Mask15, README mask-rate: MNLI 84.5 against 84.2 %, +0.3.) "
        "Here: masking rate 40 % against 15 %, in held-out loss (nats), lower is better. Margin 0.02 nats "
        "(rule of thumb). Agreement: the whole interval"
    )
    assert "judged at 5 seeds" in shown
    assert "adjusted for the one test of this grid" in shown
    assert "* By proxy (1): fine-tuned accuracy there, held-out loss here." in shown


def test_what_a_scale_leaves_open_is_said():
    assert asked(a={RATE: 0.6}).open == "side a (masking rate 60 %) is not among the cells of this scale"
    assert asked(metric="rte.accuracy", better="higher").open == "no model is fine-tuned on rte at this scale"
    assert asked(metric="lambada.accuracy", better="higher").open == "no model is asked lambada at this scale"
    assert asked().open == ""


def test_stand_ins_are_named_with_what_they_stand_for():
    grid, cells, _ = synthetic.make_depths()
    (found,) = hypotheses(grid, cells)
    assert found.to_dict()["sides"] == ("num_layers 4, own (for 12)", "num_layers 1, own (for 3)")
    assert grid.claims[0].asked[0][LAYERS] == 12
