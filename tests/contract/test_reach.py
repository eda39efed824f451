"""At every scale, head counts and directions: the state that is read keeps something of distant tokens.

Otherwise tasks read from one state are blind, and a comparison of heads, widths or directions compares reach.
"""

import pytest

from ablations.planning import grids, scales
from lightning_modules.analysis.reach import LEAST, relative
from lightning_modules.model import Transformer
from lightning_modules.systems import BERT_BASE
from tests.contract.test_cell_identities import cells_of
from tests.depth import NIGHTLY, crossed
from tests.every import every

# Only local prediction is measured there, nothing is read from one state, and no grid varies heads or direction.
SHORT_SIGHTED = {"demo-scratch"}
AS_PUBLISHED = {"paper"}  # shapes of others, which take minutes in double precision
LARGE = set() if NIGHTLY else {"gpu"}  # twelve layers: by night only
SIGHTED = sorted(scales.available().keys() - SHORT_SIGHTED)
HEADS = (1, 2, 4, 8) if NIGHTLY else (1, 8)
DIRECTIONS = ("both", "left_to_right", "right_to_left", "two_way")
REFERENCE = "learned"  # its reach is 1 by definition


def encoder(scale):
    """BERT's encoder at a scale, without training, and the length of its sequences."""
    files = scales.lineage(scale)
    knobs = {path: value for file in reversed(files) for path, value in (file.pins | file.set).items()}
    system = BERT_BASE.but(**{path: value for path, value in knobs.items() if not path.startswith("finetuning.")})
    return system.model, system.format.sequence_length


def shapes():
    """The distinct encoders and lengths of scales, in every direction in turn; by night all in all."""
    known = dict.fromkeys(map(encoder, SIGHTED))
    return [(*shape, way) for shape, way in crossed([s for s in known if s[0].positions != REFERENCE], DIRECTIONS)]


@every("model, length, direction", shapes)
def test_every_head_count_and_direction_of_a_scale_sees_far(model, length, direction):
    layers = model.num_layers + (model.num_layers % 2 if direction == "two_way" else 0)
    for heads in HEADS:
        asked = model.but(num_heads=heads, direction=direction, num_layers=layers)
        assert relative(asked, length) >= LEAST, f"{heads} heads, {direction}"


@pytest.mark.nightly
def test_every_cell_of_every_grid_sees_far():
    """In one test, for grids share their shapes."""
    shapes = {}
    for name in grids.available():
        for scale in cells_of(name).keys() - SHORT_SIGHTED - AS_PUBLISHED - LARGE:
            for system in {cell.system for cell in cells_of(name)[scale]}:
                model = system.model
                if isinstance(model, Transformer) and model.positions != REFERENCE:
                    plain = model.but(
                        memory_length=0, segment_relation=False, query_stream=False, languages=[]
                    )  # of a batch alone
                    shapes.setdefault((plain, system.format.sequence_length), f"{name} at {scale}")
    assert [where for shape, where in shapes.items() if relative(*shape) < LEAST] == []


def test_sinusoids_drown_words_that_are_not_scaled():
    """They have a length of about 8 at this width, words of 0.2: every state changes little, wherever a word stands.

    Multiplied by the square root of the width, as where sinusoids come from, words are seen a third as well as under
    learned positions.
    """
    model, _ = encoder("laptop")
    sinusoids = model.but(positions="sinusoidal", rotary_size=None)
    assert relative(sinusoids, 32) < 2 * LEAST
    assert relative(sinusoids.but(embedding_scale=True), 32) > 5 * LEAST


@every("heads, length", [(2, 64), (4, 64), (4, 128)])
def test_position_biases_are_found_to_be_short_sighted(heads, length):
    """What these tests are for: at these sizes a model with sided biases lost sight of the sequence."""
    model, _ = encoder("laptop")
    assert relative(model.but(positions="sided_linear_bias", rotary_size=None, num_heads=heads), length) < LEAST


@every("name", grids.available())
def test_the_cells_of_a_grid_turn_as_many_dimensions(name):
    """Heads of other sizes would otherwise have other frequencies."""
    for scale, cells in cells_of(name).items():
        models = [cell.system.model.resolved() for cell in cells]
        transformers = [model for model in models if isinstance(model, Transformer)]
        assert len({model.rotary_size for model in transformers if model.positions == "rotary"}) <= 1, scale
