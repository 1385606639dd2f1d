from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _storage.remotes import noise, opened, options
from faults.server import Fault, FaultServer, Request

from penstock._storage.remote import open_remote
from penstock.errors import PlanError, StorageError

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
        ("", "leads on more than 5 times"),
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
    with pytest.raises(StorageError) as caught:
        opened("http", server, "key")
    assert "leads on more than 5 times" in caught.value.what
    assert len(server.log) == 6


def test_name_and_password_of_a_url_go_to_its_host_and_into_no_text(server: FaultServer):
    server.fault = lambda request: None if request.headers.get("authorization") == "Basic bWU6aHVudGVyMg==" else Fault(status=401)
    storage = open_remote([f"http://me:hunter2@127.0.0.1:{server.port}/bucket/key"], options(), "read_test")
    assert storage.name(0) == f"http://127.0.0.1:{server.port}/bucket/key"
    assert storage.read(0, 0, 9) == DATA[:9]
    server.fault = lambda request: Fault(status=401)
    with pytest.raises(StorageError) as caught:
        storage.read(0, 0, 9)
    assert "may not be read: the server said 401" in caught.value.what
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


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
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
        with pytest.raises(StorageError) as caught:
            open_remote([f"{server.url}/bucket/key"], options(retries=1), "read_test")
        assert "certificate verify failed" in caught.value.what
        assert server.log == []
