"""Settings as values: what is worked out once for all that are equal leaves no trace in any of them."""

import copy
import pickle
from typing import Annotated, Literal, Self

import pytest
from pydantic import model_validator

from lightning_modules.config import (
    AsMade,
    ByKind,
    ConfigError,
    Settings,
    diff,
    flat,
    identity,
    is_kind,
    knob,
    paths,
    required,
)
from lightning_modules.data import SegmentPairFormat
from lightning_modules.model import Transformer
from lightning_modules.systems import SYSTEMS
from tests.messages import naming

ALIKE = [
    lambda: Transformer(hidden_size=128, num_layers=2),
    lambda: SegmentPairFormat(short_fraction=0.0, short_documents=True),
    lambda: SYSTEMS["albert_base"].but(**{"model.num_layers": 2}),
]


@pytest.mark.parametrize("make", ALIKE)
def test_resolving_leaves_no_trace(make):
    asked, fresh = make(), make()
    before = (hash(asked), repr(asked), asked.model_dump(), pickle.dumps(asked), dict(asked.__dict__))
    assert asked.resolved() != asked
    assert asked.resolved() == fresh.resolved() == asked.resolved().resolved()
    assert (hash(asked), repr(asked), asked.model_dump(), pickle.dumps(asked), dict(asked.__dict__)) == before
    assert asked == fresh
    assert asked.but() == copy.deepcopy(asked) == pickle.loads(pickle.dumps(asked)) == fresh


def test_copies_are_resolved_by_their_own_values():
    small = Transformer(hidden_size=128)
    assert (small.resolved().ffn_size, small.resolved().num_heads) == (512, 2)
    for larger in (small.but(hidden_size=256), small.model_copy(update={"hidden_size": 256})):
        assert (larger.resolved().ffn_size, larger.resolved().num_heads) == (1024, 4)
    assert small.resolved().ffn_size == 512


def test_equal_settings_are_alike_to_the_type():
    """Else which of two was resolved first would show in identities: 0, 0.0 and False are equal and hash alike."""
    whole = Transformer(dropout=0)
    assert type(whole.dropout) is type(whole.but(dropout=0).dropout) is type(Transformer.read({"dropout": 0}).dropout)
    assert type(whole.dropout) is float
    with pytest.raises(ConfigError):
        whole.but(dropout=False)
    with pytest.raises(ConfigError):
        whole.but(num_layers=1.0)


class Doubtful(Settings):
    """Settings that note how often they are checked."""

    values: tuple[int, ...] = knob((1,), "The values.")

    @model_validator(mode="after")
    def _counted(self) -> Self:
        _checked.append(self.values)
        return self


class Holder(Settings):
    """A value that holds others."""

    part: Annotated[Doubtful, AsMade()] = required("A part.")


_checked: list[tuple[int, ...]] = []


def test_a_part_that_was_checked_when_it_was_made_is_taken_as_it_is_and_data_are_checked():
    part = Doubtful(values=(2, 3))
    _checked.clear()
    assert Holder(part=part).part is part
    assert not _checked
    assert Holder.read({"part": {"values": [2, 3]}}) == Holder(part=part)
    assert Holder.model_validate({"part": {"values": (2, 3)}}) == Holder(part=part)
    assert _checked == [(2, 3)] * 2
    for wrong in ({"values": ["2"]}, {"valus": [2]}, 2):
        with pytest.raises(ConfigError):
            Holder.read({"part": wrong})


class Constant(Settings):
    """One value."""

    kind: Literal["constant"] = knob("constant", "", neutral="constant")
    value: float = knob(1.0, "The value.")


class Straight(Settings):
    """A line."""

    kind: Literal["straight"] = knob("straight", "")
    value: float = knob(5.0, "The value at the start.")
    slope: float = knob(0.5, "The slope.", ge=0)


class Before(Settings):
    course: Constant = Constant()


