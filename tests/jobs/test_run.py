from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from core import core
from jobs import acting

import penstock as ps
from penstock.errors import PlanError, StateMismatch
from penstock.jobs import NOT_KEPT, JobsProgress, Skipped

SOURCE = str(Path(ps.__file__).parents[1])
EXECUTORS: list[Any] = ["processes", "threads", "inline"]
METHODS = core(["forkserver", "spawn"])

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes and signals of POSIX"),
]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_results_are_those_of_a_loop_in_its_order(executor: Any, num_workers: int) -> None:
    for jobs in ([], [3], range(11), {7: "a", 2: "b"}):
        assert ps.parallel_jobs(acting.square, (job for job in jobs), num_workers, executor=executor) == [job * job for job in jobs]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_default_is_processes_one_per_cpu(method: Any) -> None:
    pids = ps.parallel_jobs(acting.turn, [("pid", None)] * 40, method=method)
    assert os.getpid() not in pids
    assert len(set(pids)) <= len(os.sched_getaffinity(0))


def test_no_workers_are_the_callers_thread() -> None:
    assert ps.parallel_jobs(lambda job: threading.current_thread(), [1, 2], 0) == [threading.current_thread()] * 2


def under(lock: Any) -> Any:
    def locked(job: Any) -> Any:
        with lock:
            return job

    return locked


async def later(job: int) -> int:
    return job


WRONG: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("no function", 3, {}, "3 is not callable", "parallel_jobs"),
    ("an async function", later, {}, "parallel_jobs does not await its function", "parallel_jobs(later)"),
    ("no list", acting.square, {"jobs": 3}, "jobs=3 is not a list of jobs", "parallel_jobs()"),
    ("workers below none", acting.square, {"num_workers": -1}, "num_workers=-1 is not a whole number >= 0", "parallel_jobs()"),
    ("half a worker", acting.square, {"num_workers": 1.5}, "num_workers=1.5 is not a whole number", "parallel_jobs()"),
    ("an executor", acting.square, {"executor": "gpu"}, "executor='gpu' is not known", "parallel_jobs()"),
    ("fork", acting.square, {"method": "fork"}, "method='fork' is not known", "parallel_jobs()"),
    ("a policy", acting.square, {"on_error": "skip"}, "on_error='skip' is no policy", "parallel_jobs()"),
    ("a replacement", acting.square, {"on_error": ps.Retry(1, then=ps.Replace())}, "no other job to put in its place", "(on_error=...)"),
    ("progress", acting.square, {"progress": "fast"}, "progress='fast' is not known", "parallel_jobs()"),
    ("a lock", under(threading.Lock()), {}, "(at variable `lock` of function `under.<locals>.locked`)", "parallel_jobs(fn, ...)"),
]


