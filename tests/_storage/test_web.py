from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _storage.remotes import noise, opened, options
from faults.server import Fault, FaultServer, Request, login_page

from penstock._storage.remote import open_remote
from penstock.errors import ObjectChanged, PlanError, SourceError, StorageError

DATA = noise(5000)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({"bucket/key": DATA, "other/key": DATA, "bucket/empty": b""}) as made:
        yield made


def leads(server: FaultServer, target: str, count: int = 1 << 30) -> None:
    """Let "bucket/" lead somewhere, so many times."""
    left = [count]

    def fault(request: Request) -> Fault | None:
        if not request.path.startswith("/bucket/") or not left[0]:
            return None
        left[0] -= 1
        return Fault(status=302, headers={"location": target})

    server.fault = fault


def test_size_version_and_bytes_come_from_ranges(server: FaultServer):
    storage = opened("http", server, "key", "empty")
    assert [storage.name(file).rpartition("/")[2] for file in range(2)] == ["empty", "key"]
    assert storage.size(0) == 0
    assert storage.identity(1)["size"] == 5000
    assert storage.identity(1)["etag"].startswith('"')
    assert storage.read(1, 100, 50) == DATA[100:150]
    assert [request.method for request in server.log] == ["GET"] * 3
    assert server.log[2].headers["if-match"] == storage.identity(1)["etag"]
    storage.close()


def test_a_redirect_on_the_same_host_is_followed(server: FaultServer):
    leads(server, "/other/key")
    storage = opened("http", server, "key")
    assert storage.read(0, 10, 20) == DATA[10:30]
    storage.close()


def test_a_redirect_to_another_host_is_refused_unless_it_is_named(server: FaultServer):
    target = f"http://localhost:{server.port}/other/key?sig=hunter2"
    leads(server, target)
    with pytest.raises(StorageError) as caught:
        opened("http", server, "key")
    assert "leads somewhere else, where it may not: the host 'localhost' is not in redirect_hosts" in caught.value.what
    assert "hunter2" not in str(caught.value)
    assert len(server.log) == 1  # and is not asked again

    storage = opened("http", server, "key", redirect_hosts=("localhost",), headers={"Authorization": "Bearer hunter2"})
    before = len(server.log)
    assert storage.read(0, 10, 20) == DATA[10:30]
    assert [request.path for request in server.log[before:]] == ["/other/key"]  # where it leads is known by then
    for request in server.log[1:]:
        assert ("authorization" in request.headers) == (request.path == "/bucket/key"), "another host never sees the user's headers"
    storage.close()


def test_a_place_that_a_redirect_led_to_may_expire(server: FaultServer):
    leads(server, f"http://localhost:{server.port}/other/key")
    storage = opened("http", server, "key", redirect_hosts=("localhost",))
    inner, failed = server.fault, []
    assert inner is not None

    def fault(request: Request) -> Fault | None:
        if request.path == "/other/key" and not failed:
            failed.append(request)
            return Fault(status=403)
        return inner(request)

    server.fault = fault
    assert storage.read(0, 0, 10) == DATA[:10]
    storage.close()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("http://169.254.169.254/latest/meta-data/iam/", "is where clouds keep credentials"),
        ("file:///etc/passwd", "has the scheme 'file'"),
        ("s3://bucket/key", "it is no plain URL"),
        ("http://me:hunter2@127.0.0.1/x", "it is no plain URL"),
        ("http://127.0.0.1:1/x", "port 1 is another one"),
        ("http://example.org/x", "is not encrypted"),
        ("https://example.org/x", "the host 'example.org' is not in redirect_hosts"),
        ("http://[bad/", "it is no URL"),
        ("http://h:x/", "is no URL"),
    ],
)
def test_a_redirect_that_is_not_followed_says_why(server: FaultServer, target: str, why: str):
    leads(server, target)
    with pytest.raises(StorageError) as caught:
        opened("http", server, "key", redirect_hosts=("169.254.169.254",))
    assert why in caught.value.what
    assert "hunter2" not in str(caught.value)


def test_ten_redirects_are_too_many(server: FaultServer):
    leads(server, "/bucket/key")
    with pytest.raises(StorageError, match="leads on more than 5 times"):
        opened("http", server, "key")
    assert len(server.log) == 6


