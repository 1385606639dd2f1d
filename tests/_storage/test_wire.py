from __future__ import annotations

import hashlib

import pytest
from _storage.remotes import noise, opened
from faults.server import Fault, FaultServer

from penstock.errors import StorageError

DATA = noise(70_000)
TAG = hashlib.md5(DATA, usedforsecurity=False).hexdigest().encode()
HEAD = b'HTTP/1.1 206 X\r\nTransfer-Encoding: chunked\r\nETag: "' + TAG + b'"\r\nContent-Range: bytes 0-9/70000\r\n\r\n'


def test_a_connection_serves_one_request_after_the_other():
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=0, read_ahead_bytes=0)
        for begin in range(0, 1000, 100):
            server.fault = lambda request: Fault(chunked=request.number % 2 == 0)
            assert storage.read(0, begin, 100) == DATA[begin : begin + 100]
        assert storage.read(0, 5, 60_000) == DATA[5:60_005]
        assert len(server._threads) == 2  # the listener's, and one connection's
        storage.close()


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure_of_the_next_request():
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=0)
        for begin in range(0, 500, 100):
            server.fault = lambda request: Fault(close_after=request.end - request.begin)
            assert storage.read(0, begin, 100) == DATA[begin : begin + 100]
        storage.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 206",
        b"HTTP/1.1 206 X\r\n" + b"x: " + b"y" * 2_200_000,
        HEAD + b"zz\r\n",
        HEAD + b"ff\r\n" + DATA[:255],
        HEAD + b"2\r\n" + DATA[:2] + b"\r\n0\r\n\r\n",
        HEAD + b"2\r\n" + DATA[:2] + b"\r\n",
    ],
    ids=["no http", "cut head", "endless head", "no number", "too much", "ends early", "closed"],
)
def test_an_answer_that_breaks_the_protocol_is_asked_again(raw: bytes):
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=1)
        faults = iter([Fault(raw=raw)])
        server.fault = lambda request: next(faults, None)
        assert storage.read(0, 0, 10) == DATA[:10]
        server.fault = lambda request: Fault(raw=raw)
        with pytest.raises(StorageError, match="did not come after 2 tries: "):
            storage.read(0, 0, 10)
        storage.close()
        assert len(server.log) == 5
