"""Says in words what limited a run, with the numbers that show it and what to change. Pure: a snapshot in, text out."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.observe.stats import FailureStats, Snapshot, StageStats

__all__ = ["NO_WAIT", "Verdict", "explain", "judge", "summary"]

NO_WAIT = 0.05
"""Below this share of waiting there is little to gain in the feed."""

_BUSY = 0.80
"""A stage whose workers are busy for more than this share is the one that limits; hand-over and start cost the rest."""

_ON_CPU = 0.75
"""Below this share of CPU in its busy time a stage waits for something: storage, a lock, or the GIL."""


_QUEUED = 0.5
"""Where this share of the time off the CPU was spent ready to run, CPUs are what is missing."""


_GIL_TAKEN = 0.4
"""Threads that run Python code find the GIL taken at 60 % of their looks or more, threads in C code at 0 to 20 %, busy CPUs included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What limited a run.

    Attributes:
        kind: "nothing", "step", "inline", "cpu", "workers", "gil", "waits", "crowded", "parked" or "unclear"; for programs.
        headline: one sentence with the numbers.
        advice: what to change, one sentence each.
        stage: the name of the limiting stage, or None.
    """

    kind: str
    headline: str
    advice: tuple[str, ...]
    stage: str | None = None


def explain(snapshot: Snapshot) -> str:
    """Return what limited the run, the figures of its stages and what to change, as a few lines of text."""
    verdict = judge(snapshot)
    lines = [verdict.headline, *figures(snapshot)]
    lines += [f"  advice: {sentence}" for sentence in verdict.advice]
    lines += [f"  notice: {text}" for text in snapshot.notices[-3:]]
    return "\n".join(lines)


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
    lines += [f"  failed: {_failure_line(stage)}" for stage in snapshot.failures]
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


def _failure_line(stage: FailureStats) -> str:
    counts = ((stage.num_skipped, "skipped"), (stage.num_replaced, "replaced"), (stage.num_retries, "retries"))
    return f"stage '{stage.stage}': " + ", ".join(f"{count:,} {words}" for count, words in counts if count)


def _stage_line(stage: StageStats, snapshot: Snapshot) -> str:
    return (
        f"{stage.num_elements:,} elements, {_micros(stage.us_per_element)} each;"
        f" {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))}, {_percent(stage.cpu_share)} of it on a CPU"
    )


def judge(snapshot: Snapshot) -> Verdict:
    """Decide what limited the run."""
    consumer = snapshot.consumer
    if consumer.num_batches < 2 or consumer.span_s <= 0:
        return Verdict(
            kind="nothing",
            headline=f"too little to judge: {_delivered(snapshot)} were delivered",
            advice=("run more steps before asking for a report",),
        )
    if consumer.wait_share < NO_WAIT:
        return Verdict(
            kind="step",
            headline=f"the training step limited: the feed had {consumer.mean_ready:.1f} batches ready on average"
            f" and the step waited {_percent(consumer.wait_share)} of the time",
            advice=("nothing to gain in the feed; only a faster step makes this run faster",),
        )
    stage = _busiest(snapshot)
    if stage is not None and snapshot.in_line:
        return Verdict(
            kind="inline",
            stage=stage.name,
            headline=f"reading and training took turns: nothing was read while the step ran, so the step waited"
            f" {_percent(consumer.wait_share)} of the time",
            advice=('read ahead while the step runs: executor="threads" with num_workers="auto"',),
        )
    if stage is not None and len(stage.workers) > 1 and (stage.gil_share or 0.0) >= _GIL_TAKEN:
        looks = f"the GIL was taken at {_percent(stage.gil_share or 0.0)} of {stage.num_gil_looks:,} looks"
        return _gil_bound(stage, f"stage '{stage.name}' limited, GIL-bound: {_gil_cpus(stage, snapshot)}, and {looks}")
    if stage is not None and _load(stage, snapshot) < _BUSY <= stage.busiest_s / snapshot.elapsed_s:
        return _parked(stage, snapshot)
    if stage is None or _load(stage, snapshot) < _BUSY:
        return _unclear(snapshot, stage)
    return _limited_by(stage, snapshot)


def _parked(stage: StageStats, snapshot: Snapshot) -> Verdict:
    """Judge a run in which the engine let workers stand by because they did not help: a notice says why."""
    cause = "all CPUs are in use, also by other programs" if _crowded(snapshot, 1) else "more workers did not make it faster"
    return Verdict(
        kind="parked",
        stage=stage.name,
        headline=f"stage '{stage.name}' limited: one of its {len(stage.workers)} workers was busy"
        f" {_percent(stage.busiest_s / snapshot.elapsed_s)} of the time and the others stood by, because {cause}",
        advice=(f"make '{stage.name}' cheaper ({_micros(stage.us_per_element)} per element), or let it hold the GIL for less of its time",),
    )


def _limited_by(stage: StageStats, snapshot: Snapshot) -> Verdict:
    """Judge a run whose workers were busy all the time: on the CPU, waiting for one, for the GIL or for something outside."""
    num_workers, num_cpus = len(stage.workers), snapshot.num_cpus
    feed_cpus = _feed_cpus(snapshot)
    head = f"stage '{stage.name}' limited: its {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))} of the time"
    if stage.cpu_share >= _ON_CPU and num_workers < num_cpus and feed_cpus < 0.85 * num_cpus:
        return Verdict(
            kind="workers",
            stage=stage.name,
            headline=f"{head}; the feed used {feed_cpus:.1f} of {num_cpus} CPUs",
            advice=(f"raise num_workers, or concurrency= on that map, from {num_workers} to {num_cpus}",),
        )
    if stage.cpu_share >= _ON_CPU:
        rest = "there are no more" if feed_cpus >= 0.85 * num_cpus else "the rest went to the training loop and to other work"
        return Verdict(
            kind="cpu",
            stage=stage.name,
            headline=f"{head}; the feed used {feed_cpus:.1f} of {num_cpus} CPUs, {rest}",
            advice=(
                (
                    f"make '{stage.name}' cheaper ({_micros(stage.us_per_element)} per element): smaller images, less decoding,"
                    " prepare the data once; or more CPUs"
                ),
            ),
        )
    if _queued(stage, snapshot):
        queued_share = 1 - stage.cpu_share if stage.queued_share is None else stage.queued_share
        return Verdict(
            kind="crowded",
            stage=stage.name,
            headline=f"{head}, {_percent(queued_share)} of that waiting for a turn on one of the {num_cpus} CPUs,"
            f" which were all in use; the feed had {feed_cpus:.1f} of them, the training loop and other programs the rest",
            advice=(
                (
                    f"more workers cannot help: stop other programs on this machine, make '{stage.name}' or the step cheaper,"
                    " or give the process more CPUs"
                ),
            ),
        )
    return _waiting(stage, snapshot, head)


def _waiting(stage: StageStats, snapshot: Snapshot, head: str) -> Verdict:
    """Tell the GIL from storage: threads that take turns at the GIL add up to one CPU, threads that wait outside to less."""
    num_workers = len(stage.workers)
    # The thread that holds the GIL may itself wait for a CPU.
    stage_cpus, queued = (time_s / snapshot.elapsed_s if snapshot.elapsed_s > 0 else 0.0 for time_s in (stage.cpu_s, stage.queued_s))
    if num_workers > 1 and stage.gil_share is None and stage_cpus + queued >= 0.7:
        return _gil_bound(stage, f"{head}; {_gil_cpus(stage, snapshot)}, so most likely they took turns at the GIL")
    return Verdict(
        kind="waits",
        stage=stage.name,
        headline=f"starved by stage '{stage.name}': its {_workers(stage)} busy {_percent(stage.busy_share(snapshot.elapsed_s))} of the"
        f" time but on a CPU for only {_percent(stage.cpu_share)} of that, so most likely it waits for storage, network or a lock",
        advice=(
            (
                f"keep more requests in flight: a larger num_workers, or concurrency= on that map (now {num_workers},"
                f" try {4 * num_workers}); or move the data to faster storage"
            ),
        ),
    )


def _gil_cpus(stage: StageStats, snapshot: Snapshot) -> str:
    """Say what workers used that take turns, and what they waited for a CPU."""
    cpus, queued = (time_s / snapshot.elapsed_s if snapshot.elapsed_s > 0 else 0.0 for time_s in (stage.cpu_s, stage.queued_s))
    more = f" and waited for {queued:.1f} more" if queued >= 0.05 else ""
    return f"its {len(stage.workers)} workers together used {cpus:.1f} CPUs{more}"


def _gil_bound(stage: StageStats, headline: str) -> Verdict:
    return Verdict(
        kind="gil",
        stage=stage.name,
        headline=headline,
        advice=(
            (
                f"let '{stage.name}' do more per call (vectorise it with NumPy over a batch, or use operators that release the GIL);"
                " more threads cannot help"
            ),
        ),
    )


def _unclear(snapshot: Snapshot, stage: StageStats | None) -> Verdict:
    consumer = snapshot.consumer
    if _is_queue(snapshot):
        return Verdict(
            kind="unclear",
            headline=f"what fills the queue limited: {_waited(snapshot)}",
            advice=("more threads that fill the queue, or less work for each element before it",),
        )
    if stage is None:
        busy, name = "no stage reported work", None
    else:
        busy = f"the busiest stage, '{stage.name}', was busy only {_percent(stage.busy_share(snapshot.elapsed_s))} of the time"
        name = stage.name
    if consumer.mean_ready >= 1:
        advice = "the waits are short bursts: a larger memory_bytes lets more batches be ready when they come"
    else:
        advice = ("look at the notices below; " if snapshot.notices else "") + (
            "usual reasons: batches kept by the training loop hold the buffers, a memory_bytes too small to overlap,"
            " or another process on these CPUs"
        )
    return Verdict(
        kind="unclear",
        stage=name,
        headline=f"the feed limited, but no single stage did: {_waited(snapshot)}, {busy}",
        advice=(advice,),
    )


def _busiest(snapshot: Snapshot) -> StageStats | None:
    return max((stage for stage in snapshot.stages if stage.workers), key=lambda stage: _load(stage, snapshot) * stage.busy_s, default=None)


def _load(stage: StageStats, snapshot: Snapshot) -> float:
    """Return how busy this stage's workers were, with the other stages that share them."""
    mine = set(stage.workers)
    shared_s = sum(other.busy_s for other in snapshot.stages if mine & set(other.workers))
    return min(1.0, shared_s / (snapshot.elapsed_s * len(mine))) if snapshot.elapsed_s > 0 else 0.0


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
    return min(float(snapshot.num_cpus), total_s / snapshot.elapsed_s) if snapshot.elapsed_s > 0 else 0.0


def _cpus_used(snapshot: Snapshot) -> float:
    """Estimate the CPUs in use, counting the training loop whenever it did not wait (an upper bound for its part)."""
    return min(float(snapshot.num_cpus), _feed_cpus(snapshot) + (1 - snapshot.consumer.wait_share))


def _workers(stage: StageStats) -> str:
    return f"{len(stage.workers)} workers were" if len(stage.workers) != 1 else "1 worker was"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 or 0.9905 < share < 0.99999 else f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _micros(micros: float) -> str:
    return f"{micros / 1000:.2f} ms" if micros >= 1000 else f"{micros:.1f} us"