def test_name_and_password_of_a_url_go_to_its_host_and_into_no_text(server: FaultServer):
    server.fault = lambda request: None if request.headers.get("authorization") == "Basic bWU6aHVudGVyMg==" else Fault(status=401)
    storage = open_remote([f"http://me:hunter2@127.0.0.1:{server.port}/bucket/key"], options(), "read_test")
    assert storage.name(0) == f"http://127.0.0.1:{server.port}/bucket/key"
    assert storage.read(0, 0, 9) == DATA[:9]
    server.fault = lambda request: Fault(status=401)
    with pytest.raises(StorageError, match="may not be read: the server said 401") as caught:
        storage.read(0, 0, 9)
    assert "hunter2" not in str(caught.value)
    storage.close()


def test_headers_of_a_function_are_asked_for_again_once_when_they_are_refused(server: FaultServer):
    given = iter(["old", "new"])
    server.fault = lambda request: None if request.headers.get("authorization") == "Bearer new" else Fault(status=401)
    storage = opened("http", server, "key", headers=lambda: {"Authorization": f"Bearer {next(given)}"})
    assert storage.read(0, 0, 9) == DATA[:9]
    assert [request.headers["authorization"] for request in server.log] == ["Bearer old", "Bearer new", "Bearer new"]
    storage.close()


def test_a_header_of_two_lines_is_refused(server: FaultServer):
    with pytest.raises(PlanError) as caught:
        opened("http", server, "key", headers={"X-A": "1\r\nX-B: 2"})
    assert caught.value.what == "a header in StorageOptions is no text of one line"
    assert server.log == []


def test_the_query_of_a_signed_url_is_sent_and_not_shown(server: FaultServer):
    storage = open_remote([f"{server.url}/bucket/key?X-Amz-Signature=a%2Fb%3D&n=1"], options(), "read_test")
    assert storage.name(0) == f"{server.url}/bucket/key?[removed]"
    assert server.log[0].query == "X-Amz-Signature=a%2Fb%3D&n=1"
    storage.close()


NO_PARTS = {
    "all of it": (Fault(whole=True), "the server said 200 '' 'without a range' to a range"),
    "none of it": (Fault(whole=True, headers={"accept-ranges": "none"}), "200"),
    "in chunks": (Fault(whole=True, chunked=True), "200"),
    "page": (login_page(), "the server said 200 'text/html' 'without a range' to a range"),
    "416": (Fault(status=416), "the server said 416 '' 'without a range' to a range"),
    "416 *": (Fault(status=416, headers={"content-range": "bytes */5000"}), "the server said 416 '' 'bytes */5000' to a range"),
    "of *": (Fault(headers={"content-range": "bytes 0-0/*"}), "the server said 206 '' 'bytes 0-0/*' to a range"),
    "another": (Fault(shift=7), "the server said 206 '' 'bytes 7-7/5000' to a range"),
    "several": (Fault(headers={"content-range": "", "content-type": "multipart/byteranges"}), "206 'multipart/byteranges' '' to a range"),
    "coded": (Fault(headers={"content-encoding": "gzip"}), "the server sent Content-Encoding 'gzip', which was not asked for"),
}


@pytest.mark.parametrize(("fault", "why"), NO_PARTS.values(), ids=NO_PARTS.keys())
def test_a_server_without_ranges_is_asked_twice_and_named(server: FaultServer, fault: Fault, why: str):
    server.fault = lambda request: fault
    for retries in (8, 0):
        before = len(server.log)
        with pytest.raises(StorageError) as caught:
            opened("http", server, "key", retries=retries)
        assert why in caught.value.what
        assert caught.value.fix == "download it, or ask another server: this one does not serve parts of files"
        assert len(server.log) - before == min(2, retries + 1)


def test_an_answer_of_all_bytes_to_a_range_of_all_bytes_is_right():
    with FaultServer({"bucket/two": b"ab", "bucket/one": b"a"}) as server:
        server.fault = lambda request: Fault(whole=request.path == "/bucket/one" or request.end == 2)
        storage = opened("http", server, "two", "one")
        assert [storage.read(file, 0, storage.size(file)) for file in range(2)] == [b"a", b"ab"]
        assert len(server.log) == 4
        storage.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", f"{'a' * 70}.example"])
def test_a_host_without_a_name_is_asked_for_twice(host: str):
    with pytest.raises(StorageError, match="did not come after 2 tries: the connection failed: ") as caught:
        open_remote([f"https://{host}/key"], options(), "read_test")
    assert caught.value.fix == "check the host in the URL or endpoint, the name service and the certificate"


