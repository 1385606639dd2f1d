"""Names the bottleneck of a run, its cause, the numbers that show it, and one change to make. Pure: a snapshot in, text out.

Each cause is a function that looks at the figures and returns a verdict or None. `judge` asks them in a fixed order: a cause that explains
the signs of others comes first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock._system.lazy import dataclass
from penstock.kernels import WITHOUT_LIBRARY
from penstock.observe.advice import STAYS, in_workers, num_workers_for
from penstock.observe.stats import FailureStats, SlowSample, Snapshot, StageStats

Kind = Literal[
    "nothing", "swap", "start", "step", "inline", "kept", "memory", "errors", "gil", "crowded", "slow", "concurrency", "workers", "cpu",
    "faults", "waits", "bursts", "parked", "unclear", "producers", "stream",
]  # fmt: skip
"""Causes, for programs: `nothing` is a run that is too short, `producers` what fills a queue."""

NO_WAIT = 0.05
"""Below this share of waiting there is little to gain in the feed."""

_BUSY = 0.80
"""A stage whose workers are busy for more than this share is the bottleneck; hand-over and start cost the rest."""

_ON_CPU = 0.75
"""Below this share of CPU in its busy time a stage waits for something: storage, a lock, or the GIL."""

_QUEUED = 0.5
"""Where this share of the time off the CPU was spent ready to run, CPUs are what is missing."""

_CROWDED = 0.3
"""Threads that are ready to run and get no CPU for this part of the time are what a busy machine holds up."""

_GIL_TAKEN, _GIL_TAKEN_CROWDED = 0.4, 0.55
"""Threads that run Python code find the GIL taken at 60 % of their looks or more, threads in C code at 0 to 20 %, busy CPUs included; at up
to 45 % where they are in line for a CPU for more than four times as long as they have one."""

_COLD_S, _COLD_SHARE = 0.3, 0.25
"""A first wait that is longer, and a larger part of the run, is worth a change."""

_SLOW_SHARE, _SLOW_FEW, _SLOWEST_S = 0.4, 0.2, 0.02
"""Slow samples: a large part of a stage's time, a small part of its elements, and long enough to be waited for."""

_ERROR_SHARE = 0.3
"""Failed elements, or pauses before retries, above this share of a stage's work or time are its cost."""

_FAULTS_PER_S, _SWAPPED_BYTES = 50.0, 32 << 20
"""Page faults from a disk take 0.1 ms (flash) to 10 ms (magnetic disk): so many a second are 0.5 to 50 % of the time."""

_FULL = 0.004
"""Where buffers were full at more deliveries, workers are fast enough on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The bottleneck of a run.

    Attributes:
        kind: the cause.
        finding: what the bottleneck is, why, and the numbers that show it.
        change: what to change.
        stage: the name of the stage, or None.
    """

    kind: Kind
    finding: str
    change: str
    stage: str | None = None

    @property
    def headline(self) -> str:
        """Return finding and change as one sentence."""
        return f"{self.finding}; {self.change}"


def explain(snapshot: Snapshot) -> str:
    """Return the bottleneck of a run and what to change as the first line, and the figures of its stages below it."""
    first = [WITHOUT_LIBRARY] if WITHOUT_LIBRARY in snapshot.notices else []
    last = [f"  notice: {text}" for text in snapshot.notices[-3:] if text not in first]
    return "\n".join([*first, judge(snapshot).headline, *figures(snapshot), *last])


def summary(snapshot: Snapshot) -> str:
    """Return the figures of a run as a few lines of text, without a verdict: the `repr` of a snapshot."""
    rate = snapshot.consumer.num_batches / snapshot.elapsed_s if snapshot.elapsed_s > 0 else 0.0
    things = "elements" if _is_queue(snapshot) else "batches"
    cpus = "1 CPU" if snapshot.num_cpus == 1 else f"{snapshot.num_cpus} CPUs"
    used = "" if snapshot.machine_share is None else f", {_percent(snapshot.machine_share)} of the machine's CPU time in use"
    head = f"Snapshot ({rate:,.1f} {things}/s on {cpus}{used})" if rate else "Snapshot (nothing was delivered yet)"
    return "\n".join([head, *figures(snapshot), *(f"  notice: {text}" for text in snapshot.notices[-3:])])


