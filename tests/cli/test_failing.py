"""What is said of an error: frames of the user's, notes, and nothing of Penstock's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock._workers.failure import Failure
from penstock.cli.screen import place_of, told

HEADER = "an error of your own code (PENSTOCK_TRACEBACK=1 shows all of the traceback)"


class Unsendable(Exception):
    """Cannot be read again from its pickle."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)
        self.lock = threading.Lock()


def deep(element: int) -> int:
    raise KeyError("nope")


def shallow(element: int) -> int:
    return deep(element) if element == 3 else element


def chained(element: int) -> int:
    try:
        return deep(element)
    except KeyError as error:
        raise ValueError("also bad") from error


def unsendable(element: int) -> int:
    raise Unsendable(1, 2)


def opening(element: int) -> int:
    with open("/nowhere/at/all"):
        return element


def decoding(element: int) -> Any:
    return ps.image.decode(b"no image")


def caught(call: Callable[[], Any]) -> Exception:
    """Return what a call raises, with the traceback that a command sees: without the frames of this file that lead to the call."""
    try:
        call()
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_name in ("caught", "<lambda>"):
            trace = trace.tb_next
        return error.with_traceback(trace)
    raise AssertionError("nothing was raised")


def failing(function: Callable[[int], Any]) -> Exception:
    return caught(lambda: list(ps.from_source(range(5)).map(function).feed(executor="threads", num_workers=1)))


def sent(error: Exception) -> Exception:
    """Return an error as it comes from a worker process."""
    came = Failure.of(error).error("job 0 of 1 (0), worker 0, process 7")
    assert isinstance(came, Exception)
    return came


def said(error: Exception) -> list[str]:
    text = told(error)
    assert text is not None
    assert "/penstock/feed.py" not in text
    return text.splitlines()


def frames(lines: list[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in lines if line.startswith("  File ")]


def test_the_traceback_begins_with_the_users_code_and_notes_follow() -> None:
    error = failing(shallow)
    lines = said(error)
    assert lines[:2] == [HEADER, "Traceback (most recent call last):"]
    assert frames(lines) == ["shallow", "deep"]
    assert lines[-2] == "KeyError: 'nope'"
    assert lines[-1].startswith("  note:  penstock: stage 'shallow', worker 0, element epoch 0 index 3")


def test_an_error_of_a_worker_process_is_told_by_the_frames_that_it_had_there() -> None:
    lines = said(sent(failing(shallow)))
    assert lines[:2] == [HEADER, "Traceback (most recent call last):"]
    assert frames(lines) == ["shallow", "deep"]
    assert lines[-3] == "KeyError: 'nope'"
    assert lines[-2].startswith("  note:  penstock: stage 'shallow', worker 0, element epoch 0 index 3")
    assert lines[-1] == "  note:  penstock: job 0 of 1 (0), worker 0, process 7"


def test_causes_are_told_too() -> None:
    for error in (failing(chained), sent(failing(chained))):
        lines = said(error)
        assert frames(lines) == ["chained", "deep", "chained"]
        assert "The above exception was the direct cause of the following exception:" in lines
        assert "ValueError: also bad" in lines


def test_an_error_that_cannot_be_sent_shows_the_users_frames_in_its_text() -> None:
    lines = said(sent(failing(unsendable)))
    assert lines[0].endswith("Unsendable: 1")
    assert frames(lines) == ["unsendable"]
    assert lines[-1].startswith("  fix:   mend what raised it")


def test_an_error_of_penstock_in_the_users_code_says_what_where_and_what_to_do() -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    for error in (failing(decoding), sent(failing(decoding))):
        lines = said(error)
        assert lines[0].startswith("unknown data, not JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000")
        assert [line[:8] for line in lines[1:]] == ["  where:", "  fix:  ", *["  note: "] * (len(lines) - 3)]


def test_an_error_of_the_system_has_frames_only_where_the_users_code_was_running() -> None:
    lines = said(failing(opening))
    assert lines[0] == HEADER
    assert frames(lines) == ["opening"]
    assert told(OSError("no room")) == "OSError: no room"


def test_an_error_without_any_code_of_the_users_is_not_told() -> None:
    error = caught(lambda: json.loads("{"))
    assert told(error) is None
    assert place_of(error) == ""


def test_a_place_is_the_last_line_of_the_users() -> None:
    error = caught(lambda: shallow(3))
    assert place_of(error) == f"{__file__}, line {deep.__code__.co_firstlineno + 1}"
