"""What counts as a stall, and the words for it. Pure: figures and facts in, verdicts and text out; no clock is read here."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from penstock._system.frames import Frame
from penstock._system.lazy import dataclass
from penstock.errors import FeedStalled

Kind = Literal["stuck", "idle", "slow"]
"""One element runs too long; no worker has anything to do; or work goes on and nothing has arrived all the same."""

_SLICE_S = 0.5  # the main thread wakes as often for signals anyway
_SLICES = 8  # a pause of the process counts as at most this part of the timeout
_ASLEEP = 0.001  # of a CPU: a thread that waits for the GIL against 64 others still gets 0.015, one that waits for a lock 0
_CONTENDED = 0.8  # of a CPU: below that the GIL is free most of the time
_LEAST = 16  # a busy machine stretches the clock of a worker at most so many times: no wait is unbounded
_COMPUTES = 0.5
_NUM_FRAMES = 10


class RunClock:
    """Adds up the time in which the process was seen running: the gaps between two looks, each counted up to a limit.

    A process that is suspended, stopped by a signal or held by a debugger looks at nothing, so such a pause counts once, as the limit. Any
    thread may look; a race costs microseconds.
    """

    def __init__(self, most_ns: int) -> None:
        """Start at 0. `most_ns` is the longest gap that counts whole."""
        self._most_ns = most_ns
        self._seen = (0, 0)

    def tick(self, now_ns: int) -> int:
        """Take a look at `time.perf_counter_ns() == now_ns` and return the time run so far."""
        ran, last = self._seen
        gap = now_ns - last
        if gap > 0:
            ran += gap if gap < self._most_ns else self._most_ns
            self._seen = (ran, now_ns)
        return ran


def slice_of(timeout_s: float | None) -> float | None:
    """Return how long a consumer waits between two looks, in seconds; None without looks."""
    return None if timeout_s is None else min(_SLICE_S, timeout_s / _SLICES)


def counted_ns(elapsed_ns: int, cpu_ns: int | None, queued_ns: int, wanted_ns: int) -> int:
    """Return how much of `elapsed_ns` counts against an element that a worker has not finished meanwhile.

    A worker that waits (for a lock, a disk, a peer) is counted whole. One that computes where CPU time is short is counted with the CPU
    time it got: 64 workers on 2 cores make each element take 32 times as long, and nothing is wrong.

    Args:
        elapsed_ns: time run.
        cpu_ns: CPU time of the worker's thread in it; None when the system does not tell.
        queued_ns: the part of it in which the thread was ready to run and got no CPU.
        wanted_ns: CPU time that the whole process used in it, and time that its workers were queued for one. One CPU's worth means that
            the GIL may have been held by others all the time.
    """
    counted = max(0, elapsed_ns - queued_ns)
    if cpu_ns is not None and cpu_ns >= _ASLEEP * elapsed_ns and wanted_ns >= _CONTENDED * elapsed_ns:
        counted = min(counted, cpu_ns)
    return max(counted, elapsed_ns // _LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What one busy worker does.

    Attributes:
        index: its number in its pool.
        thread: the thread's name.
        stage: the operator that runs.
        element: the element in words, with its key.
        lasted_s: how long it has been with this element.
        cpu_share: CPU time over wall time meanwhile; None when the system does not tell.
        stack: its Python stack, innermost call last.
        stuck: whether it has been there longer than the timeout.
        reader: whether it runs a generator.
        call: whether it is a call of an async function: `index` is then its place among those in flight.
        blocks: whether this call holds up the event loop, by something that it does not await.
    """

    index: int
    thread: str
    stage: str
    element: str
    lasted_s: float
    cpu_share: float | None
    stack: tuple[Frame, ...]
    stuck: bool
    reader: bool = False
    call: bool = False
    blocks: bool = False


class Situation(NamedTuple):
    """The facts of a stall.

    Attributes:
        kind: what was found.
        waited_s: how long the consumer has waited for this hand-over.
        timeout_s: the limit.
        busy: the workers that have a task.
        idle: those that have none, in words.
        kept: batches whose buffers the consumer holds.
        limit: batches that may be in flight.
        state: the engine's own figures, for a report to us.
        more_calls: async calls in flight that are not among `busy`.
        more_stuck: so many of them have lasted longer than the timeout.
        oldest: of the batches that the consumer keeps beside the last one, their bytes and the step of the oldest, in words.
    """

    kind: Kind
    waited_s: float
    timeout_s: float
    busy: tuple[WorkerFacts, ...]
    idle: tuple[str, ...]
    kept: int
    limit: int
    state: str
    more_calls: int = 0
    more_stuck: int = 0
    oldest: str = ""


_Cause = tuple[str, str]
"""What it is, and what to do."""


