"""What a study says of its claims before anything has run."""

from ablations.claims.hypotheses import hypotheses, text
from tests.every import every
from tests.unit import synthetic
from tests.unit.synthetic import LAYERS, RATE, make_claim

HIGH, LOW, MIDDLE = {RATE: 0.8}, {RATE: 0.05}, {RATE: 0.4}


def asked(**changes):
    grid, cells, _ = synthetic.make_study(claims=[make_claim(**changes)])
    (found,) = hypotheses(grid, cells)
    return found


@every(
    "changes, agreement",
    [
        ({}, "the whole interval favours masking rate 40 %"),
        ({"relation": "~", "margin": 0.02}, "the whole interval lies within 0.02 nats of 0"),
        (
            {"relation": "ratio", "ratio": 0.9},
            "the whole interval of the ratio lies above 0.9 in favour of masking rate 40 %",
        ),
        (
            {"relation": "spread"},
            "the whole interval of the distances from the median favours masking rate 40 %",
        ),
        (
            {"relation": "ordering", "a": {}, "b": {}, "sides": (LOW, MIDDLE, HIGH), "published": {}},
            "the whole interval of every step favours masking rate 5 % > 40 % > 80 %",
        ),
        (
            {"relation": "trend", "a": {}, "b": {}, "sides": (LOW, MIDDLE, HIGH), "published": {}},
            "the whole interval of the slope favours masking rate 5 % > 40 % > 80 %, and no step goes the other way",
        ),
        (
            {"relation": "interaction", "a": {}, "b": {}, "sides": (LOW, MIDDLE, MIDDLE, HIGH), "published": {}},
            "the whole interval shows that masking rate 5 % beats 40 % by more than 40 % beats 80 %",
        ),
        ({"metric": "cost.parameters"}, "masking rate 40 % is better, without an interval, since there is no noise"),
    ],
)
def test_agreement_is_told_in_the_words_of_the_relation(changes, agreement):
    assert asked(**changes).agreement == agreement


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


def test_a_hypothesis_that_no_paper_claims_is_named_as_ones_own():
    assert "(own hypothesis, Mask15, README mask-rate" in text([asked(claim="")])
    shown = text([asked(claim="", source="", published={})])
    assert shown.startswith("1. *40 % masking is better than 15 %* (own hypothesis.) Here: masking rate 40 %")


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
