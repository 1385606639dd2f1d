"""Workers as real processes: order, shares, seeds, deaths, ends. FAULTS A20, A21, B25, B28, B30."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from enqueuer import feeding
from programs import output_of

import penstock as ps
from penstock.errors import PlanError, SpecError, WorkerDied

pytestmark = pytest.mark.usefixtures("fork_server")

METHODS = ["forkserver", "fork"]


def started(generator: Any, workers: int = 2, max_queue_size: int = 10, **options: Any) -> ps.GeneratorEnqueuer:
    enqueuer = ps.GeneratorEnqueuer(generator, True, **options)
    enqueuer.start(workers, max_queue_size)
    return enqueuer


def all_of(generator: Any, workers: int = 2, **options: Any) -> list[Any]:
    with started(generator, workers, **options) as enqueuer:
        return list(enqueuer.get())


def test_without_share_each_process_gives_a_copy_and_they_take_turns() -> None:
    assert all_of(feeding.twenty, 3) == [number for number in range(20) for _ in range(3)]
    assert all_of(feeding.twenty(), 2) == [number for number in range(20) for _ in range(2)]


@pytest.mark.parametrize("workers", [1, 2, 3, 7, pytest.param(25, marks=pytest.mark.slow)])
def test_with_share_each_item_comes_once_and_in_order(workers: int) -> None:
    assert all_of(feeding.twenty, workers, share=True, start_method="fork") == list(range(20))


def test_a_callable_that_takes_worker_and_num_workers_makes_its_share_itself() -> None:
    for share in (True, False):
        assert all_of(feeding.own_share, 4, share=share) == [(number, number % 4) for number in range(21)]


@pytest.mark.parametrize("method", METHODS)
def test_each_worker_has_its_own_seed_and_a_run_with_the_same_seeds_is_the_same(method: str) -> None:
    first = all_of(feeding.noise, 3, random_seed=5, start_method=method)
    assert first == all_of(feeding.noise, 3, random_seed=5, start_method=method)
    assert len(set(first)) == len(first)
    state = np.random.RandomState(6)
    assert first[1::3][0][0] == state.randint(10**9)  # worker 1 draws as np.random.seed(5 + 1) does


@pytest.mark.parametrize("method", METHODS)
def test_without_a_seed_no_two_workers_draw_the_same(method: str) -> None:
    # The classic trap: forked copies of one np.random.
    drawn = all_of(feeding.noise, 3, start_method=method)
    assert len(set(drawn)) == len(drawn)


def test_a_function_that_cannot_be_pickled_is_an_error_that_names_it_and_fork_takes_it() -> None:
    lock = threading.Lock()

    def two() -> Iterator[int]:
        with lock:
            yield from (1, 2)

    with pytest.raises(PlanError) as caught:
        started(two)
    place = f"variable `lock` of function `{two.__qualname__}`"
    assert f"a value of type _thread.lock cannot be sent to another process (at {place})" in caught.value.what
    assert "only fork takes such objects along" in caught.value.fix
    assert all_of(two, 1, start_method="fork") == [1, 2]


@pytest.mark.parametrize("generator", [lambda: iter([1, 2]), [1, 2]])
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_lambda_and_an_iterable_are_sent_by_value(method: str, generator: Any) -> None:
    assert all_of(generator, 1, start_method=method) == [1, 2]


def test_a_generator_object_beside_other_threads_warns_and_works() -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="a bystander")
    thread.start()
    enqueuer = ps.GeneratorEnqueuer(feeding.twenty(), True)
    try:
        with pytest.warns(RuntimeWarning, match="is forked while other threads run .a bystander."):
            enqueuer.start(1)
        assert list(enqueuer.get()) == list(range(20))
    finally:
        enqueuer.stop()
        leave.set()
        thread.join()


def test_a_generator_object_in_this_process_stays_where_it_was() -> None:
    generator = feeding.twenty()
    assert next(generator) == 0
    assert all_of(generator, 1) == list(range(1, 20))
    assert next(generator) == 1
    generator.close()


@pytest.mark.parametrize(
    ("generator", "kind", "place"), [(feeding.one_lock, "_thread.lock", " (at ['f'])"), (feeding.one_file, "_io.TextIOWrapper", "")]
)
def test_an_item_that_cannot_be_pickled_is_an_error_with_its_type_and_the_worker(generator: Any, kind: str, place: str) -> None:
    with started(generator, 2) as enqueuer:
        with pytest.raises(SpecError) as caught:
            list(enqueuer.get())
        assert caught.value.what.startswith(f"a value of type {kind} cannot be sent to another process{place}: ")
        assert caught.value.where.startswith("worker 0 of GeneratorEnqueuer(")


def test_an_item_that_cannot_be_read_here_is_an_error_of_its_own_with_the_worker() -> None:
    got: list[Any] = []
    with started(feeding.unreadable, 1) as enqueuer, pytest.raises(ValueError, match="not to be read") as caught:
        feeding.take(enqueuer, got)
    assert got == ["before"]
    assert caught.value.__notes__ == ["penstock: GeneratorEnqueuer(unreadable), worker 0"]


def test_a_long_queue_of_small_arrays_needs_few_descriptors() -> None:
    with started(feeding.two_thousand, 1, 2000) as enqueuer:
        items = enqueuer.get()
        kept = [next(items)]
        while (item := next(items, None)) is not None:
            kept.append(item)
            if len(kept) == 1500:
                assert len(os.listdir("/proc/self/fd")) < 500
    assert [int(array[0]) for array in kept] == list(range(2000))
    assert all((array == array[0]).all() for array in kept)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_worker_that_is_killed_is_named_with_its_signal_behind_what_it_gave(number: signal.Signals) -> None:
    got: list[Any] = []
    with started(feeding.Dies(3, number), 1) as enqueuer, pytest.raises(WorkerDied) as caught:
        feeding.take(enqueuer, got)
    assert [int(array[0]) for array in got] == [0, 1, 2]
    assert caught.value.what.startswith("worker 0 of GeneratorEnqueuer(Dies) (process ")
    assert caught.value.what.endswith(f"was killed by {number.name}")
    assert not enqueuer.is_running()


@pytest.mark.parametrize("after", [0, 1, 10])
def test_a_worker_that_is_killed_at_any_item_is_never_an_end_and_the_others_go_too(after: int) -> None:
    got: list[Any] = []
    with started(feeding.KillsItself(after), 3, 4) as enqueuer, pytest.raises(WorkerDied, match=r"^worker 0 of "):
        feeding.take(enqueuer, got)
    assert [set(array.tolist()) for array in got] == [{number // 3} for number in range(len(got))]
    assert len(got) <= 3 * after + 2


@pytest.mark.slow
def test_150_runs_that_end_in_random_ways_lose_nothing_and_leave_nothing() -> None:
    rng = random.Random(4)
    for run in range(150):
        end, num = rng.choice(["itself", "error", "death", "stop", "kill"]), rng.choice([0, 1, 5, 40, 200])
        at, num_kept = rng.randrange(num + 1), rng.choice([1, 3, 30])
        enqueuer = ps.GeneratorEnqueuer(feeding.Ends(end, num, at), True, share=True, start_method="fork")
        enqueuer.start(rng.randint(1, 4), rng.choice([1, 2, 5, 10, 50]))
        count, caught, kept = 0, None, deque[Any](maxlen=num_kept)
        try:
            for pid, array in enqueuer.get():
                kept.append((count, array))
                assert all((other == number).all() for number, other in kept)
                if count == at and end == "stop":
                    enqueuer.stop(rng.choice([None, 0.0, 5.0]))
                if count == at and end == "kill":
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                count += 1
        except (KeyError, WorkerDied) as error:
            caught = type(error)
        enqueuer.stop()
        told = f"run {run}: {end} at {at} of {num}: {count} items, {caught}"
        if end == "error":
            assert (count, caught) == ((at, KeyError) if at < num else (num, None)), told
        elif end == "death":
            assert (count <= at and caught is WorkerDied) if at < num else (count, caught) == (num, None), told
        elif end == "kill":
            assert caught is WorkerDied or count == num, told
        else:
            assert (count, caught) == (at + 1 if end == "stop" and at < num else num, None), told


def test_the_death_of_a_worker_is_told_while_another_one_keeps_the_loop_waiting() -> None:
    with started(feeding.stuck_or_pid, 2, share=True) as enqueuer:
        items = enqueuer.get()
        pid = int(next(items))  # of worker 0; worker 1 gives nothing, and it is its turn
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied) as caught:
            next(items)
        assert caught.value.what.startswith(f"worker 0 of GeneratorEnqueuer(stuck_or_pid) (process {pid}) was killed")
        enqueuer.stop(0.1)


def test_stop_kills_a_process_that_is_stuck_and_deaf() -> None:
    enqueuer = started(feeding.deaf_at_three, 2)
    items = enqueuer.get()
    assert [next(items) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
    enqueuer.stop(0.1)


def test_stop_lets_a_generator_clean_up(tmp_path: Path) -> None:
    enqueuer = started(feeding.WritesAtEnd(tmp_path / "log"), 1)
    assert next(enqueuer.get()) == 0
    enqueuer.stop(30)
    assert (tmp_path / "log").read_text() == "closed"


def test_what_processes_make_ahead_is_bounded(tmp_path: Path) -> None:
    with started(feeding.Counts(tmp_path), 2, 4) as enqueuer:
        items = enqueuer.get()
        for _ in range(10):
            next(items)
        # An item tells how many its process has made. Of 4 that may wait, each worker's share; one more in hand and one being sent.
        made = int(next(items)) + int(next(items))
    assert made <= 12 + 4 + 4


def test_an_end_of_one_worker_leaves_the_others_running() -> None:
    assert all_of(feeding.uneven, 3) == ["0:0", "1:0", "2:0", "0:1", "1:1", "0:2"]


def test_an_error_of_one_worker_comes_at_its_turn() -> None:
    got: list[str] = []
    with started(feeding.fails_in_worker_one, 3) as enqueuer, pytest.raises(ValueError, match="of worker 1"):
        feeding.take(enqueuer, got)
    assert got == ["0:0", "1:0", "2:0", "0:1"]


PROGRAM = """
import sys, threading
import penstock as ps
from enqueuer import feeding