@pytest.mark.parametrize(
    "path",
    ["a%2Fb", "a//b", "/a", "a/", "a/../b", "a+b", "a%20b", "a%2Bb", "a%23b", "a%3Fb", "e%CC%81", "%C3%A9", "a;b=c", "a%2Ab", "a%", "~a"],
)
def test_a_path_is_asked_for_as_it_is_written(path: str):
    with FaultServer({}) as server:
        server.fault = lambda request: Fault(headers={"content-range": "bytes 0-0/1"}, status=206, body=b"x")
        for query in ("", "x=1&y=%2F+a//b", "?"):
            storage = open_remote([f"{server.url}/{path}{'?' if query else ''}{query}#part"], options(), "read_test")
            assert (server.log[-1].path, server.log[-1].query) == (f"/{path}", query)
            storage.close()


def test_an_identity_has_no_validator_that_proves_nothing():
    now = "Wed, 21 Oct 2015 07:28:00 GMT"
    given: dict[str, str] = {}

    def identity(**headers: str) -> dict[str, str]:
        given.clear()
        given.update({"date": now, "etag": "", "last-modified": ""} | {name.replace("_", "-"): value for name, value in headers.items()})
        storage = open_remote([f"{server.url}/bucket/key"], options(), "read_test")
        storage.close()
        return storage.identity(0)

    with FaultServer({"bucket/key": DATA}) as server:
        server.fault = lambda request: Fault(headers=given)
        old, young = "Wed, 21 Oct 2015 07:27:55 GMT", "Wed, 21 Oct 2015 07:27:56 GMT"
        assert identity(etag='"1"', last_modified=young) == {"size": 5000, "etag": '"1"', "modified": ""}
        assert identity(etag='W/"1"', last_modified=old) == {"size": 5000, "etag": "", "modified": old}
        for modified in (young, now, "Thu, 22 Oct 2015 07:28:00 GMT", "Monday", "Wed, 21 Oct 99999 07:28:00 GMT", ""):
            assert identity(etag='W/"1"', last_modified=modified) == {"size": 5000, "etag": "", "modified": ""}


def test_a_weak_etag_that_stays_does_not_hide_another_time_of_change(server: FaultServer):
    times = ["Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:29:00 GMT"]
    server.fault = lambda request: Fault(headers={"etag": 'W/"1"', "last-modified": times[len(server.log) > 1]})
    storage = opened("http", server, "key")
    with pytest.raises(ObjectChanged):
        storage.read(0, 0, 9)
    storage.close()


def test_a_cache_needs_a_proof_of_the_version(server: FaultServer, tmp_path: Path):
    server.fault = lambda request: Fault(headers={"etag": 'W/"1"', "last-modified": ""})
    with pytest.raises(SourceError) as caught:
        opened("http", server, "key", cache_dir=tmp_path)
    assert "has neither a strong ETag nor a Last-Modified 5 s old: a cache could not tell when it changes" in caught.value.what
    assert caught.value.fix == "leave cache_dir out, or open it again when it is older"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", str(path), "-out", str(tmp_path / "c.pem")], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl command here")
    path.write_bytes(path.read_bytes() + (tmp_path / "c.pem").read_bytes())
    return path


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FaultServer({"bucket/key": DATA}, tls=context) as server:
        with pytest.raises(StorageError, match="did not come after 2 tries: ") as caught:
            open_remote([f"{server.url}/bucket/key"], options(), "read_test")
        assert "certificate verify failed" in caught.value.what
        assert caught.value.fix == "check the host in the URL or endpoint, the name service and the certificate"
        assert server.log == []


def test_over_tls_a_connection_is_used_again_and_a_read_that_waits_is_broken_off(certificate: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FaultServer({"bucket/key": DATA}, tls=context) as server:
        storage = open_remote([f"{server.url}/bucket/key"], options(timeout_s=3600.0, deadline_s=3600.0, read_ahead_bytes=0), "read_test")
        assert b"".join(storage.read(0, begin, 1000) for begin in range(0, 5000, 1000)) == DATA
        assert len(server._threads) == 2  # the listener's, and one connection's
        waits = threading.Event()

        def hang(request: Request) -> Fault:
            waits.set()
            return Fault(hang_after=10)

        server.fault = hang
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(storage.read, 0, 0, 1000)
            waits.wait()
            storage.close()
            with pytest.raises(StorageError, match="was being read when the storage was closed"):
                reading.result()
