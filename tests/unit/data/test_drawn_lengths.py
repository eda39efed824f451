"""Steps of drawn lengths: their law, the text that they show, and that they follow from seed and step alone."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError, identity
from lightning_modules.data import StreamFormat
from lightning_modules.data.formats.stream import drawn_lengths
from lightning_modules.data.order.batches import Prefetch
from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.callbacks import Interrupted
from tests.end_to_end.test_training import stop_after

STREAM = {
    "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right",
    "model.positions": "rotary", "format.kind": "stream", "format.frame": "document_ends", "format.lengths": "drawn",
    "training.batch_size": 4, "training.steps": 300,
}  # fmt: skip


@pytest.fixture
def drawn(tiny):
    return tiny.but(**STREAM)


def test_the_law_is_the_released_codes():
    """``max(5, int(normal(L or L / 2, 5)))``, L one time in twenty cut in half, by numpy's own draws."""
    generator, many = np.random.default_rng(0), 200_000
    middle = np.where(generator.random(many) < 0.95, 70, 35)
    theirs = np.maximum(5, generator.normal(middle, 5).astype(int))
    ours = drawn_lengths(0, 70, many)
    assert ours.min() >= 5
    assert ours.max() <= StreamFormat(sequence_length=70, lengths="drawn").longest == 95
    assert ours.mean() == pytest.approx(theirs.mean(), abs=0.1)
    assert ours.std() == pytest.approx(theirs.std(), abs=0.1)
    shares = StreamFormat(lengths="drawn").length_shares(70)
    assert sum(n * share for n, share in shares.items()) == pytest.approx(ours.mean(), abs=0.1)
    for some in (30, 35, 66, 70):
        assert (ours == some).mean() == pytest.approx(shares[some], rel=0.1)
        assert (theirs == some).mean() == pytest.approx(shares[some], rel=0.1)


def test_a_length_is_of_its_seed_and_step_alone():
    assert np.array_equal(drawn_lengths(3, 70, 1000)[:10], drawn_lengths(3, 70, 10))
    assert not np.array_equal(drawn_lengths(3, 70, 10), drawn_lengths(4, 70, 10))


def test_rows_go_through_the_text_in_every_pass(drawn):
    data = drawn.but(**{"training.batch_size": 40}).data_module(0)
    batches, stream = data.train_dataloader(), data.sequences
    width, at = (stream.tokens - 1) // 40, 0
    text = stream.at(np.arange(stream.tokens))[0]
    passes, positions = 0, []
    for step in range(300):
        (example,) = batches.step(step)
        tokens = example.inputs
        length = tokens.ids.shape[1]
        positions.append(length)
        if tokens.segment_state.reset_mask is not None:
            assert step == 0 or at + length > width  # the rest was too short for this step
            assert bool(tokens.segment_state.reset_mask.all())
            passes, at = passes + 1, 0
        begins = np.arange(40) * width + at
        assert np.array_equal(tokens.ids.numpy(), text[begins[:, None] + np.arange(length)])
        assert np.array_equal(tokens.following.numpy(), text[begins + length])
        at += length
        assert at <= width
    assert passes > 3
    assert len(set(positions)) > 10
    assert batches.real_tokens(300) == 40 * sum(positions)
    assert batches.shown(300) == {n: 40 * positions.count(n) for n in set(positions)}
    assert drawn.but(**{"training.batch_size": 40}).tokens() == pytest.approx(40 * sum(positions), rel=0.05)


@pytest.mark.parametrize("usual", [41, 70])
def test_rounded_lengths_are_the_nearest_multiples_that_a_step_can_have(usual):
    exact, rounded = drawn_lengths(0, usual, 10_000), drawn_lengths(0, usual, 10_000, 8)
    assert set(rounded % 8) == {0}
    assert np.abs(rounded - exact).max() <= 4 + (exact.max() > rounded.max())
    assert drawn_lengths(0, 8, 10_000, 8).min() == 8, "no step is empty"
    assert rounded.max() <= StreamFormat(sequence_length=usual, lengths="drawn").longest
    assert rounded.mean() == pytest.approx(exact.mean(), rel=0.02)
    assert np.array_equal(drawn_lengths(0, usual, 10_000, 1), exact)


