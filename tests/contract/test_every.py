"""A test of many cases tries them all, and its failure names each case that fails."""

import pytest

from tests.every import every


def test_a_failure_names_every_case_that_fails():
    tried = []

    @every("value", lambda: [1, 2, 3, 4])
    @every("factor, odd", [(1, True), (2, False)])
    def check(value, factor, odd):
        tried.append((value, factor))
        if odd:
            assert value % 2
        else:
            with pytest.raises(ZeroDivisionError):
                _ = 1 / (value - 3)

    with pytest.raises(BaseExceptionGroup) as failed:
        check()
    assert len(tried) == 8
    assert [group.__notes__ for group in failed.value.exceptions] == [[f"of the case {n}"] for n in (1, 2, 4)]
    inner = [error for group in failed.value.exceptions for error in group.exceptions]
    assert [error.__notes__ for error in inner].count(["of the case (2, False)"]) == 3


def test_a_test_without_cases_fails():
    with pytest.raises(AssertionError, match="no cases"):
        every("value", [])(lambda value: None)()