def figures(snapshot: Snapshot) -> list[str]:
    """Return a line for the run, and for each of its stages, with units."""
    consumer, lines = snapshot.consumer, list[str]()
    if consumer.num_batches:
        lines.append(
            f"  run:    {_delivered(snapshot)} in {_seconds(snapshot.elapsed_s)}, the first after"
            f" {_seconds(consumer.first_wait_s)}, {consumer.mean_ready:.1f} ready on average,"
            f" {_waited(snapshot)}"
        )
    width = max((len(stage.name) for stage in snapshot.stages), default=0)
    lines += [f"  stage:  {stage.name:{width}}  {_stage_line(stage, snapshot)}" for stage in snapshot.stages]
    if snapshot.padding_share is not None:
        lines.append(
            f"  packed: {snapshot.packed_tokens:,} tokens in {snapshot.packed_places:,} places, {_percent(snapshot.padding_share)} padding"
        )
    lines += [f"  failed: stage '{stage.stage}': {_failure_counts(stage)}" for stage in snapshot.failures]
    return lines


def _delivered(snapshot: Snapshot) -> str:
    """Say what was delivered. A queue counts elements, of which a call may take many."""
    consumer = snapshot.consumer
    if _is_queue(snapshot):
        return f"{consumer.num_batches:,} elements by {consumer.num_calls:,} calls"
    return f"{consumer.num_batches:,} batches"


def _is_queue(snapshot: Snapshot) -> bool:
    """Tell whether the figures are those of a queue: one delivers, and has no stages."""
    return not snapshot.stages and snapshot.consumer.num_calls > 0


def _waited(snapshot: Snapshot) -> str:
    consumer = snapshot.consumer
    share = f"waited {_percent(consumer.wait_share)} of the time"
    if consumer.num_consumers > 1:
        return f"the {consumer.num_consumers} threads that took them each {share}, on average"
    return f"the training loop {share}"


def _failure_counts(stage: FailureStats) -> str:
    counts = ((stage.num_skipped, "skipped"), (stage.num_replaced, "replaced"), (stage.num_retries, "retries"))
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def _stage_line(stage: StageStats, snapshot: Snapshot) -> str:
    return (
        f"{stage.num_elements:,} elements, {_micros(stage.us_per_element)} each;"
        f" {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))}, {_percent(stage.cpu_share)} of it on a CPU"
    )


def judge(snapshot: Snapshot) -> Verdict:
    """Name the bottleneck of a run and its cause."""
    consumer = snapshot.consumer
    if consumer.num_batches < 2 or consumer.span_s <= 0:
        finding = f"too little to judge: {_delivered(snapshot)} were delivered"
        return Verdict(kind="nothing", finding=finding, change="run more steps before asking for a report")
    before = _swap(snapshot) or _cold_start(snapshot)
    if before is not None:
        return before
    if consumer.wait_share < NO_WAIT:
        return _step(snapshot)
    if _is_queue(snapshot):
        return _producers(snapshot)
    stage = _busiest(snapshot)
    if stage is None:
        return _unclear(snapshot, None)
    causes = (_inline, _kept, _errors, _stream, _gil_found, _slow, _memory, _held_up, _bursts, _parked, _idle, _busy)
    return replace(next(verdict for cause in causes if (verdict := cause(snapshot, stage)) is not None), stage=stage.name)


# -- causes outside of the stages --------------------------------------------------------------------------------------------------