def on_a_gpu(trainer):
    return Prefetch(ahead=2, multiple=16, drawn_multiple=8)


def test_on_a_gpu_lengths_are_few_and_costs_count_them(drawn, monkeypatch):
    system = drawn.but(**{"training.batch_size": 40})
    plain = list(system.data_module(0).train_dataloader())
    monkeypatch.setattr(Prefetch, "of", on_a_gpu)
    data = system.data_module(0)
    batches = data.train_dataloader()
    positions = [example.inputs.ids.shape[1] for example in batches]
    assert len(set(positions)) <= 8 < len({example.inputs.ids.shape[1] for example in plain})
    assert {length % 8 for length in positions} == {0}
    assert batches.real_tokens(300) == 40 * sum(positions)
    assert batches.shown(300) == {n: 40 * positions.count(n) for n in set(positions)}


ROUNDED = {"sizes_in_multiples_of": 16, "drawn_lengths_in_multiples_of": 8}


@pytest.mark.parametrize("begun_on_gpu", [True, False])
def test_a_training_keeps_the_lengths_that_it_began_with(drawn, tmp_path, monkeypatch, begun_on_gpu):
    """Whatever kind of device it ends on; a record says what they were rounded to, and nothing where nothing was."""

    def on(gpu):
        monkeypatch.undo()
        if gpu:
            monkeypatch.setattr(Prefetch, "of", on_a_gpu)

    system = drawn.but(**{"training.steps": 12, "evaluation.points": 4})
    on(begun_on_gpu)
    straight = fit(system, 0, tmp_path / "straight")
    assert straight.execution == (ROUNDED if begun_on_gpu else {})
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "resumed", stop=stop_after(7))
    on(not begun_on_gpu)
    resumed = fit(system, 0, tmp_path / "resumed")
    assert resumed.curve == straight.curve
    assert resumed.cost["real_tokens"] == straight.cost["real_tokens"]
    assert resumed.execution.get("drawn_lengths_in_multiples_of") == straight.execution.get(
        "drawn_lengths_in_multiples_of"
    )


def test_held_out_text_has_equal_segments(drawn):
    fixed = drawn.but(**{"format.lengths": "fixed"})
    ours, theirs = (list(system.data_module(0).heldout) for system in (drawn, fixed))
    assert all(np.array_equal(a.inputs.ids, b.inputs.ids) for a, b in zip(ours, theirs, strict=True))
    assert identity(fixed.essence()) == identity(drawn.but(**STREAM | {"format.lengths": "fixed"}).essence())
    assert "lengths" not in fixed.essence()["format"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format.row_starts": "drawn"}, "lengths drawn is of rows .* leave out row_starts drawn"),
        ({"format.first_share": 0.5, "format.first_length": 8}, "leave out first_share 0.5"),
        ({"model.positions": "learned"}, "format.sequence_length 41 is longer than model.max_positions 16"),
        ({"format.lengths": "fixed", "schedule.by_length": True}, "schedule.by_length .* format.lengths is fixed"),
    ],
)
def test_what_it_is_not_for_is_refused(drawn, changes, message):
    with pytest.raises(ConfigError, match=message):
        drawn.but(**changes)


def test_both_ways_and_reused_rows_are_refused():
    xlnet = {"format.kind": "stream", "format.frame": "none", "format.lengths": "drawn", "model.memory_length": 8}
    for name, value in (("both_ways", True), ("reuse_length", 64)):
        with pytest.raises(ConfigError, match=f"leave out {name} {value}"):
            SYSTEMS["xlnet_base"].but(**xlnet, **{f"format.{name}": value})
