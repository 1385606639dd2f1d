"""How long a thread was queued for a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from queues.crowd import together

from penstock.observe.stats import QueueClock

MS = 1_000_000


@pytest.fixture
def schedstat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("penstock._system.parking.THIS_THREAD", str(tmp_path / "schedstat"))
    return tmp_path / "schedstat"


def test_a_look_tells_what_came_since_the_last_one_of_this_thread(schedstat: Path) -> None:
    clock = QueueClock()
    schedstat.write_bytes(b"5 100 1\n")
    assert clock.look(10 * MS) == (0, 0)
    schedstat.write_bytes(b"9 350 2\n")
    assert clock.look(40 * MS) == (30 * MS, 250)
    found: list[tuple[int, int]] = []
    together(lambda: found.append(clock.look(50 * MS)))
    assert found == [(0, 0)]


@pytest.mark.parametrize("text", [None, b"", b"what is this", b"0 0 0\n"])
def test_a_system_that_does_not_tell_gives_zeros(schedstat: Path, text: bytes | None) -> None:
    clock = QueueClock()
    if text is not None:
        schedstat.write_bytes(text)
    assert [clock.look(now_ns) for now_ns in (10 * MS, 40 * MS)] == [(0, 0), (0, 0)]