def _swap(snapshot: Snapshot) -> Verdict | None:
    """Name swapping: it makes everything slow, the training step too."""
    memory = snapshot.memory
    if memory.swapped_bytes < _SWAPPED_BYTES or _faults_per_s(snapshot) < _FAULTS_PER_S:
        return None
    return Verdict(
        kind="swap",
        finding=f"the machine swaps: {_mega(memory.swapped_bytes)} of this process are swapped out, and it read {_faults(snapshot)} back",
        change="lower memory_bytes, shuffle buffers and the number of workers, or add memory",
    )


def _cold_start(snapshot: Snapshot) -> Verdict | None:
    consumer = snapshot.consumer
    whole_s = consumer.first_wait_s + consumer.span_s / consumer.num_consumers
    if consumer.first_wait_s < _COLD_S or consumer.first_wait_s < _COLD_SHARE * whole_s or _is_queue(snapshot):
        return None
    if snapshot.in_line and consumer.wait_share >= NO_WAIT:
        return None
    stage = max(snapshot.stages, key=lambda stage: stage.first_s, default=None)
    finding = f"cold start: the first batch came after {_seconds(consumer.first_wait_s)} of {_seconds(whole_s)}"
    if stage is None or stage.first_s < 0.5 * consumer.first_wait_s:
        return Verdict(
            kind="start",
            finding=f"{finding}, before which {snapshot.num_before_first:,} elements were read",
            change="smaller shuffle buffers and batches give a first batch earlier; in a longer run it does not matter",
        )
    return Verdict(
        kind="start",
        stage=stage.name,
        finding=f"{finding}, because a worker of stage '{stage.name}' took {_seconds(stage.first_s)} for its first block",
        change=f"have '{stage.name}' load what it needs once, before the loop; in a longer run it does not matter",
    )


def _step(snapshot: Snapshot) -> Verdict:
    consumer = snapshot.consumer
    if _is_queue(snapshot):
        finding = f"what reads the queue is the bottleneck: {_waited(snapshot)}"
        return Verdict(kind="step", finding=finding, change="only what reads it can make this run faster")
    return Verdict(
        kind="step",
        finding=f"the training step is the bottleneck: the loop waited {_percent(consumer.wait_share)} of the time for batches,"
        f" of which {consumer.mean_ready:.1f} were ready on average",
        change="only a faster step makes this run faster",
    )


def _producers(snapshot: Snapshot) -> Verdict:
    return Verdict(
        kind="producers",
        finding=f"what fills the queue is the bottleneck: {_waited(snapshot)}",
        change="add threads that fill the queue, or do less for each element before it",
    )