if __name__ == "__main__":
    enqueuer = ps.GeneratorEnqueuer(getattr(feeding, sys.argv[1]), True, start_method=sys.argv[2])
    enqueuer.start(2)
    items = enqueuer.get()
    print(next(items), next(items), flush=True)
    if sys.argv[3] == "wait":
        threading.Event().wait()
    if sys.argv[3] == "loop":
        for item in items:
            pass
"""


def program(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    folders = [str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONWARNINGS": "error", "TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_workers_of_a_program_that_is_killed_end_with_it(method: str, tmp_path: Path) -> None:
    with program(tmp_path, "pids", method, "wait") as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        handles = [os.pidfd_open(pid) for pid in workers]
        parent.kill()
        for handle in handles:
            assert ended(handle)
            os.close(handle)


def ended(handle: int) -> bool:
    import select

    return bool(select.select([handle], [], [], 20.0)[0])


@pytest.mark.parametrize(("method", "generator"), [("forkserver", "pids"), ("fork", "deaf_and_pid")])
def test_a_program_that_exits_without_stop_takes_its_workers_along_and_says_nothing(method: str, generator: str, tmp_path: Path) -> None:
    with program(tmp_path, generator, method, "exit") as parent:
        out, errors = parent.communicate(timeout=60)
    assert (parent.returncode, errors) == (0, "")
    for pid in out.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_is_one_keyboard_interrupt_of_the_program_alone(method: str, tmp_path: Path) -> None:
    with program(tmp_path, "pids", method, "loop") as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        os.killpg(parent.pid, signal.SIGINT)  # as the terminal does: to all of them
        _, errors = parent.communicate(timeout=60)
    assert parent.returncode == -signal.SIGINT
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_program_without_a_guard_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import penstock as ps\nprint('begins')\ndef two():\n    yield from (1, 2)\n"
        "enqueuer = ps.GeneratorEnqueuer(two, True, start_method='spawn')\nenqueuer.start(1)\nprint(list(enqueuer.get()))\n"
    )
    assert output_of(script, TMPDIR=str(tmp_path)) == "begins\n[1, 2]\n"
