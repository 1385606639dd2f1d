from __future__ import annotations

import base64
import hashlib
import zlib

import pytest

from penstock._storage.parts import AskAgain, CredentialsRefused, Part, RemoteObject
from penstock._storage.web import Reply, check_partial, check_sums, describe_object, parse_head, refuse_status, retry_after_s
from penstock.errors import ObjectChanged, StorageError

FOUND = RemoteObject(key="/key", shown="https://example.org/key", size=10, etag='"1"', modified="")
RIGHT = {"content-range": "bytes 2-5/10", "content-length": "4", "etag": '"1"'}


def reply(status: int = 206, **headers: str) -> Reply:
    return Reply(version="HTTP/1.1", status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def part(begin: int = 2, data: bytes = b"abcd") -> Part:
    return Part(FOUND, begin, memoryview(bytearray(data)))


def test_a_head_is_read():
    got = parse_head(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nX-A: 1\r\nx-a:2\r\nConnection: close\r\n\r\n")
    assert (got.version, got.status, got.length, got.headers["x-a"], got.keeps_alive, got.is_chunked) == (
        "HTTP/1.1", 206, 4, "1, 2", False, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "data", [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/2 200 OK\r\n\r\n", b"HTTP/1.1 9 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]
)
def test_what_is_no_head_is_asked_again(data: bytes):
    with pytest.raises(AskAgain):
        parse_head(data)


@pytest.mark.parametrize("text", ["-1", "4x", "", "٤", "9" * 30])
def test_a_length_that_is_none_counts_as_not_given(text: str):
    assert reply(content_length=text).length is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, AskAgain), (503, AskAgain), (429, AskAgain), (401, CredentialsRefused), (403, CredentialsRefused), (404, StorageError),
     (410, StorageError), (412, ObjectChanged), (416, ObjectChanged), (400, StorageError), (501, StorageError)],
)  # fmt: skip
def test_a_status_is_asked_again_or_not(status: int, kind: type[Exception]):
    with pytest.raises(kind):
        refuse_status(reply(status), "https://example.org/key", FOUND)


def test_retry_after_is_seconds_or_a_date():
    assert retry_after_s(reply(503, retry_after="7")) == 7
    assert retry_after_s(reply(503)) == retry_after_s(reply(503, retry_after="soon")) == retry_after_s(reply(503, retry_after="-3")) == 0
    assert retry_after_s(reply(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")) == 0


def test_the_right_answer_is_taken():
    check_partial(reply(**{name.replace("-", "_"): value for name, value in RIGHT.items()}), part())
    check_partial(reply(content_range="bytes 2-5/*", etag='"1"', content_encoding="identity"), part())


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
    headers = {name.replace("-", "_"): value for name, value in {**RIGHT, **wrong}.items()}
    with pytest.raises(AskAgain):
        check_partial(reply(status, **headers), part())


def test_an_answer_about_another_version_is_an_error():
    with pytest.raises(ObjectChanged) as caught:
        check_partial(reply(content_range="bytes 2-5/10", etag='"2"'), part())
    assert caught.value.what == "'https://example.org/key' was replaced while it was read: it was '\"1\"', now \"2\""
    nameless = Part(
        RemoteObject(key="/key", shown="https://example.org/key", size=10, etag="", modified="Monday"), 2, memoryview(bytearray(4))
    )
    with pytest.raises(ObjectChanged):
        check_partial(reply(content_range="bytes 2-5/10", last_modified="Tuesday"), nameless)
    unknown = Part(RemoteObject(key="/key", shown="https://example.org/key", size=10, etag="", modified=""), 2, memoryview(bytearray(4)))
    with pytest.raises(ObjectChanged):
        check_partial(reply(content_range="bytes 2-5/12"), unknown)


@pytest.mark.parametrize(("etag", "modified"), [('"1"', ""), ("", "Monday"), ('"1"', "Monday")])
def test_an_answer_that_does_not_say_its_version_is_asked_again(etag: str, modified: str):
    found = RemoteObject(key="/key", shown="https://example.org/key", size=10, etag=etag, modified=modified)
    wanted = Part(found, 2, memoryview(bytearray(4)))
    with pytest.raises(AskAgain, match="neither the ETag nor the Last-Modified that the object had"):
        check_partial(reply(content_range="bytes 2-5/10"), wanted)
    if not (etag and modified):
        other = {"last_modified": "Monday"} if etag else {"etag": '"1"'}
        with pytest.raises(AskAgain, match="neither the ETag nor"):
            check_partial(reply(content_range="bytes 2-5/10", **other), wanted)
    check_partial(reply(content_range="bytes 2-5/10", etag='"1"', last_modified="Monday"), wanted)


def test_size_and_version_of_an_object():
    got = describe_object(reply(content_range="bytes 0-0/12", etag='"9"', last_modified="Monday"), "/key", "shown")
    assert (got.size, got.etag, got.modified, got.version) == (12, '"9"', "Monday", '"9"')
    assert describe_object(reply(416, content_range="bytes */0"), "/key", "shown").size == 0
    assert describe_object(reply(200, content_length="0"), "/key", "shown").size == 0
    for status, given in ((200, ""), (206, "bytes 0-0/*"), (206, "bytes 3-3/12"), (416, "bytes */7")):
        with pytest.raises(AskAgain):
            describe_object(reply(status, content_range=given, content_length="12"), "/key", "shown")


def _text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


WHOLE = b"0123456789"
SUMS = {
    "content-md5": _text(hashlib.md5(WHOLE, usedforsecurity=False).digest()),
    "x-amz-checksum-crc32": _text(zlib.crc32(WHOLE).to_bytes(4, "big")),
    "x-amz-checksum-sha256": _text(hashlib.sha256(WHOLE).digest()),
    "x-goog-hash": f"crc32c=AAAAAA==, md5={_text(hashlib.md5(WHOLE, usedforsecurity=False).digest())}",
    "content-digest": f"sha-256=:{_text(hashlib.sha256(WHOLE).digest())}:",
}


@pytest.mark.parametrize("name", sorted(SUMS))
def test_check_sums_of_whole_objects_are_compared(name: str):
    answer = Reply(version="HTTP/1.1", status=206, headers={name: SUMS[name]})
    good = part(0, WHOLE)
    good.num_got = 10
    check_sums(answer, good, 0)
    bad = part(0, b"012345678x")
    bad.num_got = 10
    with pytest.raises(AskAgain) as caught:
        check_sums(answer, bad, 0)
    assert "do not have the check sum" in str(caught.value)
    assert bad.begin == 0  # they are fetched again


def test_check_sums_of_an_object_say_nothing_about_a_range_but_digests_of_the_answer_do():
    check_sums(Reply(version="HTTP/1.1", status=206, headers={"content-md5": "wrong", "x-amz-checksum-crc32": "wrong"}), part(), 2)
    with pytest.raises(AskAgain):
        check_sums(Reply(version="HTTP/1.1", status=206, headers={"content-digest": "sha-256=:d3Jvbmc=:"}), part(), 2)
    check_sums(Reply(version="HTTP/1.1", status=206, headers={"content-digest": "unknown=:d3Jvbmc=:"}), part(), 2)
