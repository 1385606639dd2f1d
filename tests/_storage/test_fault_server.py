from __future__ import annotations

import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from faults.server import Fault, FaultServer, login_page

DATA = bytes(range(256)) * 4


def ask(server: FaultServer, path: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(f"{server.url}/{path}", headers=headers), timeout=30)


def test_it_serves_ranges_versions_and_what_is_not_there():
    with FaultServer({"bucket/key": DATA}) as server:
        with ask(server, "bucket/key", Range="bytes=3-9") as answer:
            assert (answer.status, answer.read(), answer.headers["Content-Range"]) == (206, DATA[3:10], "bytes 3-9/1024")
            tag = answer.headers["ETag"]
        with ask(server, "bucket/key", **{"If-Match": tag}) as answer:
            assert (answer.status, answer.read()) == (200, DATA)
        server.put("bucket/key", b"other")
        for path, headers, status in (
            ("bucket/key", {"If-Match": tag}, 412), ("bucket/key", {"Range": "bytes=9-9"}, 416), ("bucket/none", {}, 404),
        ):  # fmt: skip
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(server, path, **headers)
            assert caught.value.code == status
            caught.value.close()
    assert [(request.number, request.path, request.begin, request.end) for request in server.log[:2]] == [
        (0, "/bucket/key", 3, 10), (1, "/bucket/key", -1, -1),
    ]  # fmt: skip


def test_a_fault_is_what_it_says():
    with FaultServer({"key": DATA}) as server:
        server.fault = lambda request: Fault(status=503, headers={"Retry-After": "7"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server, "key")
        assert (caught.value.code, caught.value.headers["Retry-After"]) == (503, "7")
        caught.value.close()
        server.fault = lambda request: Fault(chunked=True)
        with ask(server, "key") as answer:
            assert answer.read() == DATA
        server.fault = lambda request: Fault(drip=(500, 0.001))
        with ask(server, "key") as answer:
            assert answer.read() == DATA
        server.fault = lambda request: login_page()
        with ask(server, "key", Range="bytes=0-1") as answer:
            assert answer.status == 200
            assert answer.read().startswith(b"<html>")
        server.fault = lambda request: Fault(reset=True)
        with pytest.raises(ConnectionError):
            ask(server, "key")


def test_close_ends_connections_that_hang():
    with FaultServer({"key": DATA}, fault=lambda request: Fault(hang_after=10)) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        connection.sendall(b"GET /key HTTP/1.1\r\n\r\n")
        data = b""
        while not data.endswith(DATA[:10]):
            data += connection.recv(4096)
    assert connection.recv(1) == b""
    connection.close()
