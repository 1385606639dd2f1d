"""What limited a run, told from hand-made figures."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

import pytest

import penstock as ps
from penstock.observe import ConsumerStats, Snapshot, StageStats, explain
from penstock.observe.diagnose import judge
from penstock.observe.stats import FailureStats


def stage(name: str, *, busy_s: float, cpu_s: float, workers: tuple[int, ...] = (0, 1), num_elements: int = 10_000) -> StageStats:
    return StageStats(name=name, num_elements=num_elements, num_blocks=100, busy_s=busy_s, cpu_s=cpu_s, workers=workers)


def snapshot(*stages: StageStats, wait: float, ready: float = 0.0, num_cpus: int = 2, notices: tuple[str, ...] = ()) -> Snapshot:
    """A run of 10 s and 200 batches of which the training loop waited the share `wait`."""
    consumer = ConsumerStats(num_batches=200, first_wait_s=0.1, wait_s=9.9 * wait, span_s=9.9, mean_ready=ready)
    return Snapshot(elapsed_s=10.0, num_cpus=num_cpus, stages=stages, consumer=consumer, notices=notices)


def test_a_loop_that_never_waits_is_limited_by_its_step() -> None:
    text = explain(snapshot(stage("decode", busy_s=12.6, cpu_s=12.5), wait=0.001, ready=5.7))
    assert "the training step limited: the feed had 5.7 batches ready on average and the step waited 0.1 % of the time" in text
    assert "only a faster step makes this run faster" in text
    assert "decode  10,000 elements, 1.26 ms each; 2 workers were busy 63 %" in text


def test_a_stage_on_all_cpus_limits_and_must_become_cheaper() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=19.2), wait=0.4))
    assert verdict.kind == "cpu"
    assert verdict.stage == "decode"
    assert "stage 'decode' limited: its 2 workers were busy 98 % of the time;" in verdict.headline
    assert "used 1.9 of 2 CPUs, there are no more" in verdict.headline
    assert "make 'decode' cheaper (1.96 ms per element): smaller images, less decoding, prepare the data once" in verdict.advice[0]


def test_a_training_loop_that_shares_the_cpus_is_said_to_have_the_rest() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=15.2), wait=0.4))
    assert verdict.kind == "cpu"
    assert "the feed used 1.5 of 2 CPUs, the rest went to the training loop and to other work" in verdict.headline


def test_a_busy_stage_with_idle_cpus_asks_for_more_workers() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=19.2), wait=0.4, num_cpus=8))
    assert verdict.kind == "workers"
    assert "the feed used 1.9 of 8 CPUs" in verdict.headline
    assert "raise num_workers, or concurrency= on that map, from 2 to 8" in verdict.advice[0]


def test_workers_that_together_use_one_cpu_take_turns_at_the_gil() -> None:
    verdict = judge(snapshot(stage("tokenize", busy_s=38.0, cpu_s=9.8, workers=(0, 1, 2, 3)), wait=0.8, num_cpus=4))
    assert verdict.kind == "gil"
    assert "its 4 workers together used 1.0 CPUs, so most likely they took turns at the GIL" in verdict.headline
    assert "vectorise" in verdict.advice[0]
    assert "more threads cannot help" in verdict.advice[0]


def test_workers_that_use_no_cpu_wait_for_something_outside() -> None:
    verdict = judge(snapshot(stage("download", busy_s=19.8, cpu_s=0.4), wait=0.9))
    assert verdict.kind == "waits"
    assert "starved by stage 'download': its 2 workers were busy 99 % of the time" in verdict.headline
    assert "on a CPU for only 2.0 % of that, so most likely it waits for storage, network or a lock" in verdict.headline
    assert "concurrency= on that map (now 2, try 8)" in verdict.advice[0]


def test_a_slow_source_that_one_worker_reads_starves_the_run() -> None:
    text = explain(
        snapshot(stage("read", busy_s=9.9, cpu_s=0.1, workers=(0,)), stage("decode", busy_s=1.0, cpu_s=1.0, workers=(1, 2)), wait=0.95)
    )
    assert text.startswith("starved by stage 'read': its 1 worker was busy 99 % of the time")


def test_more_workers_than_cpus_are_told_that_more_cannot_help() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=39.2, cpu_s=19.4, workers=(0, 1, 2, 3)), wait=0.5))
    assert verdict.kind == "crowded"
    assert "busy 98 % of the time, 51 % of that waiting for a turn on one of the 2 CPUs, which were all in use" in verdict.headline
    assert "the feed had 1.9 of them, the training loop and other programs the rest" in verdict.headline
    assert "more workers cannot help" in verdict.advice[0]


def test_cpus_that_other_programs_use_are_not_mistaken_for_the_gil() -> None:
    figures = snapshot(stage("decode", busy_s=19.0, cpu_s=9.8), wait=0.9)
    assert judge(figures).kind == "gil"
    crowded = judge(dataclasses.replace(figures, machine_share=0.98))
    assert crowded.kind == "crowded"
    assert "the feed had 1.0 of them" in crowded.headline
    assert "stop other programs on this machine" in crowded.advice[0]


def test_workers_that_the_engine_let_stand_by_are_told_with_the_notice() -> None:
    alone = dataclasses.replace(stage("tokenize", busy_s=9.8, cpu_s=9.6), busiest_s=9.7)
    figures = snapshot(alone, wait=0.9, notices=("1 of 2 workers works: they wait for the GIL",))
    verdict = judge(figures)
    assert verdict.kind == "parked"
    assert "stage 'tokenize' limited: one of its 2 workers was busy 97 % of the time and the others stood by" in verdict.headline
    assert "because more workers did not make it faster" in verdict.headline
    assert "make 'tokenize' cheaper (980.0 us per element)" in verdict.advice[0]
    assert "notice: 1 of 2 workers works: they wait for the GIL" in explain(figures)
    assert "all CPUs are in use, also by other programs" in judge(dataclasses.replace(figures, machine_share=1.0)).headline


def test_cpus_that_stand_idle_are_not_called_crowded() -> None:
    figures = snapshot(stage("decode", busy_s=39.0, cpu_s=14.0, workers=(0, 1, 2, 3)), wait=0.5)
    assert judge(figures).kind == "crowded"
    assert judge(dataclasses.replace(figures, machine_share=0.8)).kind == "crowded"
    assert judge(dataclasses.replace(figures, machine_share=0.6)).kind == "gil"


def test_stages_that_share_their_workers_are_judged_together() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=14.0, cpu_s=13.9), stage("augment", busy_s=5.5, cpu_s=5.4), wait=0.4))
    assert verdict.kind == "cpu"
    assert verdict.stage == "decode"


def test_reading_in_the_training_thread_is_called_taking_turns() -> None:
    figures = snapshot(stage("in line", busy_s=6.1, cpu_s=6.0, workers=(0,)), wait=0.61)
    verdict = judge(dataclasses.replace(figures, in_line=True))
    assert verdict.kind == "inline"
    assert "reading and training took turns: nothing was read while the step ran, so the step waited 61 % of the time" in verdict.headline
    assert 'executor="threads"' in verdict.advice[0]


def test_one_thread_that_reads_ahead_does_not_take_turns_with_the_loop() -> None:
    verdict = judge(snapshot(stage("download", busy_s=9.6, cpu_s=0.1, workers=(0,)), wait=0.95))
    assert verdict.kind == "waits"
    assert "concurrency= on that map (now 1, try 4)" in verdict.advice[0]


def nap(value: int) -> int:
    time.sleep(0.004)
    return value


@pytest.mark.parametrize(("executor", "in_line"), [("threads", False), ("inline", True)])
def test_a_feed_of_one_thread_takes_turns_only_where_it_is_that_of_the_loop(executor: str, in_line: bool) -> None:
    feed = ps.from_source(range(60)).map(nap).batch(4).feed(num_workers=1, executor=executor)
    for _ in feed:
        time.sleep(0.0002)
    assert (judge(feed.stats()).kind == "inline") is in_line


def test_functions_that_sleep_on_a_busy_machine_do_not_wait_for_a_cpu() -> None:
    asleep = dataclasses.replace(stage("download", busy_s=19.8, cpu_s=0.2), watched_s=19.0, queued_s=0.4)
    verdict = judge(dataclasses.replace(snapshot(asleep, wait=0.9), machine_share=1.0))
    assert verdict.kind == "waits"
    assert "keep more requests in flight" in verdict.advice[0]
    queued = dataclasses.replace(stage("decode", busy_s=19.8, cpu_s=9.9), watched_s=19.0, queued_s=8.6)
    verdict = judge(dataclasses.replace(snapshot(queued, wait=0.9), machine_share=1.0))
    assert verdict.kind == "crowded"
    assert "busy 99 % of the time, 45 % of that waiting for a turn on one of the 2 CPUs" in verdict.headline


def test_calls_that_are_awaited_on_a_busy_machine_do_not_wait_for_a_cpu() -> None:
    lanes = tuple(range(16))
    asleep = dataclasses.replace(stage("fetch", busy_s=155.0, cpu_s=1.0, workers=lanes), watched_s=9.5, queued_s=1.0)
    assert judge(dataclasses.replace(snapshot(asleep, wait=0.9), machine_share=1.0)).kind == "waits"


def test_threads_that_take_turns_at_the_gil_may_wait_for_a_cpu_too() -> None:
    turns = dataclasses.replace(stage("tokenize", busy_s=39.0, cpu_s=5.0, workers=(0, 1, 2, 3)), watched_s=39.0, queued_s=4.0)
    verdict = judge(dataclasses.replace(snapshot(turns, wait=0.9), machine_share=1.0))
    assert verdict.kind == "gil"
    assert "its 4 workers together used 0.5 CPUs and waited for 0.4 more, so most likely" in verdict.headline


def queue(*, num_batches: int, num_calls: int, num_consumers: int = 1, wait_s: float = 2.6) -> Snapshot:
    consumer = ConsumerStats(
        num_batches=num_batches,
        first_wait_s=0.1,
        wait_s=wait_s,
        span_s=10.0,
        mean_ready=0.0,
        num_calls=num_calls,
        num_consumers=num_consumers,
    )
    return Snapshot(elapsed_s=10.0, num_cpus=2, stages=(), consumer=consumer, notices=())


def test_a_queue_counts_elements_and_calls_and_says_of_how_many_threads_a_wait_is() -> None:
    text = explain(queue(num_batches=160, num_calls=10))
    assert "run:    160 elements by 10 calls in 10.0 s" in text
    assert "0.0 ready on average, the training loop waited 26 % of the time" in text
    text = explain(queue(num_batches=160, num_calls=160, num_consumers=4))
    assert "160 elements by 160 calls" in text
    assert "the 4 threads that took them each waited 26 % of the time, on average" in text
    assert text.startswith("what fills the queue limited: the 4 threads that took them each waited 26 %")
    assert "advice: more threads that fill the queue" in text


def test_notices_are_pointed_at_where_there_are_some() -> None:
    figures = snapshot(stage("decode", busy_s=4.0, cpu_s=4.0), wait=0.3)
    assert "notices" not in explain(figures)
    assert "look at the notices below; usual reasons: batches kept" in explain(dataclasses.replace(figures, notices=("it is full",)))


def test_a_wait_that_no_stage_explains_is_called_unclear_and_the_notices_are_shown() -> None:
    text = explain(snapshot(stage("decode", busy_s=4.0, cpu_s=4.0), wait=0.3, notices=("the training loop keeps 3 batches",)))
    assert "the feed limited, but no single stage did: the training loop waited 30 % of the time" in text
    assert "the busiest stage, 'decode', was busy only 20 % of the time" in text
    assert "batches kept by the training loop hold the buffers" in text
    assert "notice: the training loop keeps 3 batches" in text


def test_short_bursts_of_waiting_ask_for_a_deeper_queue() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=9.0, cpu_s=9.0), wait=0.05, ready=3.0))
    assert verdict.kind == "unclear"
    assert "a larger memory_bytes lets more batches be ready" in verdict.advice[0]


def test_a_feed_without_any_stage_says_that_no_stage_reported_work() -> None:
    assert "no stage reported work" in judge(snapshot(wait=0.5)).headline


def test_one_batch_is_too_little_to_judge() -> None:
    consumer = ConsumerStats(num_batches=1, first_wait_s=0.1, wait_s=0.0, span_s=0.0, mean_ready=0.0)
    text = explain(Snapshot(elapsed_s=0.1, num_cpus=2, stages=(), consumer=consumer, notices=()))
    assert "too little to judge: 1 batches were delivered" in text
    assert "run more steps" in text


def test_the_report_has_the_figures_of_the_run() -> None:
    text = explain(snapshot(stage("decode", busy_s=19.6, cpu_s=19.2), wait=0.4, ready=0.2))
    assert "run:    200 batches in 10.0 s, the first after 0.10 s, 0.2 ready on average, the training loop waited 40 % of the time" in text
    assert "advice: make 'decode' cheaper" in text


def test_what_policies_did_is_said_per_stage() -> None:
    figures = dataclasses.replace(
        snapshot(wait=0.001),
        failures=(
            FailureStats(stage="read", num_skipped=0, num_replaced=0, num_retries=1200),
            FailureStats(stage="decode", num_skipped=3, num_replaced=1, num_retries=0),
        ),
    )
    lines = explain(figures).splitlines()
    assert "  failed: stage 'read': 1,200 retries" in lines
    assert "  failed: stage 'decode': 3 skipped, 1 replaced" in lines


def test_workers_that_find_the_gil_taken_are_gil_bound_however_busy_the_cpus_are() -> None:
    """Figures of a pure-Python loop on two CPUs with eight other programs: its blocks are 57 % of the time, queued for a CPU for most."""
    loop = StageStats(
        name="loop", num_elements=1200, num_blocks=600, busy_s=11.4, cpu_s=3.9, workers=(0, 1), busiest_s=5.7,
        watched_s=19.0, queued_s=11.0, num_gil_looks=73, num_gil_waits=48,
    )  # fmt: skip
    verdict = judge(snapshot(loop, wait=0.99))
    assert verdict.kind == "gil"
    assert verdict.headline == (
        "stage 'loop' limited, GIL-bound: its 2 workers together used 0.4 CPUs and waited for 1.1 more, and the GIL was taken at 66 % of "
        "73 looks"
    )
    assert "more threads cannot help" in verdict.advice[0]
    alone = judge(snapshot(dataclasses.replace(loop, workers=(0,), busy_s=9.9), wait=0.99))
    assert alone.kind != "gil"


@pytest.mark.parametrize(
    ("num_waits", "num_looks", "kind"), [(0, 60, "waits"), (20, 60, "waits"), (24, 60, "gil"), (4, 4, "gil"), (0, 4, "gil")]
)
def test_looks_for_the_gil_decide_where_there_were_enough(num_waits: int, num_looks: int, kind: str) -> None:
    """Together as much as one CPU, queued or not, is what sleeping threads come to as well, on a busy machine."""
    nap = dataclasses.replace(
        stage("nap", busy_s=38.0, cpu_s=2.0, workers=(0, 1, 2, 3)),
        watched_s=40.0, queued_s=7.0, num_gil_waits=num_waits, num_gil_looks=num_looks,
    )  # fmt: skip
    assert judge(snapshot(nap, wait=0.9)).kind == kind


@pytest.mark.parametrize(("wait", "words"), [(0.013, "the training step limited"), (0.049, "the training step limited"), (0.06, "limited")])
def test_a_loop_that_waits_a_few_percent_of_its_time_is_limited_by_its_step(wait: float, words: str) -> None:
    headline = judge(snapshot(stage("decode", busy_s=12.6, cpu_s=12.5), wait=wait)).headline
    assert words in headline
    assert headline.startswith("the training step limited") == (wait < 0.05)


_REAL_RUN = """
import hashlib, sys, time
import numpy as np
import penstock as ps
data, table = bytes(2_000_000), np.random.default_rng(0).random(200_000)
def loop(x):
    total = 0
    for number in range(40_000):
        total += number * x
    return total
def digest(x):
    return hashlib.sha256(data).hexdigest()
def sort(x):
    return float(np.sort(table)[0])
def nap(x):
    time.sleep(0.004)
    return x
name, num_workers, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ps.from_source(range(count)).map(globals()[name]).batch(8).feed(num_workers=num_workers) as feed:
    for batch in feed:
        pass
    print(feed.report())
"""


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the time that a thread is queued is read from /proc")
@pytest.mark.parametrize("num_workers", [2, 4])
@pytest.mark.parametrize(("name", "count", "gil"), [("loop", 600, True), ("digest", 400, False), ("sort", 100, False), ("nap", 300, False)])
def test_the_report_of_a_real_run_names_the_gil_exactly_for_a_function_that_holds_it(
    name: str, count: int, gil: bool, num_workers: int
) -> None:
    command = [sys.executable, "-c", _REAL_RUN, name, str(num_workers), str(count)]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        headline = done.stdout.splitlines()[0]
        if "other programs" not in headline:
            break
    else:
        pytest.skip("other programs took the CPUs in each of three runs, which is then what limits")
    assert ("GIL-bound" in headline) == gil, done.stdout
    assert ("GIL" in headline) == gil, done.stdout
    assert f"read+{name}" in headline
