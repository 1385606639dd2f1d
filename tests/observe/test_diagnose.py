"""The bottleneck of a run and its cause, from hand-made figures."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from core import core

import penstock as ps
from penstock.observe import ConsumerStats, Snapshot, StageStats, explain
from penstock.observe.diagnose import judge
from penstock.observe.stats import FailureStats, MemoryStats, SlowSample


def stage(name: str, *, busy_s: float, cpu_s: float, workers: tuple[int, ...] = (0, 1), num_elements: int = 10_000) -> StageStats:
    return StageStats(name=name, num_elements=num_elements, num_blocks=100, busy_s=busy_s, cpu_s=cpu_s, workers=workers)


def snapshot(*stages: StageStats, wait: float, ready: float = 0.0, num_cpus: int = 2, notices: tuple[str, ...] = ()) -> Snapshot:
    """A run of 10 s and 200 batches of which the training loop waited the share `wait`."""
    consumer = ConsumerStats(num_batches=200, first_wait_s=0.1, wait_s=9.9 * wait, span_s=9.9, mean_ready=ready)
    return Snapshot(elapsed_s=10.0, num_cpus=num_cpus, stages=stages, consumer=consumer, notices=notices)


def test_a_loop_that_never_waits_is_limited_by_its_step() -> None:
    text = explain(snapshot(stage("decode", busy_s=12.6, cpu_s=12.5), wait=0.001, ready=5.7))
    assert text.startswith(
        "the training step is the bottleneck: the loop waited 0.1 % of the time for batches, of which 5.7 were ready on average; "
        "only a faster step makes this run faster\n"
    )
    assert "decode  10,000 elements, 1.26 ms each; 2 workers were busy 63 %" in text


def test_a_stage_on_all_cpus_limits_and_must_become_cheaper() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=19.2), wait=0.4))
    assert verdict.kind == "cpu"
    assert verdict.stage == "decode"
    assert "stage 'decode' is the bottleneck, CPU-bound: its 2 workers were busy 98 % of the time;" in verdict.headline
    assert "used 1.9 of 2 CPUs, there are no more" in verdict.headline
    assert verdict.headline.endswith("; make 'decode' cheaper (1.96 ms per element), for example by packing the data once")


def test_a_training_loop_that_shares_the_cpus_is_said_to_have_the_rest() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=15.2), wait=0.4))
    assert verdict.kind == "cpu"
    assert "the feed used 1.5 of 2 CPUs, the rest went to the training loop and to other work" in verdict.headline


def test_a_busy_stage_with_idle_cpus_asks_for_more_workers() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=19.6, cpu_s=19.2), wait=0.4, num_cpus=8))
    assert verdict.kind == "workers"
    assert "the feed used 1.9 of 8 CPUs" in verdict.headline
    assert "raise num_workers, or concurrency= on that map, from 2 to 8" in verdict.change


@pytest.mark.parametrize("why", ["", "they need Linux or macOS"])
@pytest.mark.parametrize(("cpu_s", "number", "helps"), [(9.8, 6, " and it lets go of the interpreter lock"), (0.3, 8, "")])
def test_a_function_in_the_program_is_offered_threads_where_there_are_no_processes(cpu_s: float, number: int, helps: str, why: str) -> None:
    mine = dataclasses.replace(stage("augment", busy_s=9.8, cpu_s=cpu_s, workers=(0,)), in_program=True)
    text = judge(dataclasses.replace(snapshot(mine, wait=0.9, num_cpus=6), no_processes=why)).change
    assert text == (
        f'feed(executor="threads", num_workers={number}) makes {number} calls at a time in this program, where that is safe{helps};'
        f" worker processes cannot run it: {why}"
        if why
        else f"feed(num_workers={number}) runs it in {number} worker processes; what it changes in this program (globals, counters, open"
        " files) then stays in the workers"
    )


def test_workers_that_take_turns_at_the_gil_are_not_sent_where_there_are_no_processes() -> None:
    figures = snapshot(stage("tokenize", busy_s=38.0, cpu_s=9.8, workers=(0, 1, 2, 3)), wait=0.8, num_cpus=4)
    verdict = judge(dataclasses.replace(figures, no_processes="this is Windows"))
    assert verdict.kind == "gil"
    assert verdict.change.startswith("let 'tokenize' do more per call")
    assert verdict.change.endswith("more threads cannot help, and worker processes cannot run it: this is Windows")


def test_workers_that_together_use_one_cpu_take_turns_at_the_gil() -> None:
    verdict = judge(snapshot(stage("tokenize", busy_s=38.0, cpu_s=9.8, workers=(0, 1, 2, 3)), wait=0.8, num_cpus=4))
    assert verdict.kind == "gil"
    assert "most likely GIL-bound: its 4 workers were busy 95 % of the time, and its 4 workers together used 1.0 CPUs;" in verdict.headline
    assert "vectorise" in verdict.change
    assert "more threads cannot help" in verdict.change


def test_workers_that_use_no_cpu_wait_for_something_outside() -> None:
    verdict = judge(snapshot(stage("download", busy_s=19.8, cpu_s=0.4), wait=0.9))
    assert verdict.kind == "waits"
    assert "stage 'download' is the bottleneck, waiting for I/O: its 2 workers were busy 99 % of the time" in verdict.headline
    assert "on a CPU for only 2.0 % of that, so most likely it waits for storage, network or a lock" in verdict.headline
    assert "concurrency= on that map, from 2 to 8" in verdict.change


def test_a_slow_source_that_one_worker_reads_starves_the_run() -> None:
    text = explain(
        snapshot(stage("read", busy_s=9.9, cpu_s=0.1, workers=(0,)), stage("decode", busy_s=1.0, cpu_s=1.0, workers=(1, 2)), wait=0.95)
    )
    assert text.startswith("stage 'read' is the bottleneck, waiting for I/O: its 1 worker was busy 99 % of the time")


def test_more_workers_than_cpus_are_told_that_more_cannot_help() -> None:
    verdict = judge(snapshot(stage("decode", busy_s=39.2, cpu_s=19.4, workers=(0, 1, 2, 3)), wait=0.5))
    assert verdict.kind == "crowded"
    assert "busy 98 % of the time, and waited 51 % of it for a turn on one of the 2 CPUs, which were all in use" in verdict.headline
    assert "the feed had 1.9 of them, the training loop and other programs the rest" in verdict.headline
    assert "more workers cannot help" in verdict.change


def test_cpus_that_other_programs_use_are_not_mistaken_for_the_gil() -> None:
    figures = snapshot(stage("decode", busy_s=19.0, cpu_s=9.8), wait=0.9)
    assert judge(figures).kind == "gil"
    crowded = judge(dataclasses.replace(figures, machine_share=0.98))
    assert crowded.kind == "crowded"
    assert "the feed had 1.0 of them" in crowded.headline
    assert "stop other programs on this machine" in crowded.change


def test_workers_that_the_engine_let_stand_by_are_told_with_the_notice() -> None:
    alone = dataclasses.replace(stage("tokenize", busy_s=9.8, cpu_s=9.6), busiest_s=9.7)
    figures = dataclasses.replace(snapshot(alone, wait=0.9, notices=("1 of 2 workers works: they wait for the GIL",)), is_alone=True)
    verdict = judge(figures)
    assert verdict.kind == "parked"
    assert "stage 'tokenize' is the bottleneck: 1 of its 2 workers was busy 97 % of the time and the others stood by" in verdict.headline
    assert "because more workers did not make it faster" in verdict.headline
    assert "make 'tokenize' cheaper (980.0 us per element)" in verdict.change
    assert "notice: 1 of 2 workers works: they wait for the GIL" in explain(figures)
    assert judge(dataclasses.replace(figures, is_alone=False)).kind != "parked"
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
    assert (
        "input and training take turns in one thread: nothing was read while the step ran, so the loop waited 61 % of the time"
        in verdict.headline
    )
    assert verdict.change == "read ahead while the step runs, with feed() in place of feed(num_workers=0)"


def test_one_thread_that_reads_ahead_does_not_take_turns_with_the_loop() -> None:
    verdict = judge(snapshot(stage("download", busy_s=9.6, cpu_s=0.1, workers=(0,)), wait=0.95))
    assert verdict.kind == "waits"
    assert "concurrency= on that map, from 1 to 4" in verdict.change


@pytest.mark.parametrize(("cpu_s", "kind", "num_workers"), [(9.7, "workers", 4), (0.2, "waits", 8)])
def test_a_function_in_the_program_is_told_to_get_worker_processes(cpu_s: float, kind: str, num_workers: int) -> None:
    users = dataclasses.replace(stage("augment", busy_s=9.9, cpu_s=cpu_s, workers=(0,)), in_program=True)
    others = stage("decode", busy_s=2.0, cpu_s=1.9)
    verdict = judge(snapshot(users, others, wait=0.8, num_cpus=4))
    assert (verdict.kind, verdict.stage) == (kind, "augment")
    assert verdict.change == (
        f"feed(num_workers={num_workers}) runs it in {num_workers} worker processes; what it changes in this program (globals, counters, "
        "open files) then stays in the workers"
    )


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
    assert "raise num_workers" in verdict.change
    queued = dataclasses.replace(stage("decode", busy_s=19.8, cpu_s=9.9), watched_s=19.0, queued_s=8.6)
    verdict = judge(dataclasses.replace(snapshot(queued, wait=0.9), machine_share=1.0))
    assert verdict.kind == "crowded"
    assert "busy 99 % of the time, and waited 45 % of it for a turn on one of the 2 CPUs" in verdict.headline


def test_calls_that_are_awaited_on_a_busy_machine_do_not_wait_for_a_cpu() -> None:
    lanes = tuple(range(16))
    asleep = dataclasses.replace(stage("fetch", busy_s=155.0, cpu_s=1.0, workers=lanes), watched_s=9.5, queued_s=1.0)
    assert judge(dataclasses.replace(snapshot(asleep, wait=0.9), machine_share=1.0)).kind == "waits"


def test_threads_that_take_turns_at_the_gil_may_wait_for_a_cpu_too() -> None:
    turns = dataclasses.replace(stage("tokenize", busy_s=39.0, cpu_s=5.0, workers=(0, 1, 2, 3)), watched_s=39.0, queued_s=4.0)
    verdict = judge(dataclasses.replace(snapshot(turns, wait=0.9), machine_share=1.0))
    assert verdict.kind == "gil"
    assert (
        "most likely GIL-bound: its 4 workers were busy 98 % of the time, and its 4 workers together used 0.5 CPUs and waited for 0.4 more;"
        in verdict.headline
    )


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
    assert text.startswith("what fills the queue is the bottleneck: the 4 threads that took them each waited 26 %")
    assert "; add threads that fill the queue, or do less for each element before it\n" in text


def test_notices_are_pointed_at_where_there_are_some() -> None:
    figures = snapshot(stage("decode", busy_s=4.0, cpu_s=4.0), wait=0.3)
    assert "notices" not in explain(figures)
    assert "; look at the notices below; feed.trace() shows" in explain(dataclasses.replace(figures, notices=("it is full",)))


def test_a_wait_that_no_stage_explains_is_called_unclear_and_the_notices_are_shown() -> None:
    text = explain(snapshot(stage("decode", busy_s=4.0, cpu_s=4.0), wait=0.3, notices=("the training loop keeps 3 batches",)))
    assert "the loop waited for batches 30 % of the time, but no single stage is the bottleneck: the busiest stage" in text
    assert "the busiest stage, 'decode', was busy only 20 % of the time" in text
    assert "notice: the training loop keeps 3 batches" in text


def with_consumer(figures: Snapshot, **changes: Any) -> Snapshot:
    return dataclasses.replace(figures, consumer=dataclasses.replace(figures.consumer, **changes))


def test_buffers_that_were_full_and_then_empty_ask_to_read_further_ahead() -> None:
    figures = snapshot(stage("decode", busy_s=9.0, cpu_s=9.0), wait=0.15, ready=3.0)
    verdict = judge(with_consumer(figures, num_calls=100, most=6, full_share=0.5))
    assert verdict.kind == "bursts"
    assert verdict.headline.startswith(
        "too little is read ahead for bursts: the 12 batches that may be ready were so at 50 % of the deliveries, and at others the loop "
        "waited, 15 % of the time; stage 'decode' was busy 45 % of it; read further ahead, with .prefetch(48)"
    )
    assert judge(with_consumer(figures, num_calls=100, most=6, full_share=0.002)).kind == "unclear"


def test_batches_that_the_loop_keeps_are_counted_and_named() -> None:
    figures = snapshot(stage("decode", busy_s=9.0, cpu_s=9.0), wait=0.3)
    memory = MemoryStats(num_kept=5, kept_bytes=120_000_000, kept="of step 3")
    verdict = judge(dataclasses.replace(with_consumer(figures, num_calls=200, most=6, mean_kept=5.2), memory=memory))
    assert verdict.kind == "kept"
    assert "keeps batches: 5 on average beside the current one (120 MB, the oldest of step 3), with room for 6 in all" in verdict.headline
    assert "(loss.item(), array.copy())" in verdict.change
    busy = snapshot(stage("decode", busy_s=19.0, cpu_s=19.0), wait=0.3)
    assert judge(with_consumer(busy, num_calls=200, most=6, mean_kept=5.2)).kind == "cpu"


def test_a_budget_for_three_batches_is_a_bottleneck_of_its_own() -> None:
    figures = dataclasses.replace(snapshot(stage("decode", busy_s=9.0, cpu_s=9.0), wait=0.3), memory_bytes=48_000_000)
    verdict = judge(with_consumer(figures, num_calls=200, most=3))
    assert verdict.kind == "memory"
    assert verdict.headline == (
        "memory_bytes (48 MB) is the bottleneck: it has room for 3 batches, so the workers of stage 'decode' waited for room 55 % of the "
        "time; raise memory_bytes to 96 MB, or make batches smaller"
    )


def test_slow_samples_are_named() -> None:
    slow = dataclasses.replace(
        stage("decode", busy_s=12.0, cpu_s=12.0, num_elements=1000),
        median_us=1500.0, num_slow=12, slow_s=9.0, slowest=(SlowSample(0.9, (0, 17), "a.jpg"), SlowSample(0.5, (0, 4))),
    )  # fmt: skip
    verdict = judge(snapshot(slow, wait=0.3))
    assert (verdict.kind, verdict.stage) == ("slow", "decode")
    assert verdict.finding == (
        "slow samples in stage 'decode' are the bottleneck: about 12 of 1,000 elements took 75 % of its time, the others 1.50 ms each; the "
        "slowest are epoch 0 index 17 (0.90 s, a.jpg), epoch 0 index 4 (0.50 s)"
    )
    assert "ordered=False for whole batches" in verdict.change
    unordered = dataclasses.replace(with_consumer(snapshot(slow, wait=0.3), most=3), in_order=False, memory_bytes=48_000_000)
    assert "memory_bytes (48 MB) has room for 3 batches, so few others went on meanwhile: raise it to" in judge(unordered).change
    assert judge(with_consumer(unordered, most=40)).change == "look at these elements; others went on meanwhile"
    assert judge(snapshot(dataclasses.replace(slow, num_slow=400), wait=0.3)).kind == "unclear"  # those are no exceptions
    crowded = dataclasses.replace(slow, cpu_s=3.0, watched_s=20.0, queued_s=15.0)
    assert judge(dataclasses.replace(snapshot(crowded, wait=0.3), machine_share=1.0)).kind == "crowded"


def test_a_first_batch_that_takes_a_large_part_of_the_run_is_a_cold_start() -> None:
    cold = dataclasses.replace(stage("decode", busy_s=9.0, cpu_s=1.0), first_s=3.9)
    figures = with_consumer(snapshot(cold, wait=0.001), first_wait_s=4.0, span_s=6.0, wait_s=0.0)
    verdict = judge(figures)
    assert (verdict.kind, verdict.stage) == ("start", "decode")
    assert (
        "the first batch came after 4.00 s of 10.0 s, because a worker of stage 'decode' took 3.90 s for its first block" in verdict.finding
    )
    long = with_consumer(figures, span_s=600.0)
    assert judge(long).kind == "step"
    buffered = judge(dataclasses.replace(figures, stages=(dataclasses.replace(cold, first_s=0.1),)))
    assert (buffered.kind, buffered.stage) == ("start", None)
    assert "smaller shuffle buffers" in buffered.change


def test_swapping_is_named_before_anything_else_and_page_faults_where_a_stage_waits() -> None:
    waits = snapshot(stage("read", busy_s=19.8, cpu_s=0.4), wait=0.9)
    memory = MemoryStats(num_major_faults=4_000, swapped_bytes=900_000_000)
    verdict = judge(dataclasses.replace(waits, memory=memory))
    assert verdict.kind == "swap"
    assert "900 MB of this process are swapped out, and it read 4,000 pages (400/s) back; lower memory_bytes" in verdict.headline
    faults = judge(dataclasses.replace(waits, memory=MemoryStats(num_major_faults=4_000)))
    assert faults.kind == "faults"
    assert "stage 'read' is the bottleneck, waiting for page faults:" in faults.headline
    assert judge(dataclasses.replace(waits, memory=MemoryStats(num_major_faults=40, swapped_bytes=900_000_000))).kind == "waits"


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (
            FailureStats(stage="read", num_skipped=0, num_replaced=0, num_retries=400, wait_s=8.0),
            "400 retries at 10,000 elements, with pauses of 8.00 s",
        ),
        (FailureStats(stage="read", num_skipped=6_000, num_replaced=0, num_retries=0), "6,000 skipped at 10,000 elements;"),
    ],
)
def test_errors_that_eat_the_time_are_counted(failed: FailureStats, words: str) -> None:
    figures = snapshot(stage("read", busy_s=19.8, cpu_s=0.4), wait=0.9)
    verdict = judge(dataclasses.replace(figures, failures=(failed,)))
    assert verdict.kind == "errors"
    assert words in verdict.headline
    few = FailureStats(stage="read", num_skipped=60, num_replaced=0, num_retries=0, wait_s=0.1)
    assert judge(dataclasses.replace(figures, failures=(few,))).kind == "waits"


def test_a_stage_of_its_own_concurrency_is_told_to_raise_it() -> None:
    fetch = dataclasses.replace(stage("fetch", busy_s=9.9, cpu_s=0.1, workers=(0,)), concurrency=1)
    others = stage("decode", busy_s=4.0, cpu_s=4.0)
    verdict = judge(snapshot(fetch, others, wait=0.9))
    assert (verdict.kind, verdict.stage) == ("concurrency", "fetch")
    assert "held back by concurrency=1: its 1 worker was busy 99 % of the time" in verdict.headline
    assert verdict.change == "raise concurrency= on that map from 1 to 4"


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
    assert "; make 'decode' cheaper" in text.splitlines()[0]


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
        "stage 'loop' is the bottleneck, GIL-bound: its 2 workers together used 0.4 CPUs and waited for 1.1 more, and the GIL was taken at "
        "66 % of 73 looks; run it in worker processes (executor=\"processes\"), or let 'loop' do more per call (vectorise it with NumPy "
        "over a batch, or use operators that release the GIL): more threads cannot help"
    )
    assert "more threads cannot help" in verdict.change
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


@pytest.mark.parametrize(
    ("wait", "words"), [(0.013, "the training step is"), (0.049, "the training step is"), (0.06, "but no single stage is")]
)
def test_a_loop_that_waits_a_few_percent_of_its_time_is_limited_by_its_step(wait: float, words: str) -> None:
    headline = judge(snapshot(stage("decode", busy_s=12.6, cpu_s=12.5), wait=wait)).headline
    assert words in headline
    assert headline.startswith("the training step is the bottleneck") == (wait < 0.05)


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
with ps.from_source(range(count)).map(globals()[name]).batch(8).feed(executor="threads", num_workers=num_workers) as feed:
    for batch in feed:
        pass
    print(feed.report())
"""


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the time that a thread is queued is read from /proc")
@pytest.mark.parametrize("num_workers", core([2, 4]))
@pytest.mark.parametrize(
    ("name", "count", "gil"), core([("loop", 600, True), ("digest", 400, False), ("sort", 100, False), ("nap", 300, False)], 2)
)
def test_the_report_of_a_real_run_names_the_gil_exactly_for_a_function_that_holds_it(
    name: str, count: int, gil: bool, num_workers: int
) -> None:
    command = [sys.executable, "-c", _REAL_RUN, name, str(num_workers), str(count)]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        headline = done.stdout.splitlines()[0]
        if not gil or "other programs" not in headline:
            break
    else:
        pytest.skip("other programs took the CPUs in each of three runs, which is then what limits")
    assert ("GIL-bound" in headline) == gil, done.stdout
    assert ("GIL" in headline) == gil, done.stdout
    assert f"read+{name}" in headline
