from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._storage.listing import find_local
from penstock.errors import SourceError
from penstock.sources.paths import read_ends, read_file


@pytest.mark.parametrize("size", [0, 1, 4096, 100_003, 3_000_000])
def test_all_bytes_of_a_file_come_back(tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "f").write_bytes(data[:size])
    assert read_file(str(tmp_path / "f")) == data[:size]


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_a_file_without_a_size_is_read_to_its_end() -> None:
    assert os.stat("/proc/self/status").st_size == 0
    assert read_file("/proc/self/status").startswith(b"Name:")


@given(data=st.binary(max_size=50), extra=st.binary(min_size=1, max_size=50))
def test_what_stands_behind_the_first_read_is_not_lost(data: bytes, extra: bytes) -> None:
    from penstock.sources.paths import _read_rest

    reader, writer = os.pipe()
    try:
        os.write(writer, extra)
        os.close(writer)
        assert _read_rest(reader, data + b"x") == data + b"x" + extra
    finally:
        os.close(reader)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX file kinds")
@pytest.mark.parametrize("kind", ["a directory", "a named pipe (FIFO)", "a character device"])
def test_what_is_no_regular_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "a directory":
        path.mkdir()
    elif kind == "a named pipe (FIFO)":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(SourceError) as caught:
        read_file(str(path))
    assert f"is {kind}, not a regular file" in caught.value.what
    assert str(path) in caught.value.where
    assert "take it out" in caught.value.fix
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")
def test_a_socket_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(OSError, match="'s'"):
            read_file("s")


def test_missing_files_dangling_links_and_link_loops_are_the_systems_errors(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("missing", "dangling"):
        with pytest.raises(FileNotFoundError, match=name):
            read_file(str(tmp_path / name))
    with pytest.raises(OSError, match="loop"):
        read_file(str(tmp_path / "loop"))


def test_a_name_that_is_too_long_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        read_file(str(tmp_path / ("x" * 300)))


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX users")
def test_a_file_without_permission_is_a_permission_error(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0)
    (tmp_path / "closed").mkdir(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match="secret"):
            read_file(str(path))
        with pytest.raises(PermissionError) as raised:
            find_local(str(tmp_path / "closed" / "*.jpg"), "read_x")
        assert "closed" in raised.value.__notes__[0]
    finally:
        os.seteuid(user)


def test_read_ends_gives_size_and_both_ends_and_a_reason_for_what_cannot_be_read(tmp_path: Path) -> None:
    for size, head, tail in ((0, 0, 0), (10, 10, 0), (4096, 4096, 0), (5000, 4096, 904), (100_000, 4096, 4096)):
        data = os.urandom(size)
        (tmp_path / "f").write_bytes(data)
        assert read_ends(str(tmp_path / "f")) == (size, data[:head], data[size - tail :])
    assert read_ends(str(tmp_path / "none"))[0] == -1
    assert read_ends(str(tmp_path)) == (-1, b"not regular", b"")