@pytest.mark.parametrize(("fn", "options", "what", "where"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_work_is_refused_before_anything_starts(fn: Any, options: dict[str, Any], what: str, where: str) -> None:
    with pytest.raises(PlanError) as caught:
        ps.parallel_jobs(fn, **{"jobs": [1, 2], **options})
    assert what in caught.value.what
    assert where in caught.value.where
    assert caught.value.fix
    assert multiprocessing.active_children() == []


def test_what_cannot_be_sent_is_told_what_to_do_and_runs_in_threads() -> None:
    function = under(threading.Lock())
    with pytest.raises(PlanError) as caught:
        ps.parallel_jobs(function, [1])
    assert "open files, locks and clients inside it" in caught.value.fix
    assert 'executor="threads"' in caught.value.fix
    assert ps.parallel_jobs(function, [1], executor="threads") == [1]


def test_a_lambda_and_a_class_of_an_inner_scope_go_there_and_come_back_as_they_are() -> None:
    class Point(NamedTuple):
        x: int

    assert ps.parallel_jobs(lambda point: Point(point.x + 1), [Point(1)]) == [Point(2)]
    assert type(ps.parallel_jobs(lambda point: Point(point.x + 1), [Point(1)])[0]) is Point


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_policy_is_for_all_executors(executor: Any, tmp_path: Path) -> None:
    jobs = [("value", 0), ("fail", 1), ("only once", str(tmp_path / "fail-1")), ("value", 3)]
    found = ps.parallel_jobs(acting.turn, jobs, 2, executor=executor, on_error=ps.Retry(1, then=ps.Skip()))
    assert (found[0], found[2], found[3]) == (0, "done at try 2", 3)
    assert isinstance(found[1], Skipped)
    assert (found[1].index, str(found[1].error)) == (1, "bad 1")
    assert any("job 1 of 4" in note for note in found[1].error.__notes__)
    with pytest.raises(ValueError):
        ps.parallel_jobs(acting.turn, jobs, 2, executor=executor)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_second_call_does_only_what_the_first_has_not(executor: Any, tmp_path: Path) -> None:
    done = tmp_path / "done"
    good = tmp_path / "good-0"
    jobs = [("only once", str(good)), ("only once", str(tmp_path / "fail-1")), ("value", {"a": (1, None)}), ("value", {3})]
    for options in ({"on_error": ps.Skip()}, {}, {}):
        found = ps.parallel_jobs(acting.turn, jobs, 2, executor=executor, done=done, **options)
    assert found == ["done at try 1", "done at try 2", {"a": (1, None)}, NOT_KEPT]
    assert good.read_text() == "x"
    with pytest.raises(StateMismatch):
        ps.parallel_jobs(acting.turn, jobs[:2], 2, executor=executor, done=done)
    with pytest.raises(StateMismatch, match=r"another function: 'jobs\.acting\.turn', and now it is 'jobs\.acting\.none'"):
        ps.parallel_jobs(acting.none, jobs, 2, executor=executor, done=done)


def test_an_error_of_the_generator_of_jobs_is_raised_as_itself() -> None:
    def jobs() -> Iterator[int]:
        yield 1
        raise TypeError("of the generator")

    with pytest.raises(TypeError, match="of the generator"):
        ps.parallel_jobs(abs, jobs(), executor="inline")


def test_a_done_list_of_everything_starts_nothing(tmp_path: Path) -> None:
    first = ps.parallel_jobs(acting.arrays, range(5), 2, done=tmp_path / "done")
    lines: list[JobsProgress] = []
    again = ps.parallel_jobs(acting.arrays, range(5), 2, done=tmp_path / "done", progress=lines.append)
    assert lines == []
    assert [(one["x"].tolist(), one["x"].dtype, one["y"]) for one in again] == [
        (one["x"].tolist(), one["x"].dtype, one["y"]) for one in first
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_progress_is_told_in_the_callers_thread(executor: Any, tmp_path: Path) -> None:
    told: list[JobsProgress] = []
    threads = set()

    def tell(progress: JobsProgress) -> None:
        told.append(progress)
        threads.add(threading.current_thread())

    jobs = [("value", 0), ("fail", 1), ("value", 2)]
    ps.parallel_jobs(acting.turn, jobs, 2, executor=executor, on_error=ps.Skip(), progress=tell, done=tmp_path / "done")
    assert (told[-1].done, told[-1].total, told[-1].skipped, told[-1].left_s) == (3, 3, 1, 0.0)
    assert threads == {threading.current_thread()}
    assert [one.done for one in told] == sorted(one.done for one in told)
    told.clear()
    ps.parallel_jobs(acting.turn, jobs, 2, executor=executor, on_error=ps.Skip(), progress=tell, done=tmp_path / "done")
    assert [(one.done, one.total, one.skipped) for one in told] == [(3, 3, 1)]
    assert told[0].elapsed_s >= 0


PROGRAM = """
import sys, time
sys.path[:0] = [{source!r}]
import penstock as ps
from penstock.observe import progress
progress._SILENT_S = progress._LOG_EVERY_S = 0.0

{body}
"""


def program(tmp_path: Path, body: str, *, as_text: bool = False, stderr: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    text = PROGRAM.format(source=SOURCE, body=body)
    file = tmp_path / "program.py"
    file.write_text(text)
    command = [sys.executable, "-W", "error", *(["-c", text] if as_text else [str(file)])]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=100, check=False, cwd=tmp_path)


def test_a_line_is_written_to_what_is_no_terminal_only_when_asked(tmp_path: Path) -> None:
    runs = """
    for progress in (True, False, "always"):
        print(progress, file=sys.stderr)
        ps.parallel_jobs(abs, [1, -2, 3], 2, executor="threads", progress=progress)
    """
    done = program(tmp_path, textwrap.dedent(runs))
    assert done.returncode == 0
    assert re.match(r"True\nFalse\nalways\n(abs \[#+\.*\] [123]/3 jobs, [0-9,]+/s, 0 s left\n)+$", done.stderr), done.stderr


def test_a_line_is_drawn_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        done = program(tmp_path, 'ps.parallel_jobs(time.sleep, [0.2] * 3, 1, executor="threads", progress=True)', stderr=theirs)
        text = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert "3/3 jobs" in text


SQUARES = """
def square(job):
    return job * job
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_program_without_a_guard_is_run_once(tmp_path: Path, method: str) -> None:
    done = program(tmp_path, SQUARES + f'print("begins")\nprint(ps.parallel_jobs(square, range(5), 2, method="{method}"))')
    assert (done.stdout, done.stderr, done.returncode) == ("begins\n[0, 1, 4, 9, 16]\n", "", 0)


def test_a_program_that_a_child_process_of_its_own_imports_is_told_of_the_guard(tmp_path: Path) -> None:
    start = "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=abs, args=(1,)).start()\n"
    done = program(tmp_path, SQUARES + "ps.parallel_jobs(square, range(5), 2)\n" + start)
    assert "PlanError: parallel_jobs is reached while a child process imports the program" in done.stderr
    assert "put what the program does under `if __name__ == '__main__':`" in done.stderr


def test_a_program_without_a_file_runs_its_own_function(tmp_path: Path) -> None:
    done = program(tmp_path, SQUARES + "print(ps.parallel_jobs(square, [-1, 2], 2))", as_text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("[1, 4]\n", "", 0)


def test_a_worker_may_not_start_others() -> None:
    with pytest.raises(PlanError) as caught:
        ps.parallel_jobs(acting.nested, [3], 1)
    assert caught.value.what == "a worker process cannot start processes of its own"
    assert "use threads there" in caught.value.fix


def test_the_done_list_of_a_run_is_closed_when_it_fails(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError):
            ps.parallel_jobs(acting.turn, [("value", 1), ("fail", 2)], 1, done=tmp_path / "done")
    lines = (tmp_path / "done").read_text().splitlines()
    assert [json.loads(line).get("index") for line in lines] == [None, 0]


def scaled(size: int) -> Callable[[int], int]:
    return lambda job: job * size


def test_a_rerun_with_another_function_is_refused_and_version_takes_the_place_of_the_comparison(tmp_path: Path) -> None:
    def run(fn: Callable[[int], int], **options: Any) -> list[int]:
        return ps.parallel_jobs(fn, [1, 2], executor="inline", done=tmp_path / f"done{options.get('version')}", **options)

    for options in ({}, {"version": "a"}, {"version": 3}):
        assert run(scaled(2), **options) == [2, 4]
        assert run(scaled(2), **options) == [2, 4]
    with pytest.raises(StateMismatch, match="with another source text or other values"):
        run(scaled(3))
    assert run(scaled(3), version="a") == [2, 4]
    (tmp_path / "doneb").write_bytes((tmp_path / "donea").read_bytes())
    with pytest.raises(StateMismatch, match="of another version: 'a', and now it is 'b'"):
        run(scaled(2), version="b")


def test_a_function_that_nothing_tells_from_another_needs_a_version(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(job: int) -> int:
        with lock:
            return job

    with pytest.raises(PlanError) as caught:
        ps.parallel_jobs(locked, [1], executor="inline", done=tmp_path / "done")
    assert "locked is the same function: cannot pickle" in caught.value.what
    assert "give version=" in caught.value.fix
    assert ps.parallel_jobs(locked, [1], executor="inline", done=tmp_path / "done", version=1) == [1]
    with pytest.raises(PlanError, match="version='1' without done=: nothing is compared"):
        ps.parallel_jobs(locked, [1], executor="inline", version=1)
