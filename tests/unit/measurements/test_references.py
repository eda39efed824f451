"""Simple methods beside scores: which there are, and that a claim may be judged against the best of them."""

from ablations.claims import judging
from ablations.claims.outcomes import AGAINST, AS_CLAIMED
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import compared, references
from tests.messages import names
from tests.unit.synthetic import make_claim, make_objectives

QUESTIONS = ("nsp", "sop")


def judged(best):
    asked = make_claim(
        metric="heldout.sop_accuracy",
        against="heldout.sop_best_simple",
        a={"objective": "pairs, SOP"},
        b={},
    )
    grid, cells, records = make_objectives(claims=[asked])
    records = {
        id: record.but(metrics=record.metrics | {"heldout.sop_best_simple": best}) for id, record in records.items()
    }
    (found,) = judging.verdicts(Measurements(grid, cells, records))
    return found


def test_a_model_that_beats_chance_but_not_the_best_simple_method_has_learned_no_order():
    """The synthetic model reaches 70 %, where the majority class has half."""
    beaten, beating = judged(0.75), judged(0.6)
    assert (beaten.outcome, beating.outcome) == (AGAINST, AS_CLAIMED)
    assert beaten.b == "the best simple method"
    assert names(beaten.sentence, "worse", "the best simple method")


def test_a_layer_of_a_probe_is_compared_with_the_other_layers_and_simple_methods():
    middle, whole = compared("probes.word_class_middle"), compared("probes.word_class")
    assert set(middle.values()) - set(whole.values()) == {"probes.word_class_embeddings", "probes.word_class_last"}
    assert whole == references("probes.word_class") == references("probes.word_class_middle")
    assert "probes.word_order_last" not in compared("probes.word_order").values()
