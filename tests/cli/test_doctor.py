"""`penstock doctor` as a user runs it: scripts in processes of their own, and what is said of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from core import core
from programs import python

TWO_FEEDS = """
import threading
import penstock as ps

queue = ps.queues.FIFOQueue(8)

def fill():
    for batch in ps.from_source(range(100)).filter(bool).batch(10).feed():
        queue.enqueue(batch)
    queue.close()

thread = threading.Thread(target=fill)
thread.start()
for epoch in range(2):
    for batch in ps.from_source(range(30)).map(str).batch(10).feed(executor="threads", num_workers=1):
        pass
count = 0
try:
    while True:
        queue.dequeue()
        count += 1
except ps.errors.QueueClosed:
    print("dequeued", count)
thread.join()
"""

FAILS = """
import penstock as ps

def train():
    for number in ps.from_source(range(100)).map(str).feed():
        if number == "50":
            raise ValueError("no more")

train()
"""

ENDLESS = """
import penstock as ps
done = 0
try:
    for batch in ps.from_source(range(64)).map(abs).batch(8).repeat().feed():
        done += 1
finally:
    print("steps", done)
"""


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "penstock", "doctor", *arguments, cwd=folder)


def figures(folder: Path, source: str, *options: str, arguments: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    """Run a script that succeeds; return its JSON and what was printed."""
    (folder / "train.py").write_text(source, "utf-8")
    done = doctor(folder, "--json", "out.json", *options, "train.py", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return strict(folder / "out.json"), done.stdout


def strict(path: Path) -> dict[str, Any]:
    def refuse(text: str) -> Any:
        raise AssertionError(f"{text} is not JSON")

    found: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    return found


def test_two_feeds_and_a_queue(tmp_path: Path) -> None:
    report, printed = figures(tmp_path, TWO_FEEDS)
    assert "dequeued 10\n" in printed
    feeds = {feed["plan"][1]: feed for feed in report["feeds"]}
    assert (feeds["filter(bool)"]["num_feeds"], feeds["filter(bool)"]["num_batches"]) == (1, 10)
    assert (feeds["map(str)"]["num_feeds"], feeds["map(str)"]["num_batches"]) == (2, 6)
    assert "is the bottleneck" in printed or "is the training step" in printed


def test_an_error_is_shown_as_python_shows_it_and_what_ran_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILS, "utf-8")
    plain = python("train.py", cwd=tmp_path)
    done = doctor(tmp_path, "--json", "out.json", "train.py")
    assert done.returncode == plain.returncode == 1
    assert done.stderr == plain.stderr.replace(str(tmp_path) + "/", "")
    assert "ValueError: no more" in done.stderr
    assert "map(str)" in done.stdout
    assert strict(tmp_path / "out.json")["status"] == 1


def test_ctrl_c_ends_the_script_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILS.replace('ValueError("no more")', "KeyboardInterrupt"), "utf-8")
    done = doctor(tmp_path, "train.py")
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "map(str)" in done.stdout


@pytest.mark.parametrize(("end", "status", "said"), core([("sys.exit(3)", 3, ""), ("sys.exit()", 0, ""), ("sys.exit('why')", 1, "why\n")]))
def test_the_status_is_that_of_the_script(tmp_path: Path, end: str, status: int, said: str) -> None:
    (tmp_path / "train.py").write_text(f"import sys\n{end}\n", "utf-8")
    done = doctor(tmp_path, "train.py")
    assert (done.returncode, done.stderr) == (status, said)
    assert "No feed of Penstock delivered anything." in done.stdout


def test_a_script_gets_its_arguments_its_folder_and_the_name_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "beside.py").write_text("WORD = 'beside'\n", "utf-8")
    script = "import sys\nfrom beside import WORD\nprint(WORD, __name__, sys.argv[1:])\n"
    (tmp_path / "code" / "train.py").write_text(script, "utf-8")
    done = doctor(tmp_path, "code/train.py", "--lr", "3", "--json", "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "beside __main__ ['--lr', '3', '--json', 'x']"


def test_steps_interrupt_an_endless_script_behind_the_last_of_them(tmp_path: Path) -> None:
    report, printed = figures(tmp_path, ENDLESS, "--steps", "20")
    steps = int(printed.split()[1])
    assert 20 <= steps <= report["feeds"][0]["num_batches"]


def test_without_a_script_the_environment_is_described(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "out.json")
    assert (done.returncode, done.stderr) == (0, "")
    names = ["penstock", "kernels", "python", "platform", "CPUs", "memory", "libraries", "open files", "/dev/shm", "streams"]
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == names
    assert strict(tmp_path / "out.json")["libraries"]["numpy"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "there is no file 'none.py'"),
        (["--json", "none/out.json", "train.py"], "out.json' does not exist"),
    ],
)
def test_what_is_missing_is_said_before_the_script_runs(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n", "utf-8")
    done = doctor(tmp_path, *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stdout == ""