def report(situation: Situation) -> FeedStalled:
    """Put a stall into words: what, where with stack and neighbours, likely cause and what to do."""
    stuck = sorted((worker for worker in situation.busy if worker.stuck), key=lambda worker: -worker.lasted_s)
    cause, fix = _cause(situation, stuck)
    return FeedStalled(f"{_headline(situation, stuck)}; likely cause: {cause}", where=_where(situation, stuck), fix=fix)


def _headline(situation: Situation, stuck: list[WorkerFacts]) -> str:
    if stuck:
        first = stuck[0]
        others = len(stuck) - 1 + situation.more_stuck
        more = f", and {others} more like it" if others else ""
        if first.blocks:
            who = f"a call of stage {first.stage!r}" if first.stage else "something"
            return f"{who} has held up the event loop of all async functions for {first.lasted_s:.1f} s"
        if first.call:
            return f"a call of stage {first.stage!r} has been awaited for {first.lasted_s:.1f} s{more}"
        if first.reader:
            return f"the generator has given no element for {first.lasted_s:.1f} s{more}"
        return f"worker {first.index} has been with one element of stage {first.stage!r} for {first.lasted_s:.1f} s{more}"
    if situation.kind == "slow":
        return f"nothing has arrived for {situation.waited_s:.1f} s, though work goes on"
    return f"nothing has arrived for {situation.waited_s:.1f} s, and no worker has anything to do"


def _where(situation: Situation, stuck: list[WorkerFacts]) -> str:
    lines = []
    for worker in stuck[:1]:
        stage = f"stage {worker.stage!r}, " if worker.stage else ""
        lines += [f"{stage}{_noun(worker)} {worker.index} ({worker.thread}), {worker.element}", _effort(worker)]
        lines += _stack(worker)
    lines.append(f"the consumer has waited {situation.waited_s:.1f} s in next() (stall_timeout_s={situation.timeout_s:g})")
    others = [worker for worker in situation.busy if worker not in stuck[:1]]
    if others or situation.idle:
        lines.append("meanwhile:")
    for worker in others:
        spot = f", at {worker.stack[-1]}" if worker.stack else ""
        who = f"{_noun(worker)} {worker.index} ({worker.thread})"
        lines.append(f"  {who}: stage {worker.stage!r} for {worker.lasted_s:.1f} s, {worker.element}{spot}")
    if situation.more_calls:
        late = f", {situation.more_stuck} of them too long as well" if situation.more_stuck else ""
        lines.append(f"  {situation.more_calls} more calls in flight{late}")
    lines += [f"  {words}" for words in situation.idle]
    if situation.kept:
        lines.append(f"  batches that the consumer keeps: {situation.kept}{situation.oldest} (so many may be in flight: {situation.limit})")
    if not situation.busy:
        lines.append(f"  {situation.state}")
    return "\n         ".join(lines)


def _noun(worker: WorkerFacts) -> str:
    return "call" if worker.call else "worker"


def _effort(worker: WorkerFacts) -> str:
    if worker.call and not worker.blocks:
        return "what it awaits, innermost last:"
    if worker.cpu_share is None:
        return "its stack, innermost call last:"
    doing = "it computes" if worker.cpu_share >= _COMPUTES else "it waits" if worker.cpu_share < 0.1 else "it computes now and then"
    return f"it used {100 * worker.cpu_share:.0f} % of a CPU: {doing}; its stack, innermost call last:"


def _stack(worker: WorkerFacts) -> list[str]:
    hidden = len(worker.stack) - _NUM_FRAMES
    out = [f"  ({hidden} calls before)"] if hidden > 0 else []
    return out + [f"  {frame}" for frame in worker.stack[-_NUM_FRAMES:]]


# -- likely causes ----------------------------------------------------------------------------------------------------------------

_LOCK = re.compile(r"\.acquire\(|\.wait\(|\.join\(|^(async )?with (?!.*\bopen\()")
_QUEUE = re.compile(r"\.get\(|\.dequeue\w*\(|\bqueue\b")
_READ = re.compile(
    r"\bopen\(|\bread\w*\(|\.recv\w*\(|\.accept\(|\.connect\(|\burlopen\(|\.getresponse\(|\.(get|fetch)\w*\(.*http|\bselect\("
)
_READ_FILES = (
    "socket.py", "ssl.py", "selectors.py", "subprocess.py", "client.py", "connectionpool.py",
    "streams.py", "selector_events.py", "sslproto.py",
)  # fmt: skip
_BOUND_AWAIT = "bound what is awaited above with `asyncio.timeout(...)`; a longer stall_timeout_s if it may take so long"
_BOUND_IT = "mend or bound the call shown above (give it a timeout); a longer stall_timeout_s if it may take so long"


