from __future__ import annotations

import asyncio
import os
import resource
import select
import socket
import sys
from typing import Any

import pytest

from penstock._engine.async_calls import new_event_loop


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


@pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")
def test_timers_are_not_rounded_up_to_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asyncio asks of the selector arrives at select() as it is: epoll would be told 1 ms."""
    asked: list[float] = []
    real = select.select

    def seen(read: Any, write: Any, broken: Any, timeout: float) -> Any:
        asked.append(timeout)
        return real(read, write, broken, timeout)

    monkeypatch.setattr(select, "select", seen)
    run(asyncio.sleep(0.0002))
    assert any(0 < timeout < 0.0002 for timeout in asked)


def test_what_comes_from_outside_wakes_it() -> None:
    async def echo() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        asyncio.get_running_loop().call_later(0.01, theirs.sendall, b"hello")
        data = await asyncio.wait_for(reader.readexactly(5), 30)
        writer.close()
        theirs.close()
        return data

    assert run(echo()) == b"hello"


@pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")
def test_with_a_thousand_files_open_the_selectors_own_timer_does() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"a process may have only {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))  # 1,024 on many machines
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        run(asyncio.sleep(0.001))
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_loop_of_the_programs_own_choice_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(asyncio.SelectorEventLoop):
        pass

    other = Other()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: other)
    assert new_event_loop() is other
    other.close()
