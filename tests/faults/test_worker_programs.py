"""Whole programs with worker processes: how they exit, what signals do to them, what they find full: FAULTS A9, A21, A22, B9 to B15, B18.

Each program has a session of its own. When it has ended, whatever ended it, its session must have no process left.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from core import core
from faults.cgroups import memory_group, run_in
from faults.outside import gone, processes_of

import penstock as ps

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a program leaves behind is read from /proc")

EXIT_S, GONE_S = 30.0, 5.0
SOURCE = str(Path(ps.__file__).parents[1])

BEGIN = """
import atexit, ctypes, os, resource, signal, sys, threading, time
from pathlib import Path
import numpy as np
import penstock as ps

def work(x):
    return np.full(1000, x)

def large(x):
    return np.full(1 << 20, x % 256, np.uint8)

def computing(x):
    while x >= 50:
        pass
    return x

def children(pid):
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]

def workers_of(feed):
    return [worker for nursery in children(feed._run._process.pid) for worker in children(nursery)]

def numbers(function=work, count=10**9):
    return ps.from_source(range(count)).map(function).batch(4).with_options(executor="processes", num_workers=2)
"""


@contextmanager
def program(body: str, folder: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in its own session; kill all of it when the block is left."""
    child = subprocess.Popen(
        [*before, sys.executable, "-c", BEGIN + textwrap.dedent(body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)},
        start_new_session=True,
    )
    try:
        yield child
    finally:
        for process in processes_of(child.pid):
            os.kill(process.pid, signal.SIGKILL)
        child.communicate()


def line_of(child: subprocess.Popen[str]) -> str:
    """Return the next line that the program prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a program; return its status and what it said on stderr. Nothing of its session is left."""
    _, errors = child.communicate(timeout=EXIT_S)
    assert gone(child.pid, GONE_S) == []
    return child.returncode, errors


EXITS = {
    "at top level": (0, 'feed = iter(numbers()); next(feed); print("leaving")'),
    "in main()": (
        0,
        """
        def main():
            feed = numbers().feed()
            next(feed); print("leaving")
            return feed
        kept = main()
        """,
    ),
    "by sys.exit in a loop": (
        3,
        """
        for batch in numbers():
            print("leaving"); sys.exit(3)
        """,
    ),
    "by os._exit in a loop": (
        5,
        """
        for batch in numbers():
            print("leaving"); os._exit(5)
        """,
    ),
    "in an atexit handler": (
        0,
        """
        feed = iter(numbers()); next(feed)
        atexit.register(lambda: (next(feed), print("leaving")))
        """,
    ),
    "beside daemon threads": (
        0,
        """
        running = threading.Barrier(3)
        def train():
            for number, batch in enumerate(numbers()):
                if number == 0: running.wait()
        for _ in range(2): threading.Thread(target=train, daemon=True).start()
        running.wait(); print("leaving")
        """,
    ),
    "in a generator that nothing closes": (
        0,
        """
        def batches():
            with numbers().feed() as feed:
                try:
                    yield from feed
                finally:
                    feed.report()
        kept = batches(); next(kept); print("leaving")
        """,
    ),
    "with large batches ahead": (0, 'feed = iter(numbers(large)); next(feed); print("leaving")'),
    "between two epochs": (
        0,
        """
        feed = numbers(count=40).feed()
        list(feed); print("leaving")
        """,
    ),
}


@pytest.mark.parametrize("place", core(EXITS, ["in a generator that nothing closes", "by sys.exit in a loop", "in an atexit handler"]))
def test_a_program_with_worker_processes_exits_with_its_own_status_and_says_nothing(place: str, tmp_path: Path) -> None:
    status, body = EXITS[place]
    with program(body, tmp_path) as child:
        assert line_of(child) == "leaving"
        assert ended(child) == (status, "")


@pytest.mark.parametrize("where", core(["in the loop", "in another thread"]))
def test_an_error_of_the_program_is_its_only_traceback(where: str, tmp_path: Path) -> None:
    body = """
    for number, batch in enumerate(numbers(large)):
        if number == 3: print("leaving"); 1 // 0
    """
    if where == "in another thread":
        body = """
        feed = iter(numbers(large)); next(feed)
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start(); thread.join(); print("leaving")
        """
    with program(body, tmp_path) as child:
        assert line_of(child) == "leaving"
        status, errors = ended(child)
    assert status == int(where == "in the loop")
    assert errors.count("Traceback") == 1
    assert errors.count("ZeroDivisionError") == 1
    assert "site-packages/penstock" not in errors


