"""Workers as processes, and the one thread that takes their items in turn."""

from __future__ import annotations

import atexit
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock._processes.bell import Bell
from penstock._processes.child import Child, stop_all, wait_any
from penstock._processes.failure import fit_to_raise
from penstock._processes.inbox import Inbox
from penstock._processes.outbox import Parcelled
from penstock.enqueuer.handing import Events, Handing, HandingRun
from penstock.enqueuer.serving import FINISHED, Duty, serve_items
from penstock.errors import EnqueueCancelled, StillRunning, WorkerDied

__all__ = ["InProcesses"]

_GRACE_S = 2.0
_EXIT_GRACE_S = 0.5
_FAILED_GRACE_S = 0.5
_KILL_S = 12.0  # SIGTERM and SIGKILL take no longer
_MOST_LEASED = 256  # slots that items in the queue may hold, each with a descriptor; those beyond are copied out
_SPARE_SLOTS = 4  # batches of one worker that a loop keeps while it asks for the next


class _Worker:
    """One child, and what has come from it and not been taken."""

    __slots__ = ("_credit", "_used", "arrived", "child", "inbox", "number", "said_end")

    def __init__(self, number: int, child: Child, max_leased: int, credit: int) -> None:
        self._credit, self._used = credit, 0
        self.number = number
        self.child = child
        self.inbox = Inbox(max_leased)
        self.arrived: deque[Any] = deque()
        self.said_end = False

    def receive(self) -> None:
        """Take in the next message. An error of the generator is one: it is raised at its turn, behind the items before it.

        Raises:
            WorkerDied: there is none, and there will be none.
        """
        try:
            message = self.child.receive()
        except Exception as error:
            if isinstance(error, WorkerDied):
                raise
            message = error
        self.arrived.append(message)
        self.said_end = isinstance(message, BaseException) or (type(message) is int and message == FINISHED)

    def grant(self) -> None:
        """Let the child send one more, and give it the slots that came back; several at once where it has enough in hand."""
        self._used += 1
        if 2 * self._used >= self._credit:
            self.child.offer((self._used, self.inbox.take_returned()))
            self._used = 0

    def open(self, parcelled: Parcelled) -> Any:
        """Return the item of a message."""
        try:
            return self.inbox.open(parcelled, self.child.take_fd)
        except BaseException as error:
            raise fit_to_raise(error, f"reading an item of {self.child.name}") from None


class _Stopped(Exception):
    """The bell rang."""


class InProcesses(HandingRun):
    """Children, each with its own iterator; item after item is taken from each in turn, so the same seed and workers give the same order.

    Args:
        duties: one for each child.
        method: how to start them.
        max_queue_size: items that may wait, those that the children have sent included.
        name: for errors.
        patience_s: when a warning says that no item comes.
        events: announces the items.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        method: str,
        max_queue_size: int,
        name: str,
        patience_s: float = math.inf,
        events: Events | None = None,
    ) -> None:
        self.name = name
        num, credit = len(duties), duties[0].credit
        self._handing = Handing(max(1, max_queue_size - num * credit), name, patience_s, self._say, events)
        self._place = duties[0].given.words_of_place()
        self._bell = Bell()
        self._bell_closed = False
        self._ringing = threading.RLock()  # a finaliser may ring while its own thread is in here
        self._grace_s = _GRACE_S
        self._at = 0  # the worker whose message is read
        self._workers: list[_Worker] = []
        max_leased = -(-min(max_queue_size, _MOST_LEASED) // num) + credit + _SPARE_SLOTS
        try:
            for duty in duties:
                child = Child.start(serve_items, (duty,), name=duty.where, method=method)
                self._workers.append(_Worker(duty.worker, child, max_leased, credit))
            self._thread = threading.Thread(target=self._run, name="penstock-enqueuer-hand", daemon=True)
            self._thread.start()
        except BaseException:
            stop_all([worker.child for worker in self._workers], 0.0)
            self._bell.close()
            raise
        # Behind multiprocessing's own in the order of registration, so before it in the order of calls: it would wait for ever for a child
        # that does not heed SIGTERM.
        atexit.register(self._at_exit)

    def abandon(self) -> None:
        """Tell the thread to end, which ends the children."""
        self._handing.stop()
        self._ring()

    def stop(self, timeout_s: float | None) -> None:
        """End the children: those that do not stop within `timeout_s` (None: 2 s) are killed. Returns when all are gone.

        Raises:
            StillRunning: the system does not let go of one.
        """
        self._grace_s = _GRACE_S if timeout_s is None else timeout_s
        self.abandon()
        if self._thread is threading.current_thread():
            return
        self._thread.join(self._grace_s + _KILL_S)
        if self._thread.is_alive():
            raise StillRunning(
                f"{len(self._workers)} processes did not end: {', '.join(str(worker.child.pid) for worker in self._workers)}",
                where=f"{self.name}.stop()",
                fix="they are stuck in the kernel, as in a read of a network disk that is gone",
            )

    def _say(self) -> tuple[str, str]:
        pids = ", ".join(str(worker.child.pid) for worker in list(self._workers))
        return (
            f"its generator{self._place} in process {pids} has sent nothing",
            "make the items in this thread, start(workers=0), to see where it is; stop() from another thread ends the wait",
        )

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            failure = self._take_turns()
        except (_Stopped, EnqueueCancelled):
            pass
        except WorkerDied as died:
            failure = died.with_traceback(None)  # that of this thread tells nothing, and its frames hold the mapped memory
        except BaseException as error:
            failure = error
        if failure is not None:
            self._handing.end(failure, self._at)  # at once, not when all children are gone
        try:
            stop_all([worker.child for worker in self._workers], self._grace_s if failure is None else min(self._grace_s, _FAILED_GRACE_S))
        finally:
            self._workers.clear()
            self._close_bell()
            atexit.unregister(self._at_exit)
            self._handing.end()

    def _take_turns(self) -> BaseException | None:
        """Hand on items until all generators are at their ends, or one has failed; return its error."""
        turn = deque(self._workers)
        while turn:
            worker = turn[0]
            while not worker.arrived:
                self._take_in()
            message, self._at = worker.arrived.popleft(), worker.number
            if type(message) is int and message == FINISHED:
                turn.popleft()
                continue
            if isinstance(message, BaseException):
                return BaseException.with_traceback(message, None)
            turn.rotate(-1)
            if isinstance(message, Parcelled):
                self._handing.put(worker.number, message.about, worker.open(message))
            del message
            worker.grant()
        return None

    def _take_in(self) -> None:
        """Wait for a message of any worker that has none here; a death is told at once, whoever's turn it is."""
        by_child = {worker.child: worker for worker in self._workers if not worker.said_end}
        open_to = [child for child, worker in by_child.items() if not worker.arrived]
        for child in wait_any(open_to, self._bell, alive=[child for child, worker in by_child.items() if worker.arrived]):
            worker = by_child[child]
            dead, self._at = bool(worker.arrived), worker.number
            worker.receive()
            # Of a dead one all that it sent is there; of another one what came along.
            while not worker.said_end and (dead or child.has_message):
                worker.receive()
        if self._handing.stopped:
            raise _Stopped
        self._bell.silence()

    def _ring(self) -> None:
        with self._ringing:
            if not self._bell_closed:
                self._bell.ring()

    def _close_bell(self) -> None:
        with self._ringing:
            self._bell_closed = True
            self._bell.close()

    def _at_exit(self) -> None:
        self.stop(_EXIT_GRACE_S)