def _cause(situation: Situation, stuck: list[WorkerFacts]) -> _Cause:
    if not stuck:
        return _cause_without_element(situation)
    first = stuck[0]
    if first.blocks:
        return _blocking(first)
    if first.cpu_share is not None and first.cpu_share >= _COMPUTES:
        return (
            f"a loop without end, or a very expensive element, in {_spot(first)}",
            "look at the line shown above; if it is only expensive, give a longer stall_timeout_s",
        )
    if _matches(first, _QUEUE, ("queue.py", "queues.py")):
        return (
            "an empty source: it waits for a queue into which nobody puts anything, perhaps because the producer is dead",
            "check who fills the queue; let the producer put an end mark or close it",
        )
    if first.call and _matches(first, _LOCK, ("locks.py",)):
        return _locked([first])  # many calls may wait for one lock: that is no knot
    if _matches(first, _LOCK, ("threading.py",)):
        # Who came a little later to the other lock is not overdue yet.
        late = [worker for worker in situation.busy if worker is not first and 2 * worker.lasted_s >= situation.timeout_s]
        return _locked([first, *(worker for worker in late if _matches(worker, _LOCK, ("threading.py",)))])
    return _cause_of_wait(first)


def _cause_of_wait(first: WorkerFacts) -> _Cause:
    """Say what an element waits for that computes nothing, and waits for no queue and no lock."""
    if first.reader:
        return (f"a dead generator or a blocked read in {_spot(first)}", _BOUND_IT)
    if _matches(first, _READ, _READ_FILES) or first.stage == "read":
        return (f"a blocked read (file, FIFO, network disk or socket) in {_spot(first)}", _BOUND_IT)
    if any("sleep(" in call.text for call in first.stack[-2 if first.call else -1 :]):
        return (f"a sleep in {_spot(first)}", _BOUND_IT)
    if first.call:
        return (f"something awaited that never comes, in {_spot(first)}", _BOUND_AWAIT)
    return (f"a call that does not return: {_spot(first)}", _BOUND_IT)


def _blocking(first: WorkerFacts) -> _Cause:
    """Say why the loop does not go round."""
    if first.cpu_share is not None and first.cpu_share >= _COMPUTES:
        return (
            f"a computation inside an async function, in {_spot(first)}",
            "while it runs no other call goes on: make it a map of its own with a plain function, or use `await asyncio.to_thread(...)`",
        )
    return (
        f"a blocking call inside an async function, in {_spot(first)}",
        "while it runs no other call goes on: use an async library, or `await asyncio.to_thread(...)`, or make the function a plain one",
    )


def _locked(locked: list[WorkerFacts]) -> _Cause:
    if len(locked) > 1:
        names = " and ".join(f"worker {worker.index} of stage {worker.stage!r} (at {_spot(worker)})" for worker in locked[:2])
        return (
            f"a lock between two operators: {names} wait for each other or for a third",
            "take the locks in one order everywhere, or use one lock; elements may be computed by several workers at once",
        )
    return (
        f"a lock or event that nobody releases, in {_spot(locked[0])}",
        "check who holds it: the thread that calls next() must not hold what a worker needs; give the wait a timeout",
    )


def _cause_without_element(situation: Situation) -> _Cause:
    if situation.kind == "slow":
        return (
            "much work for little result: slow elements, a large batch, or a filter that drops nearly everything",
            "look at feed.report(); a longer stall_timeout_s says that such waits are expected",
        )
    if situation.kept >= situation.limit:
        return (
            f"a consumer that holds every slot: {situation.kept} batches are kept",
            "drop batches that are done with, copy what must be kept, or give a larger memory_bytes",
        )
    return (
        "a fault of penstock: with nothing to do, everything should be delivered",
        "please report this text; a new feed with load_state_dict() of the last state goes on",
    )


def _matches(worker: WorkerFacts, pattern: re.Pattern[str], files: tuple[str, ...]) -> bool:
    """Tell whether the innermost call, or the call into one of `files` that ends the stack, looks like this."""
    if not worker.stack:
        return False
    tail = [frame for frame in worker.stack[-3:] if re.split(r"[\\/]", frame.file)[-1] in files]
    return bool(tail) or pattern.search(worker.stack[-1].text) is not None


def _spot(worker: WorkerFacts) -> str:
    """Name the innermost call that is not of Python's own library."""
    own = [frame for frame in worker.stack if not re.search(r"[\\/]lib[\\/]python[\d.]+[\\/](?!site-packages|dist-packages)", frame.file)]
    frames = own or list(worker.stack)
    return f"{frames[-1].file}:{frames[-1].line} in {frames[-1].function}" if frames else "code without a Python frame"
