"""Disks and network file systems that fail while record files are read and indices are written: FAULTS D3, D5, D22."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from core import core
from faults.straced import failing, needs_strace, run
from programs import python

import penstock
from penstock._storage.local import can_sink
from penstock.formats.index import decode
from penstock.kernels import backend

READ = """
import sys
import numpy as np
from penstock._storage.local import LocalStorage
storage = LocalStorage(sys.argv[1:], "read_x")
files = np.arange(len(storage))
for turn in range(4):
    try:
        data, begins = storage.read_spans(files, files * 0, files * 0 + 3, None)
        print(b"".join(data[begin : begin + 3].tobytes() for begin in begins.tolist()).decode())
    except OSError as error:
        print(error.errno, error.filename, error.__notes__)
"""
READ_MAPPED = """
import sys
import numpy as np
from penstock._contracts.transform import Scratch
from penstock._storage.local import LocalStorage
storage, scratch = LocalStorage(sys.argv[1:2], "read_x"), Scratch()
offsets = np.arange(10) * 10_000
whole = open(sys.argv[1], "rb").read()
for turn in range(4):
    try:
        data, begins = storage.read_spans(offsets * 0, offsets, offsets * 0 + 9, scratch)
        for offset, begin in zip(offsets.tolist(), begins.tolist()):
            assert data[begin : begin + 9].tobytes() == whole[offset : offset + 9]
        print("good")
    except OSError as error:
        print(error.errno, error.filename, error.__notes__)
"""
PUBLISH = """
import os
import sys
from penstock._storage.local import publish
try:
    publish(sys.argv[1], b"second" if os.path.exists(sys.argv[1]) else b"first")
    print("published")
except OSError as error:
    print(error.errno)
"""


def files(folder: Path) -> list[str]:
    for number in range(2):
        (folder / str(number)).write_bytes(b"abcdef")
    return [str(folder / str(number)) for number in range(2)]


@needs_strace
def test_an_interrupted_read_is_taken_up_again(tmp_path: Path) -> None:
    paths = files(tmp_path)
    assert failing(READ, *paths, call="pread64", error="EINTR", when=1, more="+2", mark=paths[0]) == ["abcabc"] * 4


@needs_strace
def test_an_interrupted_opening_is_taken_up_again(tmp_path: Path) -> None:
    paths = files(tmp_path)
    assert failing(READ, *paths, call="openat", error="EINTR", when=1, mark=paths[0]) == ["abcabc"] * 4


@needs_strace
@pytest.mark.skipif(backend() != "c" or not can_sink() or not sys.platform.startswith("linux"), reason="nothing is mapped here")
def test_a_copy_out_of_a_map_that_fails_is_read_and_an_error_of_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(100_000))
    log, trace = f"{path}.log", ["-e", "trace=pwritev,pread64"]
    assert run(READ_MAPPED, str(path), options=["-o", log, *trace]) == ["good"] * 4
    calls = Path(log).read_text()
    copies, before = calls.count("pwritev("), calls[: calls.index("pwritev(")].count("pread64(")
    assert copies == 3, "the first read opens the file and maps it"
    for name in ("EFAULT", "EINTR"):
        assert run(READ_MAPPED, str(path), options=["-o", os.devnull, *trace, "-e", f"inject=pwritev:error={name}:when=1+"]) == ["good"] * 4
    both = ["-e", "inject=pwritev:error=EFAULT:when=1", "-e", f"inject=pread64:error=EIO:when={before + 5}"]
    lines = run(READ_MAPPED, str(path), options=["-o", os.devnull, *trace, *both])
    assert (lines[0], *lines[2:]) == ("good",) * 3
    assert lines[1].startswith(f"{errno.EIO} {path} ")


@needs_strace
@pytest.mark.parametrize("call", core(["write", "fsync"]))
def test_an_interrupted_step_of_publishing_is_taken_up_again(tmp_path: Path, call: str) -> None:
    assert failing(PUBLISH, str(tmp_path / "a"), call=call, error="EINTR", when=1, mark=".part") == ["published"]
    assert (tmp_path / "a").read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["a"]


@needs_strace
@pytest.mark.parametrize("name", core(["EIO", "EACCES", "EAGAIN"]))
def test_a_read_that_fails_is_the_systems_error_with_the_path_and_the_next_one_works(tmp_path: Path, name: str) -> None:
    paths = files(tmp_path)
    lines = failing(READ, *paths, call="pread64", error=name, when=4, mark=paths[0])
    assert lines[0] == lines[2] == lines[3] == "abcabc"
    assert lines[1].startswith(f"{getattr(errno, name)} {paths[1]}")
    assert "reading a file of read_x" in lines[1]


@needs_strace
def test_a_stale_handle_is_opened_again_once(tmp_path: Path) -> None:
    paths = files(tmp_path)
    assert failing(READ, *paths, call="pread64", error="ESTALE", when=4, mark=paths[0]) == ["abcabc"] * 4
    lines = failing(READ, *paths, call="pread64", error="ESTALE", when=4, more="+", mark=paths[0])
    assert lines[0] == "abcabc"
    assert all(line.startswith(tuple(f"{errno.ESTALE} {path}" for path in paths)) for line in lines[1:])


@needs_strace
@pytest.mark.parametrize(
    ("call", "name"),
    core([("fsync", "EIO"), ("write", "ENOSPC"), ("rename", "EROFS"), ("fsync", "EDQUOT"), ("write", "EAGAIN"), ("close", "EIO")], 3),
)
def test_a_publish_that_fails_at_any_step_says_so_and_leaves_the_old_file_alone(tmp_path: Path, call: str, name: str) -> None:
    lines = failing(PUBLISH, str(tmp_path / "a"), call=call, error=name, when=1, mark=".part")
    assert lines == [str(getattr(errno, name))]
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


BUILD = """
import os, signal, sys
from penstock.sources.text import text_source
at = sys.argv[2]
replace = os.replace
def step(*names):
    if at == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*names)
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = step
text_source(sys.argv[1])
"""


@pytest.mark.parametrize(("step", "there"), [("before", False), ("behind", True)])
def test_a_process_that_is_killed_around_the_rename_leaves_no_index_or_a_whole_one(tmp_path: Path, step: str, there: bool) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    assert python("-c", BUILD, tmp_path / "a", step).returncode == -9
    assert (tmp_path / ".penstock" / "a.psidx").exists() == there
    if there:
        assert len(decode((tmp_path / ".penstock" / "a.psidx").read_bytes(), "x")) == 2
    assert len(penstock.read_text(tmp_path / "a")) == 2
    assert len(decode((tmp_path / ".penstock" / "a.psidx").read_bytes(), "x")) == 2
