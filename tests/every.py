"""Many small cases in one test, which goes on after a failure and names every case that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests import annotations

Test = Callable[..., None]


def every(names: str | tuple[str, ...], cases: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one test. Its fixtures are made once, for all cases together.

    Args:
        names: The arguments of the test that stand for a case, as `pytest.mark.parametrize` takes them.
        cases: A value of the argument each, or a tuple of their values; a function is called when the test runs.
    """

    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names

    def decorated(test: Test) -> Test:
        @functools.wraps(test)
        def looped(*self: Any, **fixtures: Any) -> None:
            failures = []
            tried = list(cases() if callable(cases) else cases)
            assert tried, "there are no cases"
            for case in tried:
                annotations.next_test()  # shapes are checked in each
                values = case if len(arguments) > 1 else (case,)
                try:
                    test(*self, **fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"of the case {case!r}"[:200])
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(tried)} cases", failures)

        signature = inspect.signature(test)
        own = [value for name, value in signature.parameters.items() if name not in arguments]
        vars(looped)["__signature__"] = signature.replace(parameters=own)
        return looped

    return decorated
