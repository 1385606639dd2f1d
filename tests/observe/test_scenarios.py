"""Runs with one known bottleneck get it named, and healthy runs get none: real work, each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from observe import scenarios
from programs import python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="causes of waiting are read from /proc"),
]

_TRIES = 3
"""Other programs that take the CPUs are what a report then names, and it is right to."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=scenarios.serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def said(name: str, port: int) -> dict[str, Any]:
    """Run a scenario, again where other programs took its CPUs."""
    for _ in range(_TRIES):
        done = python(scenarios.__file__, name, port)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        if name == "crowded" or not any(words in found["text"].splitlines()[0] for words in ("short of CPUs", "other programs")):
            return found
    pytest.skip(f"other programs took the CPUs in each of {_TRIES} runs, which is then the bottleneck")


@pytest.mark.parametrize("name", [name for name in scenarios.SICK if not name.startswith("queue")])
def test_a_known_bottleneck_is_named_with_its_stage(name: str, port: int) -> None:
    found = said(name, port)
    assert found["kind"] == name.partition(",")[0], found["text"]
    if name.startswith("slow"):
        assert " index 5 (" in found["text"].splitlines()[0] or " index 102 (" in found["text"].splitlines()[0], found["text"]


@pytest.mark.parametrize("name", [name for name in scenarios.SICK if name.startswith("queue")])
def test_the_bottleneck_at_a_queue_is_named(name: str, port: int) -> None:
    found = said(name, port)
    assert scenarios.expected(name) in found["text"].splitlines()[0], found["text"]


@pytest.mark.parametrize("name", scenarios.HEALTHY)
def test_a_healthy_run_is_limited_by_its_step(name: str, port: int) -> None:
    found = said(name, port)
    assert found["kind"] == "step", found["text"]