def _inline(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    if not snapshot.in_line:
        return None
    return Verdict(
        kind="inline",
        finding="input and training take turns in one thread: nothing was read while the step ran, so the loop waited"
        f" {_percent(snapshot.consumer.wait_share)} of the time",
        change="read ahead while the step runs, with feed() in place of feed(num_workers=0)",
    )


def _kept(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    """Batches that the loop keeps take the place of those that could be read ahead: half of it on average, from 0 on, ends in all of it."""
    consumer = snapshot.consumer
    if consumer.most == 0 or 2 * (consumer.mean_kept + 1) < consumer.most or consumer.mean_kept < 1 or _is_busy(stage, snapshot):
        return None
    memory = snapshot.memory
    held = f" ({_mega(memory.kept_bytes)}{', the oldest ' + memory.kept if memory.kept else ''})" if memory.kept_bytes else ""
    per_call = consumer.num_batches / consumer.num_calls
    return Verdict(
        kind="kept",
        finding=f"the training loop keeps batches: {per_call * consumer.mean_kept:,.0f} on average beside the current one{held}, with room"
        f" for {per_call * consumer.most:,.0f} in all, so there was none to read ahead and the loop waited"
        f" {_percent(consumer.wait_share)} of the time",
        change="keep numbers or copies in place of batches (loss.item(), array.copy()), or raise memory_bytes",
    )


def _memory(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    """Name a budget that holds less than a batch for each worker, one in hand and one ready: workers wait for room."""
    most = snapshot.consumer.most
    if not 0 < most < max(4, len(stage.workers) + 2) or _is_busy(stage, snapshot):
        return None
    wanted_bytes = snapshot.memory_bytes // most * (2 * len(stage.workers) + 2)
    return Verdict(
        kind="memory",
        finding=f"memory_bytes ({_mega(snapshot.memory_bytes)}) is the bottleneck: it has room for {most} batches, so the workers of stage"
        f" '{stage.name}' waited for room {_percent(1 - _load(stage, snapshot))} of the time",
        change=f"raise memory_bytes to {_mega(wanted_bytes)}, or make batches smaller",
    )


def _bursts(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    consumer = snapshot.consumer
    if consumer.full_share < _FULL or _is_busy(stage, snapshot):
        return None
    most = round(consumer.most * consumer.num_batches / consumer.num_calls)
    return Verdict(
        kind="bursts",
        finding=f"too little is read ahead for bursts: the {most} batches that may be ready were so at {_percent(consumer.full_share)} of"
        f" the deliveries, and at others the loop waited, {_percent(consumer.wait_share)} of the time; stage '{stage.name}' was busy"
        f" {_percent(_load(stage, snapshot))} of it",
        change=f"read further ahead, with .prefetch({4 * most}) and memory_bytes for so many",
    )


# -- causes in a stage -------------------------------------------------------------------------------------------------------------


def _errors(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    failed = max(snapshot.failures, key=lambda one: one.wait_s + one.num_skipped + one.num_replaced + one.num_retries, default=None)
    if failed is None:
        return None
    num_failed, retried = failed.num_skipped + failed.num_replaced, failed.num_retries
    wait_share = failed.wait_s / stage.busy_s if stage.busy_s > 0 else 0.0
    share = max(num_failed, retried) / max(1, stage.num_elements + num_failed)
    if wait_share < _ERROR_SHARE and share < _ERROR_SHARE:
        return None
    paused = f", with pauses of {_seconds(failed.wait_s)} in all" if failed.wait_s >= 0.01 else ""
    return Verdict(
        kind="errors",
        finding=f"errors take the time of stage '{failed.stage}': {_failure_counts(failed)} at {stage.num_elements:,} elements{paused}",
        change="mend the elements that the quarantine file names, or shorten the pauses of Retry",
    )


def _stream(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    """One thread reads a stream: more workers do not help."""
    if not snapshot.is_stream or stage.name != "read" or not _is_busy(stage, snapshot):
        return None
    return Verdict(
        kind="stream",
        finding=f"reading is the bottleneck: the one thread that reads the generator was busy"
        f" {_percent(stage.busy_share(snapshot.elapsed_s))} of the time, {_percent(stage.cpu_share)} of it on a CPU"
        f" ({_micros(stage.us_per_element)} per element)",
        change="do less in the generator and the rest in .map(), which has workers, or use a source with random access",
    )


def _gil_found(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    least = _GIL_TAKEN if stage.queued_s <= 4 * stage.cpu_s else _GIL_TAKEN_CROWDED
    if len(stage.workers) < 2 or (stage.gil_share or 0.0) < least:
        return None
    looks = f"the GIL was taken at {_percent(stage.gil_share or 0.0)} of {stage.num_gil_looks:,} looks"
    return _gil_bound(snapshot, stage, f"{_head(stage)}, GIL-bound: {_gil_cpus(stage, snapshot)}, and {looks}")


def _slow(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    slowest = stage.slowest[0] if stage.slowest else None
    if slowest is None or slowest.lasted_s < _SLOWEST_S or stage.slow_s < _SLOW_SHARE * stage.busy_s:
        return None
    if stage.num_slow > _SLOW_FEW * stage.num_elements or (stage.cpu_share < _ON_CPU and _queued(stage, snapshot)):
        return None
    return Verdict(
        kind="slow",
        finding=f"slow samples in stage '{stage.name}' are the bottleneck: about {stage.num_slow:,} of {stage.num_elements:,} elements took"
        f" {_percent(stage.slow_s / stage.busy_s)} of its time, the others {_micros(stage.median_us)} each; the slowest are"
        f" {', '.join(_sample(one) for one in stage.slowest[:3])}",
        change=f"look at these elements; {_meanwhile(snapshot, len(stage.workers))}",
    )


def _meanwhile(snapshot: Snapshot, num_workers: int) -> str:
    """Say what goes on while a slow element is computed, or what would let others go on."""
    if snapshot.in_order:
        return "with as_completed() before batch(), or ordered=False for whole batches, others go on meanwhile"
    most, wanted = snapshot.consumer.most, num_workers + 2
    if not 0 < most < wanted:
        return "others went on meanwhile"
    room = f"memory_bytes ({_mega(snapshot.memory_bytes)}) has room for {most} batches"
    return f"{room}, so few others went on meanwhile: raise it to {_mega(snapshot.memory_bytes // most * wanted)}"


def _sample(sample: SlowSample) -> str:
    where = f", {sample.where}" if sample.where else ""
    return f"epoch {sample.key[0]} index {sample.key[1]} ({_seconds(sample.lasted_s)}{where})"


def _parked(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    """Judge a run whose workers stand by because they do not help: a notice says why."""
    if not snapshot.is_alone or _is_busy(stage, snapshot) or stage.busiest_s < _BUSY * snapshot.elapsed_s:
        return None
    busy = max(1, round(stage.busy_s / stage.busiest_s))
    cause, other = "more workers did not make it faster", "let it hold the GIL for less of its time"
    if _crowded(snapshot, 1):
        cause, other = "all CPUs are in use, also by other programs", "stop those"
    return Verdict(
        kind="parked",
        finding=f"{_head(stage)}: {busy} of its {len(stage.workers)} workers {'was' if busy == 1 else 'were'} busy"
        f" {_percent(stage.busiest_s / snapshot.elapsed_s)} of the time and the others stood by, because {cause}",
        change=f"make '{stage.name}' cheaper ({_micros(stage.us_per_element)} per element), or {other}",
    )


def _held_up(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    """Where CPUs are short, a worker is held up between its blocks as well."""
    if _is_busy(stage, snapshot) or (stage.queued_share or 0.0) < _CROWDED or not _crowded(snapshot, len(stage.workers)):
        return None
    return _short_of_cpus(snapshot, stage, f"its {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))} of the time")


def _idle(snapshot: Snapshot, stage: StageStats) -> Verdict | None:
    is_busy = _is_busy(stage, snapshot) or stage.busiest_s >= _BUSY * snapshot.elapsed_s
    return None if is_busy else _unclear(snapshot, stage)


def _busy(snapshot: Snapshot, stage: StageStats) -> Verdict:
    """Judge a stage whose workers were busy all the time: on the CPU, waiting for one, for the GIL or for something outside."""
    num_workers, num_cpus, feed_cpus = len(stage.workers), snapshot.num_cpus, _feed_cpus(snapshot)
    busy = f"its {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))} of the time"
    spare = feed_cpus < 0.85 * num_cpus
    if stage.cpu_share >= _ON_CPU and num_workers < num_cpus and spare:
        kind: Kind = "workers" if stage.concurrency is None else "concurrency"
        cause = "CPU-bound with CPUs to spare" if stage.concurrency is None else f"held back by concurrency={stage.concurrency}"
        finding = f"{_head(stage)}, {cause}: {busy}, and the feed used {feed_cpus:.1f} of {num_cpus} CPUs"
        return Verdict(kind=kind, finding=finding, change=_more_workers(snapshot, stage, num_cpus, computing=True))
    if stage.cpu_share >= _ON_CPU:
        rest = "the rest went to the training loop and to other work" if spare else "there are no more"
        return Verdict(
            kind="cpu",
            finding=f"{_head(stage)}, CPU-bound: {busy}; the feed used {feed_cpus:.1f} of {num_cpus} CPUs, {rest}",
            change=f"make '{stage.name}' cheaper ({_micros(stage.us_per_element)} per element), for example by packing the data once",
        )
    if _queued(stage, snapshot):
        return _short_of_cpus(snapshot, stage, busy)
    # Threads that take turns at the GIL add up to one CPU. The thread that holds it may itself wait for a CPU.
    stage_cpus, queued = (time_s / snapshot.elapsed_s for time_s in (stage.cpu_s, stage.queued_s))
    if num_workers > 1 and stage.gil_share is None and stage_cpus + queued >= 0.7:
        return _gil_bound(snapshot, stage, f"{_head(stage)}, most likely GIL-bound: {busy}, and {_gil_cpus(stage, snapshot)}")
    return _waiting(snapshot, stage, busy)


def _short_of_cpus(snapshot: Snapshot, stage: StageStats, busy: str) -> Verdict:
    queued_share = 1 - stage.cpu_share if stage.queued_share is None else stage.queued_share
    return Verdict(
        kind="crowded",
        finding=f"{_head(stage)}, short of CPUs: {busy}, and waited {_percent(queued_share)} of it for a turn on one of the"
        f" {snapshot.num_cpus} CPUs, which were all in use; the feed had {_feed_cpus(snapshot):.1f} of them, the training loop and other"
        " programs the rest",
        change="stop other programs on this machine or give the process more CPUs; more workers cannot help",
    )


def _waiting(snapshot: Snapshot, stage: StageStats, busy: str) -> Verdict:
    on_cpu = f"{busy}, but on a CPU for only {_percent(stage.cpu_share)} of that"
    if _faults_per_s(snapshot) >= _FAULTS_PER_S:
        return Verdict(
            kind="faults",
            finding=f"{_head(stage)}, waiting for page faults: {on_cpu}, while the process read {_faults(snapshot)} from disk",
            change="use faster storage or files that fit into memory, for example packed and compressed ones; or lower memory_bytes",
        )
    if stage.concurrency is not None:
        return Verdict(
            kind="concurrency",
            finding=f"{_head(stage)}, held back by concurrency={stage.concurrency}: {on_cpu}",
            change=_more_workers(snapshot, stage, 4 * stage.concurrency, computing=False),
        )
    return Verdict(
        kind="waits",
        finding=f"{_head(stage)}, waiting for I/O: {on_cpu}, so most likely it waits for storage, network or a lock",
        change=_more_workers(snapshot, stage, 4 * len(stage.workers), computing=False),
    )


def _more_workers(snapshot: Snapshot, stage: StageStats, count: int, *, computing: bool) -> str:
    number, helps = num_workers_for(count, computing=computing), " and it lets go of the interpreter lock" if computing else ""
    if stage.in_program and snapshot.no_processes:
        threads = f'feed(executor="threads", num_workers={number}) makes {number} calls at a time in this program, where that is safe'
        return f"{threads}{helps}; worker processes cannot run it: {snapshot.no_processes}"
    if stage.in_program:
        return f"{in_workers(number)}; {STAYS}"
    if stage.concurrency is not None:
        return f"raise concurrency= on that map from {stage.concurrency} to {max(count, stage.concurrency + 1)}"
    return f"raise num_workers, or concurrency= on that map, from {len(stage.workers)} to {count}"


def _gil_bound(snapshot: Snapshot, stage: StageStats, finding: str) -> Verdict:
    why = f", and worker processes cannot run it: {snapshot.no_processes}" if snapshot.no_processes else ""
    processes = "" if why else 'run it in worker processes (executor="processes"), or '
    change = (
        f"{processes}let {stage.name!r} do more per call (vectorise it with NumPy over a batch, "
        f"or use operators that release the GIL): more threads cannot help{why}"
    )
    return Verdict(kind="gil", finding=finding, change=change)


def _unclear(snapshot: Snapshot, stage: StageStats | None) -> Verdict:
    busy = (
        "no stage reported work"
        if stage is None
        else f"the busiest stage, '{stage.name}', was busy only {_percent(stage.busy_share(snapshot.elapsed_s))} of the time"
    )
    change = ("look at the notices below; " if snapshot.notices else "") + "feed.trace() shows what the loop waited for"
    return Verdict(
        kind="unclear",
        finding=f"the loop waited for batches {_percent(snapshot.consumer.wait_share)} of the time, but no single stage is the bottleneck:"
        f" {busy}",
        change=change,
    )


# -- figures -----------------------------------------------------------------------------------------------------------------------


def _head(stage: StageStats) -> str:
    return f"stage '{stage.name}' is the bottleneck"


def _gil_cpus(stage: StageStats, snapshot: Snapshot) -> str:
    """Say what workers used that take turns, and what they waited for a CPU."""
    cpus, queued = (time_s / snapshot.elapsed_s for time_s in (stage.cpu_s, stage.queued_s))
    more = f" and waited for {queued:.1f} more" if queued >= 0.05 else ""
    return f"its {len(stage.workers)} workers together used {cpus:.1f} CPUs{more}"


def _faults_per_s(snapshot: Snapshot) -> float:
    return snapshot.memory.num_major_faults / snapshot.elapsed_s


def _faults(snapshot: Snapshot) -> str:
    return f"{snapshot.memory.num_major_faults:,} pages ({_faults_per_s(snapshot):,.0f}/s)"


def _is_busy(stage: StageStats, snapshot: Snapshot) -> bool:
    return _load(stage, snapshot) >= _BUSY


def _busiest(snapshot: Snapshot) -> StageStats | None:
    return max((stage for stage in snapshot.stages if stage.workers), key=lambda stage: _load(stage, snapshot) * stage.busy_s, default=None)


def _load(stage: StageStats, snapshot: Snapshot) -> float:
    """Return how busy this stage's workers were, with the other stages that share them: those without workers of their own."""
    mine = set(stage.workers)
    others = snapshot.stages if stage.concurrency is None else ()
    alike = [other for other in others if other is not stage and other.concurrency is None and other.in_program == stage.in_program]
    sharing = [other for other in alike if mine & set(other.workers)]
    shared_s = stage.busy_s + sum(other.busy_s for other in sharing)
    return min(1.0, shared_s / (snapshot.elapsed_s * len(mine)))


def _queued(stage: StageStats, snapshot: Snapshot) -> bool:
    """Tell whether a stage that was off the CPU waited for one, not for something outside: asked of its threads, else of the machine."""
    if stage.queued_share is None:
        return _crowded(snapshot, len(stage.workers))
    return stage.queued_share >= _QUEUED * (1 - stage.cpu_share)


def _crowded(snapshot: Snapshot, num_workers: int) -> bool:
    """Tell whether the CPUs were all in use: by what the machine says, else by what this program alone may have used."""
    could_be = num_workers > 1 and _cpus_used(snapshot) >= 0.85 * snapshot.num_cpus
    if snapshot.machine_share is None:
        return could_be
    # Start and end of a short run leave CPUs idle, so 0.75 of the machine is enough where this program can have used the rest.
    return snapshot.machine_share >= (0.75 if could_be else 0.9)


def _feed_cpus(snapshot: Snapshot) -> float:
    """Return the CPUs that the stages used on average."""
    total_s = sum(stage.cpu_s for stage in snapshot.stages)
    return min(float(snapshot.num_cpus), total_s / snapshot.elapsed_s)


def _cpus_used(snapshot: Snapshot) -> float:
    """Estimate the CPUs in use, counting the training loop whenever it did not wait (an upper bound for its part)."""
    return min(float(snapshot.num_cpus), _feed_cpus(snapshot) + (1 - snapshot.consumer.wait_share))


def _workers(stage: StageStats) -> str:
    return f"{len(stage.workers)} workers were" if len(stage.workers) != 1 else "1 worker was"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 or 0.9905 < share < 0.99999 else f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _mega(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 10_000_000 else f"{num_bytes / 1e6:,.1f} MB"


def _micros(micros: float) -> str:
    return f"{micros / 1000:.2f} ms" if micros >= 1000 else f"{micros:.1f} us"
