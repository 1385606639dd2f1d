"""Members and samples of tar files: the checked functions. They call the C library or the twin without the GIL, from any thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import tar_twin
from penstock.kernels.checks import block, integer, place, require, require_out, require_shape
from penstock.kernels.library import chosen
from penstock.kernels.tar_codes import MAX_NAME, MAX_PARTS, NUM_COLUMNS, NUM_STATES, UNIT, TarColumn, TarOutcome, TarPlace

__all__ = ["TarTable", "scan_members", "scan_samples"]

_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_MOST = 1 << 62


class TarTable:
    """Where a scan writes what it finds. Of one thread at a time.

    Attributes:
        rows: int64 [some, columns], one row per member; see `TarColumn`.
        names: uint8 [some], the names of the members, one behind the other.
        state: int64 [places]; see `TarPlace`.
    """

    __slots__ = ("names", "rows", "state")

    def __init__(self, *, with_crc: bool) -> None:
        """Make an empty one, with or without check sums."""
        self.rows = np.empty((0, NUM_COLUMNS), np.int64)
        self.names = np.empty(0, np.uint8)
        self.state = np.zeros(NUM_STATES, np.int64)
        self.state[[TarPlace.SAMPLE, TarPlace.FIRST_ODD]] = -1
        self.state[TarPlace.WITH_CRC] = with_crc

    def reserve(self, num_rows: int, num_name_bytes: int) -> None:
        """Make room for so many more rows and bytes of names."""
        rows, names = int(self.state[TarPlace.NUM_ROWS]), int(self.state[TarPlace.NUM_NAME_BYTES])
        if len(self.rows) - rows < num_rows:
            grown = np.empty((rows + num_rows, NUM_COLUMNS), np.int64)
            grown[:rows] = self.rows[:rows]
            self.rows = grown
        if self.names.size - names < num_name_bytes:
            letters = np.empty(names + num_name_bytes, np.uint8)
            letters[:names] = self.names[:names]
            self.names = letters

    def drop(self, num_rows: int) -> None:
        """Forget the first rows and their names."""
        if num_rows == 0:
            return
        state = self.state
        left, letters = int(state[TarPlace.NUM_ROWS]) - num_rows, int(self.rows[num_rows - 1, TarColumn.NAME_END])
        self.rows[:left] = self.rows[num_rows : num_rows + left].copy()
        self.rows[:left, TarColumn.NAME_END] -= letters
        kept = int(state[TarPlace.NUM_NAME_BYTES]) - letters
        self.names[:kept] = self.names[letters : letters + kept].copy()
        state[TarPlace.NUM_ROWS], state[TarPlace.NUM_NAME_BYTES] = left, kept
        state[TarPlace.SAMPLE] = max(-1, int(state[TarPlace.SAMPLE]) - num_rows)


def scan_members(data: NDArray[np.uint8], base: int, total: int, table: TarTable) -> TarOutcome:
    """Scan one piece of a tar file, going on at `table.state[POSITION]`; each header is checked, and data are not looked at.

    Args:
        data: uint8 [n], contiguous: bytes of the file from `base` on. When the table owes bytes (`TarPlace.OWED`) it begins where the last
            piece ended, otherwise anywhere up to the position where the last scan stopped.
        base: place in the file.
        total: bytes of the file; no member may reach beyond.
        table: what was found; room for what can be found is made.

    Returns:
        `TarOutcome.MORE`, `END`, or what is wrong at `TarPlace.ERROR_AT`.

    Raises:
        SpecError: an array of another dtype or layout, or a number out of range.
    """
    data = block("scan_members", "data", data, _UINT8)
    total = integer("scan_members", "total", total, 0, _MOST)
    base = integer("scan_members", "base", base, 0, total - data.size if data.size <= total else -1)
    integer("scan_members", "table.state[POSITION]", int(table.state[TarPlace.POSITION]), 0, _MOST)
    _check(table, "scan_members")
    # A name is shorter than the headers that it stands in.
    table.reserve(data.size // UNIT + 1, data.size + MAX_NAME)
    return TarOutcome(chosen("tar_scan", tar_twin.scan)(data, base, total, table.rows, table.names, table.state))


def scan_samples(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], table: TarTable, ends: NDArray[np.int64]
) -> TarOutcome:
    """Scan samples that lie anywhere in `data`, each of which must be exactly one. One call without the GIL.

    Args:
        data: uint8 [m], contiguous.
        starts: int64 [n], where each sample begins; any number is safe.
        lengths: int64 [n], in bytes; any number is safe.
        table: an empty one; START and DATA of its rows are places in `data`.
        ends: int64 [n], written: the number of rows up to and with each sample.

    Returns:
        `TarOutcome.MORE` when all is well; otherwise what is wrong with sample `table.state[SAMPLE]`, at `TarPlace.ERROR_AT` from its
        beginning. Rows and ends of the samples before it are there.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    data = block("scan_samples", "data", data, _UINT8)
    starts = block("scan_samples", "starts", starts, _INT64)
    lengths = block("scan_samples", "lengths", lengths, _INT64, starts.shape[0])
    require_out("scan_samples", ends, _INT64, starts.shape, starts)
    _check(table, "scan_samples")
    # Few members as a rule: the table begins small. When it is full, it gets what the bytes could hold at most.
    table.reserve(4 * starts.size + MAX_PARTS, 256 * starts.size + MAX_NAME)
    before = table.state.copy()
    outcome = TarOutcome(chosen("tar_samples", tar_twin.samples)(data, starts, lengths, table.rows, table.names, ends, table.state))
    if outcome == TarOutcome.FULL:
        table.state[:] = before
        table.reserve(*_most(data.size, lengths))
        outcome = TarOutcome(chosen("tar_samples", tar_twin.samples)(data, starts, lengths, table.rows, table.names, ends, table.state))
    return outcome


def _most(num_bytes: int, lengths: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many rows and bytes of names samples of these lengths can have; they may lie one over the other."""
    total = int(np.clip(lengths, 0, num_bytes).sum())
    return total // UNIT + 1, total + MAX_NAME


def _check(table: TarTable, function: str) -> None:
    """Refuse arrays that somebody else put into the table."""
    for argument, array, dtype, num_dims in (
        ("rows", table.rows, _INT64, 2),
        ("names", table.names, _UINT8, 1),
        ("state", table.state, _INT64, 1),
    ):
        require(function, argument, array, dtype, num_dims)
        if not array.flags.carray:
            raise SpecError(
                f"{argument} is no block of memory", where=place(function, argument), fix="leave the arrays of a Table as they are"
            )
    require_shape(function, "state", table.state, (NUM_STATES,))
    require_shape(function, "rows", table.rows, (len(table.rows), NUM_COLUMNS))
    state: list[Any] = table.state.tolist()
    integer(function, "state[NUM_ROWS]", state[TarPlace.NUM_ROWS], 0, len(table.rows))
    integer(function, "state[NUM_NAME_BYTES]", state[TarPlace.NUM_NAME_BYTES], 0, table.names.size)
    integer(function, "state[SAMPLE]", state[TarPlace.SAMPLE], -1, state[TarPlace.NUM_ROWS] - 1)
