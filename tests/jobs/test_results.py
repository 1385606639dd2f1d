from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import StopRaised, TooManySkipped, WorkerDied
from penstock.jobs.donelist import DoneList
from penstock.jobs.results import Results, Skipped, words_of_job

JOBS = list("abcdef")


def results(policy: Any = None, jobs: Any = JOBS, done: DoneList | None = None) -> tuple[Results, list[int]]:
    told: list[int] = []
    return Results(jobs, policy or ps.Raise(), done, lambda _, count: told.append(count)), told


def test_results_stand_in_the_order_of_the_jobs() -> None:
    book, told = results()
    assert (book.todo, book.num_left) == ([0, 1, 2, 3, 4, 5], 6)
    book.finished([(4, "E"), (1, None)])
    book.finished([])
    assert (book.values, book.num_left, told) == ([None, None, None, None, "E", None], 4, [2])


def test_what_an_earlier_run_has_done_is_not_to_do(tmp_path: Path) -> None:
    for number in range(2):
        done = DoneList(str(tmp_path / "done"), "f", JOBS, {"source": "12ab"})
        book, _ = results(done=done)
        if number == 0:
            book.finished([(2, "C"), (0, "A")])
        done.close()
    assert book.todo == [1, 3, 4, 5]
    assert book.values == ["A", None, "C", None, None, None]


def test_an_error_is_raised_as_itself_and_names_the_job() -> None:
    book, told = results()
    error = LookupError("no")
    with pytest.raises(LookupError) as caught:
        book.failed(3, error, "worker 1")
    assert caught.value is error
    assert error.__notes__ == ["penstock: job 3 of 6 ('d'), worker 1"]
    assert (book.num_left, told) == (6, [])


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, GeneratorExit, KeyboardInterrupt])
def test_an_error_that_would_be_taken_for_something_else_is_a_stop_raised(kind: type[BaseException]) -> None:
    book, _ = results(ps.Skip())
    with pytest.raises(StopRaised) as caught:
        book.failed(3, kind(7), "worker 1")
    assert caught.value.what == f"{kind.__name__} was raised (7), which would pass for an end"
    assert caught.value.where == "job 3 of 6 ('d'), worker 1"
    assert isinstance(caught.value.__cause__, kind)


def test_a_retry_says_how_long_to_wait_and_how_often_it_was_tried() -> None:
    book, _ = results(ps.Retry(2, backoff_s=0.5, errors=(OSError, WorkerDied)))
    assert [book.failed(1, OSError("busy")), book.failed(1, OSError("busy"))] == [0.5, 1.0]
    assert book.failed(2, WorkerDied("gone", where="worker", fix="none")) == 0.5
    with pytest.raises(OSError) as caught:
        book.failed(1, OSError("busy"))
    assert caught.value.__notes__ == ["penstock: tried 3 times"]
    with pytest.raises(ValueError):
        book.failed(2, ValueError("other"))


def test_a_skipped_job_has_its_error_in_its_place() -> None:
    book, told = results(ps.Retry(1, then=ps.Skip(limit=2)))
    errors = [OSError(str(number)) for number in range(3)]
    assert [book.failed(4, errors[0], "w"), book.failed(4, errors[0], "w"), book.failed(0, errors[1]), book.failed(0, errors[1])] == [
        0.0,
        None,
        0.0,
        None,
    ]
    assert book.values[4] == Skipped(4, errors[0])
    assert (book.num_left, book.num_skipped, told) == (4, 2, [1, 1])
    book.failed(1, errors[2])
    with pytest.raises(TooManySkipped) as caught:
        book.failed(1, errors[2])
    assert caught.value.what == "3 jobs were skipped, the limit is 2"
    assert caught.value.where == "Skip(limit=2) of parallel_jobs; the last one: job 1 of 6 ('b')"
    assert caught.value.__cause__ is errors[2]


def test_it_tells_what_the_policy_forgives() -> None:
    assert [results(policy)[0].forgives(OSError()) for policy in (None, ps.Skip(), ps.Retry(1), ps.Skip(errors=ValueError))] == [
        False,
        True,
        True,
        False,
    ]


def test_a_limit_that_is_a_share_counts_at_least_a_hundred_jobs() -> None:
    book, _ = results(ps.Skip(limit=0.1), jobs=list(range(1000)))
    for number in range(10):
        book.failed(number, OSError())
    with pytest.raises(TooManySkipped) as caught:
        book.failed(10, OSError())
    assert caught.value.what == "11 of 11 jobs were skipped, the limit is 0.1"
    book, _ = results(ps.Skip(limit=0.1), jobs=list(range(1000)))
    book.finished((number, None) for number in range(200, 400))
    for number in range(22):
        book.failed(number, OSError())
    with pytest.raises(TooManySkipped):
        book.failed(22, OSError())


def test_errors_that_are_heard_of_at_once_become_notes_of_the_first_that_is_raised() -> None:
    book, told = results(ps.Retry(1, errors=OSError))
    errors = [OSError("busy"), LookupError("one"), LookupError("two"), OSError("three")]
    with pytest.raises(LookupError) as caught:
        book.failed_together([(number, error, "w") for number, error in enumerate(errors)])
    assert caught.value is errors[1]
    assert caught.value.__notes__ == [
        "penstock: job 1 of 6 ('b'), w",
        "penstock: also failed: job 2 of 6 ('c'): LookupError: two",
        "penstock: also failed: job 3 of 6 ('d'): OSError: three",
    ]
    assert book.failed_together([(4, OSError("busy"), "w")]) == [(0.0, 4)]
    assert told == []


def test_what_is_booked_while_it_winds_up_is_told_to_nobody() -> None:
    book, told = results()
    book.wind_up()
    book.finished([(1, "B")])
    assert (book.values[1], book.num_left, told) == ("B", 5, [])


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
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_a_job_is_named_by_its_number_and_few_words(job: Any, words: str) -> None:
    found = words_of_job(1, [None, job, None])
    assert found.startswith("job 1 of 3 (")
    assert words in found
    assert len(found) < 150
    assert "\n" not in found