DOINGS = {
    "idle": 'feed = iter(numbers(count=40)); list(feed); print("ready")',
    "computing": 'feed = numbers(computing).feed(); next(feed); print("ready")',
    "with full queues": 'feed = iter(numbers(large)); next(feed); print("ready")',
    "in a call of C that holds the interpreter": """
        path = os.path.join(os.environ["TMPDIR"], "mark")
        os.mkfifo(path)
        def in_c(x):
            if x == 50:
                with open(path, "wb"):
                    pass
                ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
            return x
        def hear():
            with open(path, "rb") as mark:
                mark.read()
            print("ready")
        threading.Thread(target=hear, daemon=True).start()
        for batch in numbers(in_c): pass
        """,
}


@pytest.mark.parametrize("doing", core(DOINGS, ["computing", "with full queues"]))
def test_workers_end_with_a_program_that_is_killed_whatever_they_do(doing: str, tmp_path: Path) -> None:
    with program(DOINGS[doing] + "\nsys.stdin.readline()" * ("C" not in doing), tmp_path) as child:
        assert line_of(child) == "ready"
        assert len(processes_of(child.pid)) == 5  # with the process that the workers are forked from
        child.send_signal(signal.SIGKILL)
        assert ended(child) == (-signal.SIGKILL, "")


@pytest.mark.parametrize("seed", core(range(20)))
def test_workers_end_with_a_program_that_is_killed_while_they_start(seed: int, tmp_path: Path) -> None:
    with program('print("starting"); feed = iter(numbers()); next(feed); next(feed); sys.stdin.readline()', tmp_path) as child:
        assert line_of(child) == "starting"
        threading.Event().wait(random.Random(seed).random() * 0.5)
        child.send_signal(signal.SIGKILL)
        assert ended(child)[0] == -signal.SIGKILL


@pytest.mark.parametrize("seed", core(range(40)))
def test_ctrl_c_of_the_terminal_is_one_keyboard_interrupt_and_leaves_nothing(seed: int, tmp_path: Path) -> None:
    body = """
    list(numbers(count=8))  # what is imported when it is first needed
    print("running")
    for batch in numbers():
        pass
    """
    with program(body, tmp_path) as child:
        assert line_of(child) == "running"
        threading.Event().wait(random.Random(seed).random() * 0.6)
        os.killpg(child.pid, signal.SIGINT)
        status, errors = ended(child)
    assert status == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1, errors
    assert errors.count("Traceback") == 1, errors


def test_sigterm_leaves_no_worker(tmp_path: Path) -> None:
    with program('feed = iter(numbers()); next(feed); print("ready"); sys.stdin.readline()', tmp_path) as child:
        assert line_of(child) == "ready"
        child.send_signal(signal.SIGTERM)
        assert ended(child) == (-signal.SIGTERM, "")


def test_the_state_that_a_handler_of_sigterm_saves_goes_on_behind_what_the_loop_got(tmp_path: Path) -> None:
    body = """
    feed = numbers(count=4000).feed()
    got = 0
    def save(*_):
        state = feed.state_dict()
        print(got, state["step"])
        feed.close()
        with numbers(count=4000).feed() as again:
            again.load_state_dict(state)
            print(int(next(again)[0, 0]))
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    for batch in feed:
        got += 1
        if got == 5: print("ready")
        time.sleep(0.001)  # the loop's own work
    """
    with program(body, tmp_path) as child:
        assert line_of(child) == "ready"
        child.send_signal(signal.SIGTERM)
        got, step = map(int, line_of(child).split())
        first = int(line_of(child))
        assert ended(child) == (0, "")
    assert got <= step <= got + 1
    assert first == 4 * step


def test_a_program_that_reaps_all_children_and_handles_sigchld_itself_is_no_hindrance(tmp_path: Path) -> None:
    body = """
    def reap(*_):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]: pass
        except ChildProcessError:
            pass
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    feed = numbers(count=4000).feed()
    got = [next(feed)]
    os.kill(workers_of(feed)[0], signal.SIGKILL)
    got += list(feed)
    print(sum(int(batch.sum()) for batch in got) == 1000 * sum(range(4000)))
    feed.close()
    """
    with program(body, tmp_path) as child:
        assert line_of(child) == "True"
        assert ended(child) == (0, "")


