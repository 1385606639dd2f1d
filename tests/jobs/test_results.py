from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import TooManySkipped
from penstock.jobs.results import JobOutcome, Results, Skipped, words_of_job

JOBS = list("abcdef")
TIMES = (1, 2, 1)


def failed(book: Results, job: int, error: BaseException) -> float | None:
    return book.take(job, JobOutcome(0, job, TIMES, error=error))


def test_a_retry_says_how_long_to_wait_and_how_often_it_was_tried() -> None:
    book = Results(JOBS, ps.Retry(2, backoff_s=0.5, errors=OSError))
    assert [failed(book, 1, OSError("busy")), failed(book, 1, OSError("busy"))] == [0.5, 1.0]
    with pytest.raises(OSError) as caught:
        failed(book, 1, OSError("busy"))
    assert caught.value.__notes__ == ["penstock: tried 3 times"]
    with pytest.raises(ValueError):
        failed(book, 2, ValueError("other"))


def test_a_skipped_job_has_its_error_in_its_place() -> None:
    told: list[int] = []
    book = Results(JOBS, ps.Retry(1, then=ps.Skip(limit=2)), tell=lambda now: told.append(now.num_left))
    errors = [OSError(str(number)) for number in range(3)]
    assert [failed(book, job, errors[job]) for job in (1, 1, 0, 0)] == [0.0, None, 0.0, None]
    assert book.values[1] == Skipped(1, errors[1])
    assert (book.num_left, book.num_skipped, told) == (4, 2, [5, 4])
    failed(book, 2, errors[2])
    with pytest.raises(TooManySkipped) as caught:
        failed(book, 2, errors[2])
    assert caught.value.what == "3 jobs were skipped, the limit is 2"
    assert caught.value.where == "Skip(limit=2) of parallel_jobs; the last one: job 2 of 6 ('c')"
    assert caught.value.__cause__ is errors[2]


def test_a_limit_that_is_a_share_counts_at_least_a_hundred_jobs() -> None:
    for num_done, most in ((0, 10), (200, 22)):
        book = Results(list(range(1000)), ps.Skip(limit=0.1))
        for job in range(num_done):
            book.take(job, JobOutcome(0, job, TIMES))
        for job in range(num_done, num_done + most):
            failed(book, job, OSError())
        with pytest.raises(TooManySkipped, match=f"{most + 1} of {num_done + most + 1} jobs were skipped, the limit is 0.1"):
            failed(book, num_done + most, OSError())


class Shy:
    def __repr__(self) -> str:
        raise ValueError("not telling")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("a", "'a'"),
        (Shy(), "<Shy instance at"),
        (type("list", (), {})(), "(a list)"),
        (np.zeros((9, 9)), "array([[0., 0., 0."),
        ("x" * 500, "xxx...xxx"),
        ([1] * 100, "[1, 1, 1, 1, 1, 1, ...]"),
    ],
)
def test_a_job_is_named_by_its_number_and_few_words(job: Any, words: str) -> None:
    found = words_of_job(1, [None, job, None])
    assert found.startswith("job 1 of 3 (")
    assert words in found
    assert len(found) < 150
    assert "\n" not in found
