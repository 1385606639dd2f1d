"""What one worker thread owns: its scratch memory and its keyed random generator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sys import getrefcount
from typing import Any, cast

import numpy as np

from penstock._contracts.transform import Scratch
from penstock._ops.block import UNLIMITED, Block, Ints
from penstock._ops.draws import Draws
from penstock._order.arithmetic import Length


class KeyedGenerator:
    """One NumPy Generator that is set to the stream of a key before each use.

    The stream is that of `numpy.random.Philox(key=[seed, stage], counter=[0, lane, index, epoch])` (Salmon et al., SC 2011). A new
    generator costs 7.5 us, setting `state` 1.7, writing the counter where it lies 0.3: that is done where the layout proves to be the
    known one. A generator that a function has kept, such as one that yields, stays as it is: it is left to that function for another.
    """

    __slots__ = ("_bits", "_counter", "_has_half", "_key", "_num_references", "_place", "_state", "generator")

    def __init__(self, seed: int, stage: int) -> None:
        self._key = seed, stage
        self._begin()

    def _begin(self) -> None:
        self._bits = np.random.Philox(key=np.array(self._key, np.uint64))
        self.generator = np.random.Generator(self._bits)
        self._num_references = getrefcount(self.generator)
        self._state: Any = dict(self._bits.state)
        self._state["state"]["counter"][:] = 0
        nowhere: tuple[memoryview | None, ...] = (None, None, None)
        self._counter, self._place, self._has_half = _layout(self._bits) or nowhere

    def at(self, epoch: int, index: int, lane: int) -> np.random.Generator:
        """Return the generator at the start of the stream of one element. It is valid until the next call, or as long as it is kept."""
        if getrefcount(self.generator) != self._num_references:
            self._begin()
        counter = self._counter
        if counter is None or self._place is None or self._has_half is None:
            counter = self._state["state"]["counter"]
            counter[1], counter[2], counter[3] = lane, index, epoch
            self._bits.state = self._state
            return self.generator
        counter[0], counter[1], counter[2], counter[3] = 0, lane, index, epoch
        self._place[0] = _BUFFER_USED_UP
        self._has_half[0] = 0
        return self.generator


def generator_of(seed: int, stage: int, epoch: int, index: int, lane: int) -> np.random.Generator:
    """Return a new generator of the stream that `KeyedGenerator.at` gives: for an element that is computed while others are begun."""
    counter = np.array([0, lane, index, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=np.array([seed, stage], np.uint64), counter=counter))


_BUFFER_USED_UP = 4
_State = tuple[memoryview, memoryview, memoryview]


def _layout(bits: np.random.Philox) -> _State | None:
    """Return views of counter, position and "half a draw is left" inside `bits`; None if they are not where NumPy 1.17 to 2.4 have them.

    The struct is {counter pointer, key pointer, int position, uint64 buffer[4], int has_uint32, uint32}. Nothing is written unless the
    counter lies inside the object itself and reads as the counter that the object says it has; one probe then checks the effect.
    """
    bits.state = {**bits.state, "state": {**bits.state["state"], "counter": np.array(_PROBE, np.uint64)}, "buffer_pos": 3}
    start = bits.ctypes.state_address
    low, high = id(bits), id(bits) + type(bits).__basicsize__
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not low <= start <= high - 64:
        return None
    address = ctypes.c_uint64.from_address(start).value
    if not low <= address <= high - 32:
        return None
    counter = _view((ctypes.c_uint64 * 4).from_address(address), "Q")
    place = _view((ctypes.c_int32 * 1).from_address(start + 16), "i")
    has_half = _view((ctypes.c_int32 * 1).from_address(start + 56), "i")
    if tuple(counter) != _PROBE or place[0] != 3 or has_half[0] != 0:
        return None
    counter[1] = 7
    place[0] = _BUFFER_USED_UP
    state = bits.state
    return (counter, place, has_half) if state["state"]["counter"][1] == 7 and state["buffer_pos"] == _BUFFER_USED_UP else None


_PROBE = (11, 22, 33, 44)


def _view(array: Any, kind: Any) -> memoryview:
    return memoryview(array).cast("B").cast(kind)


class WorkerContext:
    """Per-thread working state, handed to every operator. Not shared; but the watchdog looks at where it is.

    Attributes:
        index: the worker's number.
        block, operator: what is being computed, and by which step.
        origins: behind a filter or flat_map, the input offset of each element of the block.
        finishing: whether the block holds batches of the chunk, not rows of the task.
        began: (time run, CPU time of the thread) at the begin of the task, in ns; None before it.
        piece: the rows (begin, end) of the chunk that are being computed; with `finishing` its items.
        mend: computes the elements of a batch inside the leaf (chain below the batch, its length, epochs, positions) by the policies; None
            while no policy has to act.
        room: how many bytes the task may hold before it stops behind the element with which it does.
        kept: the bytes that it left behind, for the batch or the next stage.
        most_bytes: that it held at once.
        cpu_ns: the CPU time that another process spent on the task for it.
        beside_ns: what the last task took beside its computing: to be booked, and to have its batch made.
        busy_ns: how long it took there, without the way to it and without waiting for a CPU; None where this thread computed the task.
        announce_row: called with a row before it is computed, where rows kill worker processes.
        errand: has the thread of the user's functions make a call, and returns its result; None in that thread, and where there is none.
        gate: of the feed, where elements are computed twice and threads compute side by side; None elsewhere.
        trace: notes what each step gives; None but for an element that is computed twice.
        remote: the worker of another process that computes for this thread (`penstock._workers.elsewhere`); None where the thread computes.
        draws: watches the first calls of functions; None for no watch.
    """

    __slots__ = (
        "_generators", "_packed", "_scratch", "announce_row", "began", "beside_ns", "block", "busy_ns", "cpu_ns", "draws", "errand",
        "finishing", "gate", "index", "kept", "mend", "most_bytes", "operator", "origins", "piece", "remote", "room", "trace",
    )  # fmt: skip

    def __init__(self, index: int, remote: Any = None) -> None:
        self.index, self.remote = index, remote
        self.began: tuple[int, int] | None = None
        self.take_room(UNLIMITED)
        self.rest()
        self.cpu_ns = self.beside_ns = 0
        self.busy_ns: int | None = None
        self.announce_row: Callable[[int], object] = lambda row: None
        self.errand: Callable[[Callable[[], Any]], Any] | None = None
        self.gate: Any = None
        self.trace: Any = None
        self.draws: Draws | None = None
        self._packed = (0, 0)
        self._scratch: dict[tuple[int, int], Scratch] = {}
        self._generators: dict[tuple[int, int], KeyedGenerator] = {}

    def rest(self) -> None:
        """Let go of what was computed last: its elements must not live until the next task."""
        self.block: Block | None = None
        self.operator: Any = None
        self.origins: Ints | None = None
        self.finishing = False
        self.piece: tuple[int, int] | None = None
        self.mend: Callable[[Any, Length, Ints, Ints], list[Any]] | None = None

    def begin(self, piece: tuple[int, int] | None) -> None:
        """Note the rows, or items, of the chunk that are computed next."""
        self.block = self.operator = self.origins = None
        self.piece, self.mend = piece, None

    def beside(self) -> AbstractContextManager[None]:
        """Compute beside other workers, but not beside one that computes something a second time."""
        return nullcontext() if self.gate is None else self.gate.shared()

    def take_room(self, room: int) -> None:
        """Begin a task that may hold so many bytes."""
        self.room, self.kept, self.most_bytes = room, 0, 0

    @contextmanager
    def given_room(self, room: int) -> Iterator[None]:
        """Let what is computed meanwhile hold so many bytes."""
        before, self.room = self.room, room
        try:
            yield
        finally:
            self.room = before

    def weigh(self, num_bytes: int) -> None:
        """Note that so many bytes are held at once, beside what is kept."""
        self.most_bytes = max(self.most_bytes, self.kept + num_bytes)

    def keep(self, num_bytes: int) -> None:
        """Note that so many bytes stay with the chunk, or go to the next stage."""
        self.kept += num_bytes
        self.room -= num_bytes
        self.most_bytes = max(self.most_bytes, self.kept)

    def _spot(self) -> Any:
        return None if self.remote is None else self.remote.spot()

    def place(self) -> Any:
        """Return where the worker is: another value means that it has moved on. From any thread."""
        if (spot := self._spot()) is not None:
            return spot.marker
        block = self.block
        return id(block), id(self.operator), None if block is None else block.begun, self.finishing, self.piece

    def row(self) -> int | None:
        """Return the row, or item, of the chunk that the worker is with; None when that is not known. From any thread.

        It is not known inside a whole column, or a branch, where rows are others or all at once.
        """
        if (spot := self._spot()) is not None:
            return cast("int | None", spot.row)
        piece, block, origins = self.piece, self.block, self.origins
        if piece is None:
            return None
        begin, end = piece
        if end - begin == 1:
            return begin
        begun = None if block is None else block.begun
        if block is None or begun is None or (begun == 0 and block.reading):  # the source may read all of them at once
            return None
        if origins is not None:
            return begin + int(origins[begun]) if begun < len(origins) else None
        return begin + begun if len(block) == end - begin else None

    @property
    def step_name(self) -> str:
        """The step that runs: "read", the name of an operator, or nothing where that is not known. From any thread."""
        if (spot := self._spot()) is not None:
            return cast(str, spot.step)
        block = self.block
        return "read" if block is not None and block.reading else str(getattr(self.operator, "name", "") or "")

    @property
    def pid(self) -> int | None:
        """The process that computes; None for this one, 0 for one of another machine."""
        return None if self.remote is None or not self.remote.busy else cast("int | None", self.remote.pid)

    @property
    def starts(self) -> bool:
        """Whether the process that computes starts: no element takes long yet."""
        spot = self._spot()
        return spot is not None and spot.number == 0

    def calls(self) -> list[tuple[str, int, str]] | None:
        """Return the Python calls of the process that computes, innermost last: file, line, function. None for this process."""
        return None if self.remote is None or not self.remote.busy else cast("list[tuple[str, int, str]]", self.remote.calls())

    def give_up(self, error: BaseException) -> bool:
        """End the process that computes, so that its element counts as one that failed with `error`; return whether there is one."""
        return self.remote is not None and bool(self.remote.give_up(error))

    def scratch(self, owner: int, step: int) -> Scratch:
        """Return the scratch memory of one step of one operator."""
        found = self._scratch.get((owner, step))
        if found is None:
            found = self._scratch[owner, step] = Scratch()
        return found

    def keyed(self, seed: int, stage: int) -> KeyedGenerator:
        """Return this worker's generator for one random operator."""
        found = self._generators.get((seed, stage))
        if found is None:
            found = self._generators[seed, stage] = KeyedGenerator(seed, stage)
        return found

    def function(self, operator: Any, block: Block) -> Callable[..., Any]:
        """Return the function of an operator, for the elements of a block; for its first calls one that is watched, where it is."""
        fn: Callable[..., Any] = operator.fn
        over_block = getattr(fn, "over_block", None)  # of a BlockFunction; isinstance costs 1 us
        return (over_block and over_block(block.rows())) or (fn if self.draws is None else self.draws.watched(fn, operator.name, self))

    def packed(self, used: int, places: int) -> None:
        """Count packed rows: so many of their places are in use."""
        self._packed = (self._packed[0] + used, self._packed[1] + places)

    def take_packed(self) -> tuple[int, int]:
        """Return (places in use, places) of the rows packed since the last call."""
        counted, self._packed = self._packed, (0, 0)
        return counted
