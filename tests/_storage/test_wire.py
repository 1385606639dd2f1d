from __future__ import annotations

import hashlib

import pytest
from _storage.remotes import noise, opened
from faults.server import Fault, FaultServer

from penstock.errors import StorageError

DATA = noise(70_000)
TAG = hashlib.md5(DATA, usedforsecurity=False).hexdigest().encode()
HEAD = b'HTTP/1.1 206 X\r\nTransfer-Encoding: chunked\r\nETag: "' + TAG + b'"\r\nContent-Range: bytes 0-9/70000\r\n\r\n'


def reason(fault: Fault) -> str:
    """Return why ten bytes did not come."""
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=0)
        server.fault = lambda request: fault
        with pytest.raises(StorageError) as caught:
            storage.read(0, 0, 10)
        storage.close()
        assert len(server.log) == 2
    return caught.value.what.partition("after 1 try: ")[2]


def test_a_connection_serves_one_request_after_the_other():
    ports = set()
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", read_ahead_bytes=0)
        for begin in range(0, 1000, 100):
            assert storage.read(0, begin, 100) == DATA[begin : begin + 100]
        ports.update(request.headers["host"] for request in server.log)
        assert len(server._threads) == 2  # the listener's, and one connection's
        storage.close()
    assert len(ports) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure_of_the_next_request():
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=0)
        for begin in range(0, 500, 100):
            server.fault = lambda request: Fault(close_after=request.end - request.begin)
            assert storage.read(0, begin, 100) == DATA[begin : begin + 100]
        storage.close()


def test_chunks_are_put_together():
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=0)
        server.fault = lambda request: Fault(chunked=True)
        assert storage.read(0, 5, 60_000) == DATA[5:60_005]
        assert storage.read(0, 0, 1) == DATA[:1]
        assert len(server._threads) == 2
        storage.close()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the answer begins with 'SSH-2.0-OpenSSH_9.6', which is no HTTP"),
        (b"HTTP/1.1 206", "the connection was closed after 12 bytes of the answer's head"),
        (HEAD + b"zz\r\n", "a chunk's length is b'zz'"),
        (HEAD + b"-5\r\n", "a chunk's length is b'-5'"),
        (HEAD + b"ff\r\n", "the server sends more than the 10 bytes asked for"),
        (HEAD + b"2\r\nabcd", "a chunk has no end"),
        (HEAD + b"2\r\nab\r\n0\r\n\r\n", "the chunks end at byte 2 of 10"),
        (HEAD + b"a\r\n0123456789\r\n0\r\nx: y\r\n", "something follows the chunks"),
        (HEAD + b"2\r\nab\r\n", "the connection was closed between chunks"),
        (HEAD + b"1" * 5000 + b"\r\n", "a chunk's length is b'" + "1" * 40 + "'"),
    ],
    ids=["no http", "cut head", "no number", "negative", "too much", "no end", "ends early", "trailer", "closed", "endless number"],
)
def test_an_answer_that_breaks_the_protocol_is_asked_again(raw: bytes, why: str):
    assert reason(Fault(raw=raw)) == why


def test_a_head_without_end_is_given_up():
    assert "has no end in 1048576 bytes" in reason(Fault(raw=b"HTTP/1.1 206 X\r\n" + b"x: " + b"y" * 2_200_000))


def test_nobody_listens():
    with FaultServer({"bucket/key": DATA}) as server:
        storage = opened("http", server, "key", retries=1)
    with pytest.raises(StorageError) as caught:
        storage.read(0, 0, 10)
    assert "did not come after 2 tries: the connection failed" in caught.value.what
    storage.close()
