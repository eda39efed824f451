"""The oracle names the values of a table that moved, and no others. `make oracle` applies it."""

from tests.oracle import moved

BEFORE = "metric,cell,effect,verdict\nloss,a,0.50,holds\nloss,b,2,\naccuracy,a,1e-3,holds\n"


def test_other_spellings_orders_and_empty_columns_move_nothing():
    assert not list(moved(BEFORE, BEFORE))
    now = "metric,cell,new,verdict,effect\naccuracy,a,,holds,0.001\nloss,a,,holds,0.5\nloss,b,,,2.0\n"
    assert not list(moved(BEFORE, now))
    assert not list(moved("a\n1\n1\n", "a\n1.0\n1\n"))  # rows that nothing distinguishes are compared in their order


def test_each_value_that_moved_is_named():
    now = "metric,cell,effect,verdict\nloss,a,0.5001,holds\nloss,b,2,open\nbits,a,1,\n"
    assert list(moved(BEFORE, now)) == [
        "loss / a: effect: 0.50 -> 0.5001",
        "loss / b: verdict: nothing -> open",
        "accuracy / a: metric: accuracy -> nothing",
        "accuracy / a: cell: a -> nothing",
        "accuracy / a: effect: 1e-3 -> nothing",
        "accuracy / a: verdict: holds -> nothing",
        "bits / a: metric: nothing -> bits",
        "bits / a: cell: nothing -> a",
        "bits / a: effect: nothing -> 1",
    ]
    assert list(moved("a\n1\n1\n", "a\n1\n2\n"))
    assert list(moved("", "a,b\n1,2\n")) == ["1: a: nothing -> 1", "1: b: nothing -> 2"]
