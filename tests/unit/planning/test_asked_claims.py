"""The claims of a grid file: a paper's are named, a hypothesis states itself, and nothing is said twice."""

import pytest

from ablations.claims.published_claims import with_parts
from ablations.planning import grids
from lightning_modules.config import ConfigError
from tests.faults.mistakes import says
from tests.messages import naming

GRID = """\
question: Does hiding more help?
base: roberta_base
set: {data.corpora: [wikipedia-mini]}
axes:
  objectives.mlm.masking.rate: [0.15, 0.4, 0.8]
scales:
  smoke: {set: {model.hidden_size: 64, training.steps: 20}}
metrics:
  - {name: heldout.loss}
claims:
"""
ID = "mask15.r.40_gt_15_mnli"
SIDES = "a: {objectives.mlm.masking.rate: 0.4}, b: {objectives.mlm.masking.rate: 0.15}"
THREE = ", ".join(f"{{objectives.mlm.masking.rate: {rate}}}" for rate in (0.4, 0.15, 0.8))
OURS = "metric: heldout.loss"


def read(tmp_path, *claims):
    file = tmp_path / "g.yaml"
    file.write_text(GRID + "".join(f"  - {{{claim}}}\n" for claim in claims), encoding="utf-8")
    return grids.read(file).claims


def test_a_published_claim_is_named_and_joined(tmp_path):
    (claim,) = read(tmp_path, f"claim: {ID}, {OURS}, {SIDES}")
    row = with_parts()[ID]
    assert (claim.id, claim.claim, claim.relation) == (ID, ID, ">")
    assert (claim.statement, claim.source, claim.published_metric) == (row.statement, row.source, row.label)
    assert claim.published == {"a": 84.5, "b": 84.2}


def test_one_claim_may_be_asked_in_several_ways(tmp_path):
    named = f"claim: {ID}, {OURS}, {SIDES}"
    first, second = read(tmp_path, named, f"{named}, id: other, relation: ratio, ratio: 0.9")
    assert (second.id, second.claim, second.relation) == ("other", ID, "ratio")
    assert first.statement == second.statement


def test_the_better_side_comes_first_whatever_the_paper_puts_first(tmp_path):
    (claim,) = read(tmp_path, f"claim: mask15.r.40_lt_15_sst2, {OURS}, {SIDES}")
    assert with_parts()[claim.id].relation == "<"
    assert (claim.relation, claim.published) == (">", {"a": 93.3, "b": 92.8})


def test_a_hypothesis_states_itself(tmp_path):
    (claim,) = read(tmp_path, f"id: ours.more, statement: More is more., source: this project, {OURS}, {SIDES}")
    assert (claim.id, claim.claim, claim.published) == ("ours.more", "", {})


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (f"claim: {ID}x", says("g.yaml:11: claims.0.claim", f"'{ID}x'", near=ID)),
        ("claim: [1]", says("g.yaml:11: claims.0.claim", "'[1]'")),
        (f"clam: {ID}", says("g.yaml:11: claims.0.clam", near="claim")),
        ("proxy: none", says("g.yaml:11: claims.0", "'claim: ID'", "'id'")),
        ("claim: ours, statement: More is more.", says("g.yaml:11: claims.0.claim", "'ours'", "'id'", "hypothesis")),
        (f"id: {ID}x", says("g.yaml:11: claims.0.id", "'statement'", "'claim'", near=ID)),
        (f"claim: {ID}, statement: Again.", says("g.yaml:11: claims.0.statement", "masked_lm.csv:2", "out")),
        (
            f"claim: {ID}, published: {{a: 1, b: 2}}",
            says("g.yaml:11: claims.0.published", "masked_lm.csv:2", "out"),
        ),
        (f"claim: {ID}, relation: '>'", says("g.yaml:11: claims.0.relation", "masked_lm.csv:2", "out")),
        (f"claim: {ID}, id: {ID}", says("g.yaml:11: claims.0.id", "published claim", "out")),
        (
            f"claim: {ID}, relation: '~', margin: 0.1",
            says("g.yaml:11: claims.0.relation", "'~'", "'>'", "masked_lm.csv:2", "'ratio'"),
        ),
        (
            f"id: {ID}, statement: Again., source: somewhere",
            says("g.yaml:11: claims.0.id", "masked_lm.csv:2", f"'claim: {ID}'", "leave out statement, source"),
        ),
    ],
)
def test_what_a_grid_may_not_say(tmp_path, claim, message):
    with pytest.raises(ConfigError) as found:
        read(tmp_path, f"{claim}, {OURS}, {SIDES}")
    assert any(message.fits(str(problem)) for problem in found.value.problems), found.value
    assert "g.yaml:11: " in str(found.value)


def test_printed_values_belong_to_the_sides_that_are_asked(tmp_path):
    with pytest.raises(ConfigError, match=naming("g.yaml:11", "claims.0", "masked_lm.csv", "3", "2")):
        read(tmp_path, f"claim: mask15.r.peak_then_decline, relation: ordering, {OURS}, sides: [{THREE}]")


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ("{at: {objectives.mlm.masking.rate: 0.9}}", says("g.yaml:11: claims.0.positive_control.at", "0.9")),
        (
            "{at: {objectives.mlm.masking.rat: 0.4}}",
            says("g.yaml:11: claims.0.positive_control.at.objectives.mlm.masking.rat", "'objectives.mlm.masking.rate'"),
        ),
        (
            "{at: {objectives.mlm.masking.rate: 0.4}, metric: heldout.sop_acuracy}",
            says("g.yaml:11: claims.0.positive_control.metric", "heldout.sop_acuracy", "'heldout.sop_accuracy'"),
        ),
        (
            "{at: {objectives.mlm.masking.rate: 0.4}, metric: heldout.sop_accuracy, above: heldout.sop_best_simpl}",
            says("g.yaml:11: claims.0.positive_control.above", "'heldout.sop_best_simple'"),
        ),
        ("{metric: heldout.loss}", says("g.yaml:11: claims.0.positive_control.at", "required")),
    ],
    ids=["no cell", "no axis", "no metric", "no simple method", "nowhere"],
)
def test_a_positive_control_is_a_cell_with_something_to_be_above(tmp_path, control, message):
    with pytest.raises(ConfigError) as found:
        read(tmp_path, f"claim: {ID}, {OURS}, {SIDES}, positive_control: {control}")
    assert any(message.fits(str(problem)) for problem in found.value.problems), found.value
