from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from penstock._engine.chunk import Failure
from penstock._engine.error_policy import attach_others, prepare
from penstock.errors import StopRaised


def failure(error: BaseException, stage: str = "decode") -> Failure:
    return Failure(5, error, stage, 3)


def test_a_users_error_keeps_its_type_and_says_where_it_happened() -> None:
    error = ValueError("bad")
    prepared = prepare(failure(error), "line 8 of train.txt", (2, 41))
    assert prepared.error is error
    assert prepared.at == 5
    assert error.__notes__ == ["penstock: stage 'decode', worker 3, element epoch 2 index 41 (line 8 of train.txt)"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (StopIteration(7), "StopIteration(7)"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (GeneratorExit(), "GeneratorExit"),
        (SystemExit("bye"), "SystemExit('bye')"),
    ],
)
def test_what_would_look_like_a_normal_end_becomes_an_error_with_it_as_the_cause(error: BaseException, shown: str) -> None:
    prepared = prepare(failure(error), "element 4", (0, 4)).error
    assert isinstance(prepared, StopRaised)
    assert prepared.what == f"the function of stage 'decode' raised {shown}"
    assert prepared.where == "stage 'decode', worker 3, element epoch 0 index 4 (element 4)"
    assert "raise another exception" in prepared.fix
    assert prepared.__cause__ is error


def test_the_first_error_gets_a_note_for_each_other_one_but_not_for_itself() -> None:
    first, second, stopped = ValueError("one"), KeyError("two"), StopIteration()
    chosen = prepare(failure(first), "", (0, 0))
    others = [chosen, failure(second, "crop"), failure(stopped)]
    assert attach_others(chosen, others) is first
    assert first.__notes__[1:] == [
        "penstock: also failed: KeyError: 'two' (stage 'crop')",
        "penstock: also failed: StopIteration:  (stage 'decode')",
    ]


def test_an_error_that_takes_no_note_stays_as_it_is() -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        file: str

    error = Frozen("shard-3")
    assert prepare(failure(error), "", (0, 1)).error is error
    assert not hasattr(error, "__notes__")


def test_a_keyboard_interrupt_in_a_worker_is_an_error_of_the_function_there() -> None:
    found: list[BaseException] = []
    thread = threading.Thread(target=lambda: found.append(prepare(failure(KeyboardInterrupt()), "", (0, 0)).error))
    thread.start()
    thread.join()
    assert isinstance(found[0], StopRaised)
    assert found[0].what == "the function of stage 'decode' raised KeyboardInterrupt"
