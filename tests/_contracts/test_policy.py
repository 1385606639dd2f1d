from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.policy import Raise, Replace, Retry, Skip, decide
from penstock.errors import PlanError

RATE = "give a whole number >= 0, or a share of what is read as a float in 0.0..1.0, such as 0.01"

WRONG: list[tuple[Callable[[], Any], str, str, str]] = [
    (lambda: Retry(0), "times=0 is not a whole number >= 1", "Retry()", "how often to try again at most"),
    (lambda: Retry(True), "times=True is not a whole number >= 1", "Retry()", "how often"),
    (lambda: Retry(1.5), "times=1.5 is not a whole number >= 1", "Retry()", "how often"),  # type: ignore[arg-type]
    (lambda: Retry(1, backoff_s=-1), "backoff_s=-1 is not a time", "Retry()", "give a number of seconds >= 0"),
    (lambda: Retry(1, backoff_s=float("nan")), "backoff_s=nan is not a time", "Retry()", "number of seconds"),
    (lambda: Retry(1, backoff_s="1"), "backoff_s='1' is not a time", "Retry()", "number of seconds"),  # type: ignore[arg-type]
    (lambda: Retry(1, then=Retry(1)), "is not what can follow a retry", "Retry()", "give Raise(), Skip(...) or Replace(...)"),  # type: ignore[arg-type]
    (lambda: Retry(1, errors=KeyboardInterrupt), "are not types of errors", "Retry()", "KeyboardInterrupt, SystemExit and"),  # type: ignore[arg-type]
    (lambda: Skip(-1), "limit=-1 is neither a count nor a rate", "Skip()", RATE),
    (lambda: Skip(1.5), "limit=1.5 is neither a count nor a rate", "Skip()", RATE),
    (lambda: Skip(True), "limit=True is neither a count nor a rate", "Skip()", RATE),
    (lambda: Skip(errors=()), "errors=() are not types of errors", "Skip()", "a class that is an Exception, or a tuple of them"),
    (lambda: Replace("1%"), "limit='1%' is neither a count nor a rate", "Replace()", RATE),  # type: ignore[arg-type]
    (lambda: Replace(errors=("x",)), "are not types of errors", "Replace()", "give a class"),  # type: ignore[arg-type]
    (lambda: ps.from_source([1]).map(abs, on_error="skip"), "on_error='skip' is no policy", "map()", "ps.Skip(...)"),  # type: ignore[arg-type]
    (lambda: ps.from_source([1]).filter(abs, on_error=Skip), "is no policy", "filter()", "ps.Skip(...)"),  # type: ignore[arg-type]
    (lambda: ps.from_source([1]).flat_map(abs, on_error=1), "on_error=1 is no policy", "flat_map()", "ps.Skip(...)"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "what", "where", "fix"), WRONG)
def test_a_policy_that_makes_no_sense_is_refused_with_its_value(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    with pytest.raises(PlanError) as refused:
        call()
    assert what in refused.value.what
    assert refused.value.where == where
    assert fix in refused.value.fix


def test_what_is_decided_depends_on_the_error_and_on_how_often_it_was_tried() -> None:
    policy = Retry(2, errors=OSError, then=Skip(3, errors=(OSError, ValueError)))
    assert [decide(policy, OSError(), tries) for tries in range(4)] == [policy, policy, policy.then, policy.then]
    assert decide(policy, FileNotFoundError(), 0) is policy
    assert decide(policy, ValueError(), 0) is policy.then
    assert decide(policy, TypeError(), 0) == Raise()
    assert decide(Replace(), MemoryError(), 0) == Replace()
    for error in (KeyboardInterrupt(), SystemExit(), GeneratorExit(), StopIteration(), StopAsyncIteration()):
        assert decide(Retry(9, then=Skip()), error, 0) == Raise()


def test_waits_double_up_to_half_a_minute() -> None:
    assert [Retry(9, backoff_s=0.5).wait_s(retry) for retry in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert Retry(1).wait_s(1000) == 0.0
    assert Retry(1, backoff_s=1.0).wait_s(10**6) == 30.0