class Now(Settings):
    course: Annotated[Constant | Straight, ByKind()] = Constant()
    extra: Annotated[Constant | Straight, ByKind()] = knob(Constant(), "Added later.", neutral=Constant())


class Outer(Settings):
    inner: Now | None = None


class TestUnions:
    def test_where_one_class_becomes_several_identities_stay(self):
        assert identity(Now().essence()) == identity(Before().essence())
        assert identity(Now().but(**{"course.value": 2.0}).essence()) == identity(
            Before().but(**{"course.value": 2.0}).essence()
        )
        assert Now.read(Before().to_dict() | {"course": {"value": 3.0}}).course == Constant(value=3.0)

    def test_another_kind_is_part_of_the_identity(self):
        straight = Now().but(**{"course.kind": "straight"})
        assert straight.course == Straight()
        assert straight.essence()["course"]["kind"] == "straight"
        assert "extra" not in straight.essence()
        assert identity(straight.essence()) != identity(Now().essence())

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_kind_starts_from_its_defaults_wherever_it_stands(self, order):
        changes = [("course.kind", "straight"), ("course.slope", 2.0)]
        changed = Now().but(**{"course.value": 9.0}).but(**dict(changes[::order]))
        assert changed.course == Straight(value=5.0, slope=2.0)
        assert changed.but(**{"course.kind": "straight"}).course == Straight()

    def test_all_knobs_of_all_kinds_are_known(self):
        known = paths(Outer)
        assert {"inner.course.kind", "inner.course.value", "inner.course.slope"} <= known.keys()
        assert [path for path in known if is_kind(Outer, path)] == ["inner.course.kind", "inner.extra.kind"]
        assert known["inner.course.kind"].description == "constant: One value. straight: A line."
        assert known["inner.course.slope"].description == "straight: The slope."
        assert Outer().but(**{"inner.course.kind": "straight"}).inner == Now(course=Straight())

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"course.slop": 1.0}, ("course.slop", "Did you mean", "course.slope'?")),
            ({"course.slope": 1.0}, ("course.slope", "course.kind straight", "course.kind is constant")),
            ({"course.kind": "strait"}, ("course.kind", "'strait'", "Did you mean 'straight'?")),
            ({"course.kind": 3}, ("course.kind", "3", "constant, straight")),
            ({"course.kind": ["straight"]}, ("course.kind", "'straight'")),
            ({"course": 3}, ("course:", "mapping")),
            ({"course": {"kind": "straight", "slope": -1.0}}, ("course.slope:", "greater than or equal to 0")),
            ({"course.kind": "straight", "course.slope": "x"}, ("course.slope:", "number", "'x'")),
        ],
    )
    def test_what_is_wrong_is_named_by_its_place(self, changes, said):
        with pytest.raises(ConfigError, match=naming(*said)):
            Now().but(**changes)
        with pytest.raises(ConfigError, match=naming(*said)):
            Outer(inner=Now()).but(**{f"inner.{path}": value for path, value in changes.items()})

    def test_values_and_differences(self):
        straight = Now(course=Straight())
        assert flat(straight)["course.kind"] == "straight"
        assert diff(Now(), straight) == {
            "course.kind": ("constant", "straight"), "course.value": (1.0, 5.0), "course.slope": (None, 0.5),
        }  # fmt: skip
        assert Now().get("course.slope") is None
        assert Now().but(**flat(straight)) == straight
        assert pickle.loads(pickle.dumps(straight)) == straight == Now.read(straight.to_dict())
        with pytest.raises(AttributeError):
            Now().get("course.slop")


def test_a_change_inside_a_given_part_leaves_what_was_given():
    given = {"num_layers": 2, "hidden_size": 32, "num_heads": 2}
    changed = SYSTEMS["bert_base"].but(**{"model": given, "model.dropout": 0.3})
    assert changed.model.dropout == 0.3
    assert given == {"num_layers": 2, "hidden_size": 32, "num_heads": 2}
