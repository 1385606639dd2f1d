"""Processes of feeds, jobs and the enqueuer start wherever the program is: in a folder that is gone, without a usable TMPDIR, in a fork."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from programs import python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")

PROGRAM = """
import os, sys, tempfile
import penstock as ps

def add(number):
    return number + 1

def rows():
    return iter(range(4))

def run():
    with ps.from_source(range(40)).map(add).batch(10).feed(executor="processes", num_workers=2) as feed:
        assert [batch[0] for batch in feed] == [1, 11, 21, 31]
    assert list(ps.parallel_jobs(add, [1, 2, 3], num_workers=2, executor="processes")) == [2, 3, 4]
    enqueuer = ps.GeneratorEnqueuer(rows, use_multiprocessing=True)
    enqueuer.start()
    assert next(enqueuer.get()) == 0
    enqueuer.stop()
    print("all started", flush=True)

if __name__ == "__main__":
    PLACE
"""
PLACES = {
    "a folder that is gone": """
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        os.rmdir(folder)
        run()
    """,
    "a TMPDIR too long for sockets": """
        os.environ["TMPDIR"] = folder = os.path.join(tempfile.mkdtemp(), "a" * 120, "b" * 100)
        os.makedirs(folder)
        tempfile.tempdir = None
        run()
    """,
    "no TMPDIR": """
        os.environ["TMPDIR"] = "/nonexistent"
        tempfile.tempdir = None
        run()
    """,
    "a process forked from one that has started some": """
        run()
        pid = os.fork()
        if not pid:
            run()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_processes_start_in_any_place(place: str, tmp_path: Path) -> None:
    body = textwrap.indent(textwrap.dedent(PLACES[place]), "    ").strip()
    (tmp_path / "program.py").write_text(PROGRAM.replace("PLACE", body))
    ran = python(tmp_path / "program.py", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "all started"
