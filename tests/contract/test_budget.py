"""The check of sizes counts code alone, and lets no bound rise that no other pays for. `make lint` applies it."""

from importlib import import_module

import pytest

budget = import_module("budget")  # docs/budget.py, which is part of no package

CODE = "def f(a):\n    return f'{a + 1:>{a}} b'\n"


def bounds(percent=50.0, **tokens):
    return {"tokens": tokens, "words": {"docs": 10}, "documented": {"percent": percent}}


def test_remarks_and_layout_are_no_code():
    remarked = CODE.replace("(a)", "(\n    a)").replace(
        "\n    r", '  # it\n    """Does.\n\n    More.\n    """\n\n    r'
    )
    assert budget.tokens(CODE) == budget.tokens(f'"""What."""\n\n# why\n{remarked}') == 8
    pairs = [
        (".yaml", "a: 1 # b\n# c\nd: e#f\n", "a: 1\nd: e#f"),
        (".js", "/* a\nb */ let c = 'http://d'\n  // e\n", "let c = 'http://d'"),
        (".html", "<p>{{ a }}</p><!-- b\nc -->{# d #}", "<p>{{ a }}</p>"),
        (".css", "a { b: c } /* d */", "a { b: c }"),
    ]
    assert [budget.tokens(full, kind) for kind, full, _ in pairs] == [
        budget.tokens(bare, kind) for kind, _, bare in pairs
    ]
    assert budget.tokens("a: [b, 1.5]", ".yaml") == 9


def test_public_functions_count_and_private_and_inner_ones_do_not():
    source = (
        'def a():\n  "D."\n  def b(): 1\nclass C:\n  def d(self): 1\n  def _e(self): 1\nclass _F:\n  def g(self): 1\n'
    )
    assert list(budget.documented(source)) == [True, False]


def test_what_is_above_its_bound_or_has_none_is_named():
    found = bounds(40.0, a=5, b=6, new=1)
    assert [line.partition(" ")[0] for line in budget.exceeded(found, bounds(50.0, a=5, b=5))] == ["b:", "new:", "40.0"]
    assert not list(budget.exceeded(found, bounds(40.0, a=9, b=6, new=1, gone=3)))


@pytest.mark.parametrize(
    ("now", "is_paid"),
    [
        (bounds(a=5, b=5), True),
        (bounds(a=4, b=6), True),
        (bounds(new=10), True),  # another name
        (bounds(a=4, b=7), False),
        (bounds(a=5, b=5, new=1), False),
        (bounds(a=5, b=5) | {"words": {"docs": 11}}, False),  # code does not pay for words
        (bounds(a=1, b=1) | {"words": {"docs": 11}}, False),
        (bounds(49.9, a=5, b=5), False),
    ],
)
def test_a_bound_rises_only_where_others_pay(now, is_paid):
    assert (not list(budget.unpaid(now, bounds(a=5, b=5)))) == is_paid


def test_bounds_are_lowered_and_never_raised():
    written = budget.lowered(bounds(50.0, a=5, b=5, gone=5), bounds(60.0, a=3, b=7, new=1))
    assert written == bounds(60.0, a=3, b=5)
    assert budget.lowered(bounds(50.0), bounds(40.0))["documented"] == {"percent": 50.0}
