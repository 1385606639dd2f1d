"""The lines of a text file and the records of a CSV file, found piece by piece in bounded memory; first bytes of other formats.

Beside offsets and lengths stands which line of the file a record is, as the few places where that is not simply one more than the
record before: behind blank lines that are left out, and behind CSV records of several lines. A file whose first bytes are of another
format is never read as text or as raw numbers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.compression import STREAM_FIX, PlainPart, compression_of_head
from penstock.kernels import lines
from penstock.kernels.library import Ints, Uint8s

HEAD_BYTES = 16
"""First bytes of a file that tell all of it."""


class Foreign(NamedTuple):
    """Another format than the one that a file is read as.

    Attributes:
        kind: its name.
        fix: what to do.
        mark: the first bytes.
        behind: pattern of the bytes behind it: numbers begin with both by a chance of 1 in 2**32 at most. None: nothing tells so much.
    """

    kind: str
    fix: str
    mark: bytes
    behind: bytes | None


_GZIP = "unpack it first (gunzip): inside a compressed file nothing can be found without all before it"
_ZSTD = rb"[\x00-\x07\x20-\x27\x40-\x47\x60-\x67\x80-\x87\xa0-\xa7\xc0-\xc7\xe0-\xe7]"
_ZIP = "unpack it first (unzip), which makes .npy files of an .npz"
_UTF_16 = "save it as UTF-8: iconv -f UTF-16 -t UTF-8"
_KNOWN = (
    Foreign("gzip", _GZIP, b"\x1f\x8b", rb"\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]"),
    Foreign("zstd", "unpack it first (unzstd)", b"\x28\xb5\x2f\xfd", _ZSTD),
    Foreign("bzip2", "unpack it first (bunzip2)", b"BZh", rb"[1-9](1AY&SY|\x17rE8P\x90)"),
    Foreign("xz", "unpack it first (unxz)", b"\xfd7zXZ", rb"\x00\x00"),
    Foreign("a zip archive", _ZIP, b"PK\x03\x04", rb"[\x00-\x3f]\x00.[\x00\x08][\x00-\x63]\x00"),
    Foreign("UTF-16", _UTF_16, b"\xff\xfe", None),
    Foreign("UTF-16", _UTF_16, b"\xfe\xff", None),
    Foreign("Parquet", "use read_parquet", b"PAR1", rb"\x15[\x00-\x06]\x15"),
    Foreign("an Arrow file", "use from_source(pyarrow.feather.read_table(path))", b"ARROW1", rb"\x00\x00"),
    Foreign("HDF5", "use from_source or from_arrays with the dataset that h5py gives", b"\x89HDF", rb"\r\n\x1a\n"),
    Foreign("an .npy file", "use read_tokens, or from_arrays(np.load(path))", b"\x93NUMPY", b""),
)


def foreign(head: bytes, *, surely: bool = False) -> Foreign | None:
    """Return the format that the first bytes of a file tell; None where they tell none.

    Args:
        head: the first `HEAD_BYTES` bytes, or fewer.
        surely: the mark alone is not enough, as in a file of numbers, which may begin with anything.
    """
    for one in _KNOWN:
        if head.startswith(one.mark) and (not surely or _goes_on(one, head)):
            return one
    return None


def _goes_on(one: Foreign, head: bytes) -> bool:
    return one.behind is not None and re.match(one.behind, head[len(one.mark) :], re.DOTALL) is not None


BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64 << 20
FROM, BY = "file_line_from", "file_line_by"
"""Columns: record FROM[k] of a file and those behind it stand BY[k] lines further down than their numbers say."""

_ROOM = 1 << 16
NEWLINE = 10
_LOOK_BYTES = 4096
_WHITE = b" \t\r\n\v\f"
_LAST_WHITE = max(_WHITE)
_Lengths = NDArray[np.uint32] | Ints


class Rules(NamedTuple):
    """The rules for records.

    Attributes:
        skip: "none": every line; "empty": empty lines are left out; "blank": so are those of nothing but white space.
        max_line_bytes: a longer record is an error, found before it is ever read whole.
        delimiter: a byte: newlines inside quotes end nothing. None: every newline ends a line.
        quote: the byte around such fields.
    """

    skip: str = "none"
    max_line_bytes: int = MAX_LINE_BYTES
    delimiter: int | None = None
    quote: int = 34


def line_number(columns: Any, number: int) -> int:
    """Return the line, from 1 on, at which record `number` of a file begins; `columns` are those of its index."""
    behind = columns.get(FROM)
    place = -1 if behind is None else int(np.searchsorted(behind, number, "right")) - 1
    return number + 1 + (int(columns[BY][place]) if place >= 0 else 0)


def scan_lines(pieces: Iterator[Uint8s], size: int, name: str, rules: Rules, first: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """Find the records of one file.

    Args:
        pieces: its bytes, in order, each valid until the next is asked for; the first begins with 4 kB at least, or is the only one.
        size: how many there are.
        name: of the file, for errors.
        rules: what is a record.
        first: called with the bytes of the first record, which then is none: a header. What it returns becomes the "meta".

    Returns:
        "offsets" int64 [n] and "lengths" uint32 or int64 [n], without the line feed; FROM and BY; "meta" if `first` was given.

    Raises:
        RecordError: a record that is too long, a file that is no text, quotes that are not closed, or no first record.
    """
    scan = _Scan(name=name, size=size, rules=rules, first=first)
    for piece in pieces:
        if len(piece):
            scan.add(piece)
    return scan.finish()


def stream_lines(pieces: Iterator[Uint8s], name: str, rules: Rules, first: Callable[[bytes], Any] | None = None) -> Iterator[PlainPart]:
    """Find the records of one file as `scan_lines` does, and give them as they are found; memory is bounded by a record and a piece.

    Raises:
        RecordError: as `scan_lines`; the records before have been given.
    """
    scan = _Scan(name=name, size=0, rules=rules, first=first)
    held: list[bytes] = []
    base = 0
    for piece in chain(pieces, [None]):
        if piece is None:
            scan.end()
        else:
            held.append(piece.tobytes())
            scan.size += len(piece)
            scan.add(piece)
        if scan.parts:
            data, found = b"".join(held), scan.taken()
            if len(found[0]):
                yield PlainPart(base, data, *found)
            held, base = [data[scan.begin - base :]], scan.begin


@dataclass(slots=True, kw_only=True)
class _Scan:
    """A scan in progress.

    Attributes:
        done: bytes that were looked at.
        newlines: how many newlines there were among them.
        begin: where the record that has not ended yet begins.
        line: its line, from 0 on.
        state: of the CSV scanner.
        tail: what earlier pieces held of that record, as much as is needed: all of a header, two bytes of others.
        blank: whether that is white space, or nothing.
        count: of the records up to now.
        further: how many lines further down than its number says the last of them stands.
        parts: where records begin, and how long they are. With 10^8 lines nothing else may be kept for each of them.
        shifts: numbers of records with another `further` than the one before, and what it is.
    """

    name: str
    size: int
    rules: Rules
    first: Callable[[bytes], Any] | None
    done: int = 0
    newlines: int = 0
    begin: int = 0
    line: int = 0
    state: int = lines.BEFORE
    tail: bytes = b""
    blank: bool = True
    meta: Any = None
    count: int = 0
    further: int = 0
    parts: deque[tuple[Ints, _Lengths]] = field(default_factory=deque)
    shifts: list[tuple[Ints, Ints]] = field(default_factory=list)
    room: Ints = field(default_factory=lambda: np.empty(_ROOM, np.int64))

    def add(self, piece: Uint8s) -> None:
        """Find what ends in a piece."""
        origin = self.done
        if origin == 0:
            self._look(piece[:_LOOK_BYTES].tobytes())
        while self.done < origin + len(piece):
            self._step(piece, origin)
        self._check_length(self.done - self.begin, self.begin, self.line)
        kept = piece[max(0, self.begin - origin) :]
        if self.first is not None:
            self.tail += kept.tobytes()
        elif len(self.tail) < 2:
            self.tail += kept[:2].tobytes()
        if self.rules.skip == "blank" and self.blank and len(kept):
            self.blank = kept.tobytes().isspace()

    def _look(self, head: bytes) -> None:
        other = foreign(head)
        if other is not None:
            fix = f"{other.fix}; {STREAM_FIX}" if compression_of_head(head) else other.fix
            raise RecordError(f"the file looks like {other.kind}, not like text", where=f"{self.name!r}, offset 0", fix=fix)
        if b"\0" in head[:4] or b"\n\0" in head or b"\0\n" in head:
            what = f"there is a NUL byte at {head.index(0)}: the file looks like UTF-16 without a mark, or like no text"
            fix = f"{_UTF_16}, with UTF-16LE or UTF-16BE where there is no mark"
            raise RecordError(what, where=f"{self.name!r}, offset {head.index(0)}", fix=fix)
        if head.startswith(BOM):
            self.begin = self.done = len(BOM)  # no part of a line, nor of a field

    def _step(self, piece: Uint8s, origin: int) -> None:
        """Find as many ends as there is room for."""
        rules, rest = self.rules, piece[self.done - origin :]
        if rules.delimiter is None:
            found, consumed = lines.find_lines(rest, self.done, self.room)
            num_newlines = found
        else:
            found, consumed, self.state = lines.find_records(rest, self.done, rules.delimiter, rules.quote, self.state, self.room)
            num_newlines = int(np.count_nonzero(rest[:consumed] == NEWLINE))
        if found:
            ends, upto = self.room[:found], None
            if num_newlines != found or self.newlines != self.line:
                upto = self.newlines + 1 + np.searchsorted(np.flatnonzero(rest[:consumed] == NEWLINE) + (self.done + 1), ends)
            self._note(ends, upto, piece, origin)
        self.newlines += num_newlines
        self.done += consumed

    def _note(self, ends: Ints, upto: Ints | None, piece: Uint8s, origin: int) -> None:
        """Note records that end with newlines, `upto[i]` of which have been passed behind record i; None: one each."""
        begins = np.empty(len(ends), np.int64)
        begins[0], begins[1:] = self.begin, ends[:-1]
        lengths = ends - begins
        lengths -= 1
        worst = int(lengths.argmax())
        if lengths[worst] > self.rules.max_line_bytes:
            first = int((lengths > self.rules.max_line_bytes).argmax())
            self._check_length(int(lengths[first]), int(begins[first]), self._line_of(upto, first))
        keep = self._kept(begins, lengths, piece, origin)
        if self.first is not None and (keep is None or keep.any()):
            keep = np.ones(len(begins), bool) if keep is None else keep
            place = int(keep.argmax())
            begin, end = int(begins[place]), int(ends[place]) - 1
            call, self.first = self.first, None
            self.meta = call((self.tail if begin < origin else b"") + piece[max(0, begin - origin) : end - origin].tobytes())
            keep[place] = False
        if keep is None and upto is None:
            self._keep(begins, lengths, self.line)
        else:
            at = np.arange(self.line, self.line + len(begins)) if upto is None else np.concatenate(([self.line], upto[:-1]))
            self._keep(*((begins, lengths, at) if keep is None else (begins[keep], lengths[keep], at[keep])))
        self.begin, self.line, self.tail, self.blank = int(ends[-1]), self._line_of(upto, len(ends)), b"", True

    def _line_of(self, upto: Ints | None, row: int) -> int:
        """Return the line of one of the records that are being noted, or of what is behind the last."""
        return self.line + row if upto is None else int(upto[row - 1]) if row else self.line

    def _keep(self, begins: Ints, lengths: Ints, at: Ints | int) -> None:
        """Keep records that begin in the lines `at`; of a number, in that one and those behind it."""
        if isinstance(at, int):
            if at - self.count != self.further:
                self.further = at - self.count
                self.shifts.append((np.array([self.count]), np.array([self.further])))
        elif len(begins):
            numbers = np.arange(self.count, self.count + len(begins))
            further = at - numbers
            places = np.flatnonzero(np.diff(further, prepend=self.further))
            if len(places):
                self.shifts.append((numbers[places], further[places]))
            self.further = int(further[-1])
        self.count += len(begins)
        self.parts.append((begins, lengths.astype(np.uint32) if self.rules.max_line_bytes < 1 << 32 else lengths))

    def _kept(self, begins: Ints, lengths: Ints, piece: Uint8s, origin: int) -> NDArray[np.bool_] | None:
        """Tell which records are not left out; None: all."""
        if self.rules.skip == "none":
            return None
        # Only lines that are short, or begin with white space, need a closer look.
        if self.rules.skip == "empty":
            odd = lengths <= 1
        else:
            places = begins - origin
            places[0] = max(places[0], 0)
            odd = piece.take(places, mode="clip") <= _LAST_WHITE  # few others are: letters, digits, brackets and quotes come behind
            odd[0] |= begins[0] < origin
        if not odd.any():
            return None
        keep = np.ones(len(begins), bool)
        for row in np.flatnonzero(odd).tolist():
            begin, end = int(begins[row]), int(begins[row] + lengths[row])
            text = piece[max(0, begin - origin) : max(0, end - origin)].tobytes()
            keep[row] = not self._is_blank(text, earlier=begin < origin)
        return None if keep.all() else keep

    def _is_blank(self, text: bytes, *, earlier: bool) -> bool:
        """Tell whether a record is to be left out; with `earlier`, `text` is only what the last piece holds of it."""
        if self.rules.skip == "blank":
            return not text.strip(_WHITE) and (self.blank or not earlier)
        return (self.tail if earlier else b"") + text in (b"", b"\r")

    def _check_length(self, length: int, begin: int, line: int) -> None:
        if length > self.rules.max_line_bytes:
            open_quote = self.rules.delimiter is not None and self.state == lines.QUOTED
            raise RecordError(
                f"line {line + 1} is longer than {self.rules.max_line_bytes} bytes",
                where=f"line {line + 1} of {self.name!r}, offset {begin}",
                fix="a quote that is not closed makes all behind it one field" if open_quote else "check the file, or give max_line_bytes=",
            )

    def taken(self) -> tuple[Ints, Ints, Ints]:
        """Return where the records found since the last call begin and end, and the lines that they begin in; forget them."""
        begins, lengths = (np.concatenate([part[column].astype(np.int64) for part in self.parts]) for column in range(2))
        self.parts.clear()
        numbers = np.arange(self.count - len(begins), self.count)
        froms, further = (np.concatenate([np.zeros(1, np.int64), *(shift[column] for shift in self.shifts)]) for column in range(2))
        self.shifts = [(np.zeros(1, np.int64), further[-1:])]
        return begins, begins + lengths, numbers + 1 + further[np.searchsorted(froms, numbers, "right") - 1]

    def finish(self) -> dict[str, Any]:
        """Return what was found."""
        self.end()
        return self._found()

    def end(self) -> None:
        """Note what ends with the file."""
        if self.state == lines.QUOTED:
            raise RecordError(
                "the file ends inside quotes",
                where=f"the record that begins at line {self.line + 1} of {self.name!r}, offset {self.begin}",
                fix="close the quote, or give the quote character that the file uses",
            )
        if self.done > self.begin:
            self._note_last()
        if self.first is not None:
            raise RecordError("the file has no header", where=f"{self.name!r}, {self.size} bytes", fix="give names=[...] if it has none")

    def _found(self) -> dict[str, Any]:
        offsets = np.empty(self.count, np.int64)
        lengths = np.empty(self.count, np.uint32 if self.rules.max_line_bytes < 1 << 32 else np.int64)
        done = 0
        while self.parts:  # each goes when it has been copied
            begins, part = self.parts.popleft()
            offsets[done : done + len(begins)], lengths[done : done + len(begins)] = begins, part
            done += len(begins)
        places, further = (np.concatenate([np.empty(0, np.int64), *(shift[column] for shift in self.shifts)]) for column in range(2))
        result: dict[str, Any] = {"offsets": offsets, "lengths": lengths, FROM: places, BY: further}
        if self.meta is not None:
            result["meta"] = self.meta
        return result

    def _note_last(self) -> None:
        """Note the record that ends with the file, without a newline."""
        if self.rules.skip != "none" and self._is_blank(b"", earlier=True):
            return
        if self.first is not None:
            call, self.first = self.first, None
            self.meta = call(self.tail)
            return
        self._keep(np.array([self.begin]), np.array([self.done - self.begin]), self.line)
