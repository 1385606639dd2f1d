"""The stacks of all threads, and the collector meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from penstock._system.process import current_frames


def test_the_frame_of_each_thread_is_found_by_its_number():
    begun, stop = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        stop.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    frames = current_frames()
    names, frame = [], frames[thread.ident or 0]
    frames.clear()
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    stop.set()
    thread.join()
    assert "work" in names


def test_the_garbage_collector_is_off_meanwhile_and_on_again_after(monkeypatch: pytest.MonkeyPatch):
    """Else the process may hang for ever (CPython issue 106883)."""
    real, enabled = sys._current_frames, []

    def asked() -> Any:
        enabled.append(gc.isenabled())
        return real()

    monkeypatch.setattr(sys, "_current_frames", asked)
    current_frames().clear()
    assert enabled == [False]
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        current_frames().clear()
        assert not gc.isenabled()
    finally:
        gc.enable()
