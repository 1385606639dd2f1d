"""The leak audit of tests/conftest.py, run on tests that leak."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import python

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"

LEAKING_TESTS = """
import _thread, gc, os, signal, subprocess, sys, tempfile, threading, weakref
import pytest

KEPT = []

def test_thread():
    release = threading.Event()
    KEPT.append(release)
    threading.Thread(target=release.wait, name="left-running", daemon=True).start()

def test_raw_thread():
    lock = threading.Lock()
    lock.acquire()
    started = threading.Event()
    KEPT.append(lock)
    _thread.start_new_thread(lambda: (started.set(), lock.acquire()), ())
    started.wait()

def test_process():
    KEPT.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_zombie():
    child = subprocess.Popen([sys.executable, "-c", ""])
    KEPT.append(child)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

def test_descriptor():
    KEPT.append(os.open(os.devnull, os.O_RDONLY))

@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")
def test_mapping_without_descriptor():
    import mmap
    fd = os.memfd_create("penstock-slot")
    os.truncate(fd, 4096)
    KEPT.append(mmap.mmap(fd, 4096, trackfd=False) if sys.version_info >= (3, 13) else mmap.mmap(fd, 4096))
    os.close(fd)

def test_temporary_file():
    handle, name = tempfile.mkstemp(prefix="penstock-")
    os.close(handle)

def test_clean(tmp_path):
    thread = threading.Thread(target=(tmp_path / "written").write_text, args=("x",))
    thread.start()
    thread.join()

def test_a_cycle_that_holds_a_descriptor_is_collected_first():
    class Holder:
        pass
    holder = Holder()
    holder.itself = holder
    weakref.finalize(holder, os.close, os.open(os.devnull, os.O_RDONLY))

def test_fails_by_itself():
    KEPT.append(os.open(os.devnull, os.O_RDONLY))
    raise AssertionError("its own reason")
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("audited")
    audit = CONFTEST.read_text(encoding="utf-8")
    assert "GRACE_S = 2.0\n" in audit
    (folder / "conftest.py").write_text(audit.replace("GRACE_S = 2.0\n", "GRACE_S = 0.05\n"), encoding="utf-8")
    (folder / "test_leaking.py").write_text(LEAKING_TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = python("-m", "pytest", "-p", "no:cacheprovider", "-q", "-rEfp", "--import-mode=importlib", folder, cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_thread", "thread 'left-running'"),
        ("test_raw_thread", "thread without a name"),
        ("test_process", "process "),
        ("test_zombie", "zombie "),
        ("test_descriptor", "-> /dev/null"),
        ("test_mapping_without_descriptor", "memfd:penstock-slot"),
        ("test_temporary_file", "temporary file "),
    ],
)
def test_a_test_that_leaks_is_an_error_that_names_what_it_left(verdicts: str, test: str, words: str) -> None:
    section = verdicts.split(f"ERROR at teardown of {test} ")[1].splitlines()
    assert section[1] == "left behind by this test:"
    assert any(line.startswith("  ") and words in line for line in section[2:4])


def test_a_clean_test_and_one_whose_garbage_is_collected_pass_the_audit(verdicts: str) -> None:
    assert "PASSED test_leaking.py::test_clean" in verdicts
    assert "PASSED test_leaking.py::test_a_cycle_that_holds_a_descriptor_is_collected_first" in verdicts
    assert "ERROR test_leaking.py::test_clean" not in verdicts
    assert "ERROR test_leaking.py::test_a_cycle" not in verdicts


def test_a_test_that_failed_by_itself_is_reported_once_with_its_own_reason(verdicts: str) -> None:
    assert "FAILED test_leaking.py::test_fails_by_itself - AssertionError: its own reason" in verdicts
    assert "ERROR test_leaking.py::test_fails_by_itself" not in verdicts
