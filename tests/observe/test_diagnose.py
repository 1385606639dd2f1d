"""The bottleneck of a run and its cause, from hand-made figures; `test_scenarios.py` has real runs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.observe import ConsumerStats, Snapshot, StageStats, explain
from penstock.observe.diagnose import judge
from penstock.observe.stats import FailureStats, MemoryStats, SlowSample

FOUR = (0, 1, 2, 3)
SLOWEST = SlowSample(0.9, (0, 17), "a.jpg"), SlowSample(0.5, (0, 4))
TOLD = (
    "runs it in {0} worker processes; what it changes in this program (globals, counters, open files) then stays in the workers",
    (
        'feed(executor="threads", num_workers={0}) makes {0} calls at a time in this program, where that is safe{1}; worker processes '
        "cannot run it: they need Linux or macOS"
    ),
)


def stage(name: str, busy_s: float, cpu_s: float, workers: tuple[int, ...] = (0, 1), **more: Any) -> StageStats:
    return StageStats(**{"num_elements": 10_000, "num_blocks": 100, **more}, name=name, busy_s=busy_s, cpu_s=cpu_s, workers=workers)


def run(*stages: StageStats, wait: float, consumer: dict[str, Any] | None = None, **more: Any) -> Snapshot:
    """A run of 10 s and 200 batches of which the training loop waited the share `wait`."""
    of_loop = {"num_batches": 200, "first_wait_s": 0.1, "wait_s": 9.9 * wait, "span_s": 9.9, "mean_ready": 0.0, **(consumer or {})}
    return Snapshot(**{"elapsed_s": 10.0, "num_cpus": 2, "notices": (), **more}, stages=stages, consumer=ConsumerStats(**of_loop))


def failed(**counts: Any) -> tuple[FailureStats, ...]:
    return (FailureStats(**{"num_skipped": 0, "num_replaced": 0, "num_retries": 0, **counts}, stage="read"),)


def slow(wait: float = 0.3, consumer: dict[str, Any] | None = None, of_run: dict[str, Any] | None = None, **more: Any) -> Snapshot:
    given = {"num_elements": 1000, "median_us": 1500.0, "num_slow": 12, "slow_s": 9.0, "slowest": SLOWEST, "cpu_s": 12.0, **more}
    return run(stage("decode", 12.0, **given), wait=wait, consumer=consumer, **(of_run or {}))


def alone(**more: Any) -> Snapshot:
    return run(stage("tokenize", 9.8, 9.6, busiest_s=9.7), wait=0.9, **{"is_alone": True, "notices": ("1 of 2 workers works",), **more})


def cold(first_s: float = 3.9, span_s: float = 6.0) -> Snapshot:
    return run(stage("decode", 9.0, 1.0, first_s=first_s), wait=0.0, consumer={"first_wait_s": 4.0, "span_s": span_s})


def nap(num_waits: int, num_looks: int) -> Snapshot:
    """Together as much as one CPU, queued or not, is what sleeping threads come to as well, on a busy machine."""
    looks = {"watched_s": 40.0, "queued_s": 7.0, "num_gil_waits": num_waits, "num_gil_looks": num_looks}
    return run(stage("nap", 38.0, 2.0, FOUR, **looks), wait=0.9)


def queue(num_calls: int, num_consumers: int = 1) -> Snapshot:
    of_loop = {"num_batches": 160, "wait_s": 2.6, "span_s": 10.0, "num_calls": num_calls, "num_consumers": num_consumers}
    return run(wait=0.0, consumer=of_loop)


TAKEN = {"busiest_s": 5.7, "watched_s": 19.0, "queued_s": 11.0, "num_gil_looks": 73, "num_gil_waits": 48}
"""Of a pure-Python loop on two CPUs with eight other programs: its blocks are 57 % of the time, queued for a CPU for most."""

READ = stage("read", 19.8, 0.4)
BUSY, HALF = stage("decode", 19.6, 19.2), stage("decode", 9.0, 9.0)
KEPT = {"num_calls": 200, "most": 6, "mean_kept": 5.2}
CASES: dict[str, tuple[Snapshot, str, *tuple[str, ...]]] = {
    # what is outside of the stages
    "a loop that never waits": (
        run(stage("decode", 12.6, 12.5), wait=0.001, consumer={"mean_ready": 5.7}),
        "step",
        (
            "the training step is the bottleneck: the loop waited 0.1 % of the time for batches, of which 5.7 were ready on average; "
            "only a faster step makes this run faster\n"
        ),
        "decode  10,000 elements, 1.26 ms each; 2 workers were busy 63 %",
    ),
    "a loop that waits a little": (run(stage("decode", 12.6, 12.5), wait=0.049), "step", "the training step is the bottleneck"),
    "a loop that waits a little more": (run(stage("decode", 12.6, 12.5), wait=0.06), "unclear decode", "but no single stage is"),
    "no stage": (run(wait=0.5), "unclear", "no stage reported work"),
    "one batch": (
        run(wait=0.0, consumer={"num_batches": 1, "span_s": 0.0}),
        "nothing",
        "too little to judge: 1 batches were delivered",
        "more steps",
    ),
    "reading in the loop's thread": (
        run(stage("in line", 6.1, 6.0, (0,)), wait=0.61, in_line=True),
        "inline in line",
        (
            "input and training take turns in one thread: nothing was read while the step ran, so the loop waited 61 % of the time; "
            "read ahead while the step runs, with feed() in place of feed(num_workers=0)"
        ),
    ),
    "a slow first block": (
        cold(),
        "start decode",
        "the first batch came after 4.00 s of 10.0 s, because a worker of stage 'decode' took 3.90 s for its first block",
    ),
    "a slow first block of a long run": (cold(span_s=600.0), "step"),
    "a large buffer": (cold(first_s=0.1), "start", "smaller shuffle buffers"),
    "swapping": (
        run(READ, wait=0.9, memory=MemoryStats(num_major_faults=4_000, swapped_bytes=900_000_000)),
        "swap",
        "900 MB of this process are swapped out, and it read 4,000 pages (400/s) back; lower memory_bytes",
    ),
    "swapped out and not read back": (
        run(READ, wait=0.9, memory=MemoryStats(num_major_faults=40, swapped_bytes=900_000_000)),
        "waits read",
    ),
    "elements of a queue, taken by calls": (
        queue(10),
        "producers",
        "run:    160 elements by 10 calls in 10.0 s",
        "0.0 ready on average, the training loop waited 26 % of the time",
    ),
    "elements of a queue, taken by threads": (
        queue(160, 4),
        "producers",
        (
            "what fills the queue is the bottleneck: the 4 threads that took them each waited 26 % of the time, on average; add threads "
            "that fill the queue, or do less for each element before it\n"
        ),
        "160 elements by 160 calls",
    ),
    # buffers, memory, policies
    "buffers that were full and then empty": (
        run(HALF, wait=0.15, consumer={"num_calls": 100, "most": 6, "full_share": 0.5}),
        "bursts decode",
        (
            "too little is read ahead for bursts: the 12 batches that may be ready were so at 50 % of the deliveries, and at others the "
            "loop waited, 15 % of the time; stage 'decode' was busy 45 % of it; read further ahead, with .prefetch(48)"
        ),
    ),
    "buffers that were hardly full": (
        run(HALF, wait=0.15, consumer={"num_calls": 100, "most": 6, "full_share": 0.002}),
        "unclear decode",
        "; feed.trace() shows",
    ),
    "a wait with notices": (
        run(stage("decode", 4.0, 4.0), wait=0.3, notices=("it is full",)),
        "unclear decode",
        (
            "the loop waited for batches 30 % of the time, but no single stage is the bottleneck: the busiest stage, 'decode', was busy "
            "only 20 % of the time; look at the notices below; feed.trace() shows"
        ),
        "notice: it is full",
    ),
    "batches that are kept": (
        run(HALF, wait=0.3, consumer=KEPT, memory=MemoryStats(num_kept=5, kept_bytes=120_000_000, kept="of step 3")),
        "kept decode",
        "keeps batches: 5 on average beside the current one (120 MB, the oldest of step 3), with room for 6 in all",
        "(loss.item(), array.copy())",
    ),
    "batches that are kept beside a busy stage": (run(BUSY, wait=0.3, consumer=KEPT), "cpu decode"),
    "a budget for three batches": (
        run(HALF, wait=0.3, consumer={"num_calls": 200, "most": 3}, memory_bytes=48_000_000),
        "memory decode",
        (
            "memory_bytes (48 MB) is the bottleneck: it has room for 3 batches, so the workers of stage 'decode' waited for room 55 % "
            "of the time; raise memory_bytes to 96 MB, or make batches smaller"
        ),
    ),
    "retries": (
        run(READ, wait=0.9, failures=failed(num_retries=400, wait_s=8.0)),
        "errors read",
        "400 retries at 10,000 elements, with pauses of 8.00 s",
        "  failed: stage 'read': 400 retries",
    ),
    "skipped elements": (
        run(READ, wait=0.9, failures=failed(num_skipped=6_000, num_replaced=1)),
        "errors read",
        "6,000 skipped, 1 replaced at 10,000 elements;",
    ),
    "few errors": (run(READ, wait=0.9, failures=failed(num_skipped=60, wait_s=0.1)), "waits read"),
    # a stage that computes
    "all CPUs": (
        run(BUSY, wait=0.4, consumer={"mean_ready": 0.2}),
        "cpu decode",
        (
            "stage 'decode' is the bottleneck, CPU-bound: its 2 workers were busy 98 % of the time; the feed used 1.9 of 2 CPUs, there "
            "are no more; make 'decode' cheaper (1.96 ms per element), for example by packing the data once\n"
        ),
        "run:    200 batches in 10.0 s, the first after 0.10 s, 0.2 ready on average, the training loop waited 40 % of the time",
    ),
    "CPUs that the loop shares": (
        run(stage("decode", 19.6, 15.2), wait=0.4),
        "cpu decode",
        "the feed used 1.5 of 2 CPUs, the rest went to the training loop and to other work",
    ),
    "two stages that share their workers": (run(stage("decode", 14.0, 13.9), stage("augment", 5.5, 5.4), wait=0.4), "cpu decode"),
    "idle CPUs": (
        run(BUSY, wait=0.4, num_cpus=8),
        "workers decode",
        "the feed used 1.9 of 8 CPUs",
        "raise num_workers, or concurrency= on that map, from 2 to 8",
    ),
    "concurrency of its own": (
        run(stage("fetch", 9.9, 0.1, (0,), concurrency=1), stage("decode", 4.0, 4.0), wait=0.9),
        "concurrency fetch",
        "held back by concurrency=1: its 1 worker was busy 99 % of the time",
        "; raise concurrency= on that map from 1 to 4\n",
    ),
    "slow samples": (
        slow(),
        "slow decode",
        (
            "slow samples in stage 'decode' are the bottleneck: about 12 of 1,000 elements took 75 % of its time, the others 1.50 ms "
            "each; the slowest are epoch 0 index 17 (0.90 s, a.jpg), epoch 0 index 4 (0.50 s)"
        ),
        "ordered=False for whole batches",
    ),
    "slow samples in any order and little room": (
        slow(consumer={"most": 3}, of_run={"in_order": False, "memory_bytes": 48_000_000}),
        "slow decode",
        "memory_bytes (48 MB) has room for 3 batches, so few others went on meanwhile: raise it to",
    ),
    "slow samples in any order": (
        slow(consumer={"most": 40}, of_run={"in_order": False}),
        "slow decode",
        "; look at these elements; others went on meanwhile\n",
    ),
    "slow samples that are no exceptions": (slow(num_slow=400), "unclear decode"),
    "slow samples that wait for a CPU": (slow(cpu_s=3.0, watched_s=20.0, queued_s=15.0, of_run={"machine_share": 1.0}), "crowded decode"),
    # functions of the user's in the program
    **{
        f"a function in the program, {kind}{', no processes' * without}": (
            run(
                stage("augment", 9.9, cpu_s, (0,), in_program=True),
                stage("decode", 2.0, 1.9),
                wait=0.9,
                num_cpus=6,
                no_processes="they need Linux or macOS" * without,
            ),
            f"{kind} augment",
            TOLD[without].format(number, helps),
        )
        for kind, cpu_s, number, helps in (("workers", 9.8, 6, " and it lets go of the interpreter lock"), ("waits", 0.3, 8, ""))
        for without in (False, True)
    },
    # a stage that waits
    "no CPU": (
        run(stage("download", 19.8, 0.4), wait=0.9),
        "waits download",
        (
            "stage 'download' is the bottleneck, waiting for I/O: its 2 workers were busy 99 % of the time, but on a CPU for only 2.0 % "
            "of that, so most likely it waits for storage, network or a lock"
        ),
        "concurrency= on that map, from 2 to 8",
    ),
    "one reader": (
        run(stage("read", 9.9, 0.1, (0,)), stage("decode", 1.0, 1.0, (1, 2)), wait=0.95),
        "waits read",
        "stage 'read' is the bottleneck, waiting for I/O: its 1 worker was busy 99 % of the time",
        "concurrency= on that map, from 1 to 4",
    ),
    "page faults": (
        run(READ, wait=0.9, memory=MemoryStats(num_major_faults=4_000)),
        "faults read",
        "stage 'read' is the bottleneck, waiting for page faults:",
    ),
    "sleep on a busy machine": (
        run(stage("download", 19.8, 0.2, watched_s=19.0, queued_s=0.4), wait=0.9, machine_share=1.0),
        "waits download",
        "raise num_workers",
    ),
    "calls that are awaited on a busy machine": (
        run(stage("fetch", 155.0, 1.0, tuple(range(16)), watched_s=9.5, queued_s=1.0), wait=0.9, machine_share=1.0),
        "waits fetch",
    ),
    # a stage that waits for a CPU
    "more workers than CPUs": (
        run(stage("decode", 39.2, 19.4, FOUR), wait=0.5),
        "crowded decode",
        (
            "busy 98 % of the time, and waited 51 % of it for a turn on one of the 2 CPUs, which were all in use; the feed had 1.9 of "
            "them, the training loop and other programs the rest; stop other programs on this machine or give the process more CPUs; "
            "more workers cannot"
        ),
    ),
    "other programs": (run(stage("decode", 19.0, 9.8), wait=0.9, machine_share=0.98), "crowded decode", "the feed had 1.0 of them"),
    "more workers than CPUs that are known": (run(stage("decode", 39.0, 14.0, FOUR), wait=0.5, machine_share=0.8), "crowded decode"),
    "idle CPUs that are known": (run(stage("decode", 39.0, 14.0, FOUR), wait=0.5, machine_share=0.6), "gil decode"),
    "a queue for CPUs that is known": (
        run(stage("decode", 19.8, 9.9, watched_s=19.0, queued_s=8.6), wait=0.9, machine_share=1.0),
        "crowded decode",
        "busy 99 % of the time, and waited 45 % of it for a turn on one of the 2 CPUs",
    ),
    # a stage that waits for the GIL
    "one CPU together": (
        run(stage("tokenize", 38.0, 9.8, FOUR), wait=0.8, num_cpus=4),
        "gil tokenize",
        "most likely GIL-bound: its 4 workers were busy 95 % of the time, and its 4 workers together used 1.0 CPUs; run it",
    ),
    "one CPU together, no processes": (
        run(stage("tokenize", 38.0, 9.8, FOUR), wait=0.8, num_cpus=4, no_processes="this is Windows"),
        "gil tokenize",
        "; let 'tokenize' do more per call",
        "more threads cannot help, and worker processes cannot run it: this is Windows\n",
    ),
    "one CPU together, queued": (
        run(stage("tokenize", 39.0, 5.0, FOUR, watched_s=39.0, queued_s=4.0), wait=0.9, machine_share=1.0),
        "gil tokenize",
        "its 4 workers were busy 98 % of the time, and its 4 workers together used 0.5 CPUs and waited for 0.4 more;",
    ),
    "a lock that is found taken": (
        run(stage("loop", 11.4, 3.9, **TAKEN), wait=0.99),
        "gil loop",
        (
            "stage 'loop' is the bottleneck, GIL-bound: its 2 workers together used 0.4 CPUs and waited for 1.1 more, and the GIL was "
            "taken at 66 % of 73 looks; run it in worker processes (executor=\"processes\"), or let 'loop' do more per call (vectorise "
            "it with NumPy over a batch, or use operators that release the GIL): more threads cannot help"
        ),
    ),
    "a lock that one worker finds taken": (run(stage("loop", 9.9, 3.9, (0,), **TAKEN), wait=0.99), "crowded loop"),
    **{
        f"a lock taken at {waits} of {looks} looks": (nap(waits, looks), kind)
        for waits, looks, kind in ((0, 60, "waits nap"), (20, 60, "waits nap"), (24, 60, "gil nap"), (4, 4, "gil nap"), (0, 4, "gil nap"))
    },
    "workers that stand by": (
        alone(),
        "parked tokenize",
        (
            "stage 'tokenize' is the bottleneck: 1 of its 2 workers was busy 97 % of the time and the others stood by, because more "
            "workers did not make it faster; make 'tokenize' cheaper (980.0 us per element)"
        ),
        "notice: 1 of 2 workers works",
    ),
    "workers that stand by on a busy machine": (alone(machine_share=1.0), "parked tokenize", "all CPUs are in use, also by other programs"),
    "workers that idle": (alone(is_alone=False), "cpu tokenize"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_that_of_the_figures_with_the_numbers_and_a_change(name: str) -> None:
    figures, kind, *phrases = CASES[name]
    verdict, text = judge(figures), explain(figures)
    assert f"{verdict.kind} {verdict.stage or ''}".strip() == kind, text
    assert text.splitlines()[0] == verdict.headline
    for words in phrases:
        assert words in text
