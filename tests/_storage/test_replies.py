from __future__ import annotations

import http.client
import io
from typing import Any

import pytest

from penstock._storage.requests import AskAgain, Part, RemoteObject
from penstock._storage.web import check_partial, retry_after_s
from penstock.errors import ObjectChanged

RIGHT = {"content-range": "bytes 2-5/10", "content-length": "4", "etag": '"1"'}


class Sent:
    """A socket from which an answer comes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def check(status: int, headers: dict[str, str], etag: str = '"1"', modified: str = "") -> None:
    """Check an answer to a request for 4 of 10 bytes of an object."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    sent: Any = Sent(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())
    reply = http.client.HTTPResponse(sent)
    reply.begin()
    found = RemoteObject(key="/key", shown="https://example.org/key", size=10, etag=etag, modified=modified)
    check_partial(reply, Part(found, 2, memoryview(bytearray(4))))


def test_retry_after_is_seconds_or_a_date():
    assert retry_after_s("7") == 7
    assert retry_after_s("") == retry_after_s("soon") == retry_after_s("-3") == retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def test_the_right_answer_is_taken():
    check(206, RIGHT)
    check(206, {"content-range": "bytes 2-5/*", "etag": '"1"', "content-encoding": "identity"})


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (200, {}),
        (206, {"content-range": "bytes 0-3/10"}),
        (206, {"content-range": "bytes 2-4/10"}),
        (206, {"content-range": "bytes 2-5/11"}),
        (206, {"content-range": "chapters 1-2/3"}),
        (206, {"content-range": ""}),
        (206, {"content-encoding": "gzip"}),
        (206, {"content-length": "3"}),
    ],
)
def test_an_answer_to_another_question_is_asked_again(status: int, wrong: dict[str, str]):
    with pytest.raises(AskAgain):
        check(status, {**RIGHT, **wrong})


def test_an_answer_about_another_version_is_an_error():
    with pytest.raises(ObjectChanged) as caught:
        check(206, {**RIGHT, "etag": '"2"'})
    assert caught.value.what == "'https://example.org/key' was replaced while it was read: it was '\"1\"', now \"2\""
    with pytest.raises(ObjectChanged):
        check(206, {**RIGHT, "last-modified": "Tuesday"}, etag="", modified="Monday")
    with pytest.raises(ObjectChanged):
        check(206, {"content-range": "bytes 2-5/12"}, etag="")


@pytest.mark.parametrize(("etag", "modified"), [('"1"', ""), ("", "Monday"), ('"1"', "Monday")])
def test_an_answer_that_does_not_say_its_version_is_asked_again(etag: str, modified: str):
    with pytest.raises(AskAgain, match="neither the ETag nor the Last-Modified that the object had"):
        check(206, {"content-range": "bytes 2-5/10"}, etag, modified)
    check(206, {**RIGHT, "last-modified": "Monday"}, etag, modified)
