from __future__ import annotations

import gc
import threading
import warnings

import pytest
from queues.hands import hands

from penstock.errors import PlanError, QueueClosed, StopRaised
from penstock.queues.stopping import CLEAN, CoordinatedRun, exception_types, is_clean, passes_on, reported, told_as_error


def closed(num_left: int) -> QueueClosed:
    error = QueueClosed("closed", where="here", fix="none")
    error.num_left = num_left
    return error


def test_a_read_that_found_too_few_is_clean_only_behind_a_stop_or_by_name() -> None:
    assert is_clean(closed(0), CLEAN)
    assert not is_clean(closed(2), CLEAN)
    assert is_clean(closed(2), CLEAN, stopped=True)
    assert is_clean(closed(2), exception_types([QueueClosed], where="here"))
    assert not is_clean(ValueError(), CLEAN, stopped=True)


def test_types_are_given_one_or_several_or_left_to_the_default() -> None:
    assert exception_types(None, where="here") is CLEAN
    assert exception_types(KeyError, where="here") == (KeyError,)
    assert exception_types([KeyError, OSError], where="here") == (KeyError, OSError)
    assert exception_types((), where="here") == ()
    for wrong in ([3], [int], [KeyError()]):
        with pytest.raises(PlanError):
            exception_types(wrong, where="here")


def test_a_report_is_an_exception_a_triple_or_nothing() -> None:
    error = ValueError()
    assert reported(None) is None
    assert reported((None, None, None)) is None
    assert reported(error) is error
    assert reported((ValueError, error, None)) is error
    for wrong in (ValueError, "text", (1, 2, 3), (error,)):
        with pytest.raises(PlanError) as caught:
            reported(wrong)
        assert caught.value.where == "Coordinator.request_stop(ex)"


def test_the_traceback_of_a_triple_is_kept_when_the_exception_has_none() -> None:
    try:
        raise ValueError
    except ValueError as error:
        traceback = error.__traceback__
    bare = ValueError()
    assert reported((ValueError, bare, traceback)) is bare
    assert bare.__traceback__ is traceback


def test_what_would_end_another_thread_becomes_an_error() -> None:
    plain, end = ValueError(), SystemExit(2)
    assert told_as_error(plain) is plain
    told = told_as_error(end)
    assert isinstance(told, StopRaised)
    assert told.__cause__ is end
    assert told.what == "thread 'MainThread' raised SystemExit: 2"


def test_what_passes_on_depends_on_the_thread() -> None:
    assert not passes_on(ValueError())
    assert passes_on(GeneratorExit())
    assert passes_on(KeyboardInterrupt())
    with hands("other") as (other,):
        assert other.do(lambda: passes_on(GeneratorExit()))
        assert not other.do(lambda: passes_on(KeyboardInterrupt()))
        assert not other.do(lambda: passes_on(SystemExit()))


def test_each_callback_is_called_once_inside_its_guard() -> None:
    run, calls = CoordinatedRun(), []
    lock = threading.Lock()
    run.callbacks.extend([lambda: calls.append(lock.locked()), lambda: calls.append(lock.locked())])
    run.call_back(lambda: lock)
    run.call_back(lambda: lock)
    assert calls == [True, True]


def test_a_run_without_errors_is_dropped_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = CoordinatedRun()
        del run
        gc.collect()