def test_a_full_folder_of_shared_memory_is_no_hindrance(tmp_path: Path) -> None:
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4k none /dev/shm && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    with program("print(len(list(numbers(large, count=40))))", tmp_path, *mount) as child:
        assert line_of(child) == "10"
        assert ended(child) == (0, "")


def test_the_memory_of_workers_has_no_name_that_another_run_could_take_or_find_left(tmp_path: Path) -> None:
    body = """
    names = lambda: sorted(os.listdir("/dev/shm")) + [name for name in os.listdir(os.environ["TMPDIR"]) if not name.startswith("pymp-")]
    before = names()
    with numbers(large).feed() as feed:
        for _ in range(20): next(feed)
        print(names() == before)
    """
    with program(body, tmp_path) as child:
        assert line_of(child) == "True"
        assert ended(child) == (0, "")


@pytest.mark.parametrize("end", core(["the feed is closed", "the program is killed"]))
def test_the_process_that_workers_are_forked_from_may_be_killed_and_a_worker_behind_it(end: str, tmp_path: Path) -> None:
    body = """
    parent_of = lambda pid: int(Path(f"/proc/{pid}/stat").read_text().split()[3])
    feed = numbers(count=4000).feed()
    got = [next(feed)]
    while len(workers_of(feed)) < 2: got.append(next(feed))
    workers = workers_of(feed)
    (nursery,) = {parent_of(worker) for worker in workers}
    assert parent_of(parent_of(nursery)) == os.getpid()
    os.kill(nursery, signal.SIGKILL)
    got += [next(feed) for _ in range(100)]  # those that live go on
    for worker in workers: os.kill(worker, 0)
    os.kill(workers[0], signal.SIGKILL)
    while not feed.stats().notices: got.append(next(feed))
    print(*feed.stats().notices)
    sys.stdin.readline()
    got += list(feed)
    print(sum(int(batch.sum()) for batch in got) == 1000 * sum(range(4000)))
    feed.close()
    """
    with program(body, tmp_path) as child:
        notice = line_of(child)
        assert re.fullmatch(
            r"worker process workers-[01] \(process \d+\) ended, nobody knows how; another one computes its elements again", notice
        )
        if end == "the program is killed":
            child.send_signal(signal.SIGKILL)
            assert ended(child) == (-signal.SIGKILL, "")
        else:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
            assert line_of(child) == "True"
            assert ended(child) == (0, "")


def test_a_program_without_descriptors_gets_everything_or_an_error_and_goes_on(tmp_path: Path) -> None:
    body = """
    whole = [batch.tobytes() for batch in numbers(count=80).feed(executor="inline")]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in (0, 1, 2, 3, 5, 8, 12, 17, 25, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + free, before[1]))
        got, failed = [], None
        try:
            with numbers(count=80).feed() as feed:
                for batch in feed:
                    got.append(batch.tobytes())
        except (OSError, ps.errors.PenstockError) as error:
            failed = error
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert got == whole[:len(got)] and (failed is None) == (len(got) == 20), (free, failed)
        print(free, repr(failed)[:40].replace("\\n", " "))
    """
    with program(body, tmp_path) as child:
        outcomes = [line_of(child) for _ in range(10)]
        status, errors = ended(child)
    assert status == 0, errors
    assert "ResourceWarning" not in errors, errors
    assert outcomes[0].startswith("0 OSError(24"), outcomes
    assert outcomes[-1] == "40 None", outcomes


EATS = """
import numpy as np
import penstock as ps

kept = []

def eat(x):
    if x >= 20:
        while True:
            kept.append(np.ones(4 << 20, np.uint8))
    return x

with ps.from_source(range(100)).map(eat, name="eat").feed(executor="processes", num_workers=1) as feed:
    try:
        print(len(list(feed)))
    except ps.errors.WorkerDied as died:
        print(died.what); print(died.fix); print(died.__notes__[0])
"""


@pytest.mark.slow
def test_a_worker_that_the_kernel_kills_for_want_of_memory_is_named_with_a_hint() -> None:
    with memory_group(400 << 20) as group:
        done = run_in(group, EATS)
    what, fix, note = done.stdout.splitlines()
    assert what.endswith("was killed by SIGKILL"), done
    assert fix.startswith("look for the kernel's out-of-memory killer")
    assert "index 20" in note
