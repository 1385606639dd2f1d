"""What the scanners of tar files in C and in Python agree on: limits, columns, places in the state, outcomes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["MAX_BYTES", "MAX_EXTENDED", "MAX_NAME", "MAX_PARTS", "NUM_COLUMNS", "NUM_STATES", "UNIT", "TarColumn", "TarOutcome", "TarPlace"]

UNIT: Final = 512
"""Bytes of a block: headers, and what data are padded to."""
MAX_NAME: Final = 4096
"""Most bytes of a name."""
MAX_EXTENDED: Final = 1 << 20
"""Most bytes of a PAX header or a GNU long name."""
MAX_PARTS: Final = 256
"""Most members of a sample."""
MAX_BYTES: Final = (1 << 32) - 1
"""Most bytes of a member, and of a sample."""


class TarColumn(IntEnum):
    """Of a row, which is a regular member that belongs to a sample."""

    START = 0
    """Where its first header begins."""
    DATA = 1
    SIZE = 2
    NAME_END = 3
    """End of its name among the names; it begins where that of the row before ends."""
    KEY_LENGTH = 4
    """Bytes of its name that are the key; a dot follows."""
    FIRST = 5
    """1 in the first member of a sample, 0 in others."""
    KEY_HASH = 6
    OTHER_HASH = 7
    """With KEY_HASH 128 bits of the key: equal ones mean equal keys, which are not kept."""
    FIELD_HASH = 8
    CRC = 9
    """CRC32C of this and the sample's members before it, headers and padding included; 0 when it is not asked for."""


NUM_COLUMNS: Final = len(TarColumn)


class TarPlace(IntEnum):
    """In the state, which one call hands to the next."""

    POSITION = 0
    """Where to go on, counted from the beginning of the bytes; may lie behind their end."""
    NUM_ROWS = 1
    NUM_NAME_BYTES = 2
    SAMPLE = 3
    """Row of the first member of the sample that may have more of them; -1: none. Of `scan_samples`: the number of the one that failed."""
    OWED = 4
    """Place in the file where the last row ends, when its check sum lacks bytes: the next call must begin where this one's bytes ended."""
    WITH_CRC = 5
    ERROR_AT = 6
    """Place in the file of the header that the outcome is about."""
    ERROR_NAME = 7
    """Bytes of the name of that member, which stands behind the other names; 0: not known yet."""
    FIRST_ODD = 8
    """Place in the file of the first link or special file; -1: none."""
    DIRECTORIES = 9
    LINKS = 10
    SPECIAL = 11
    GLOBALS = 12
    META = 13
    NAMELESS = 14


NUM_STATES: Final = len(TarPlace)


class TarOutcome(IntEnum):
    """Why a scan stopped."""

    MORE = 0
    """The bytes are used up as far as whole headers go."""
    END = 1
    """A block of zeros stands at POSITION."""
    BAD_CHECKSUM = -1
    BAD_SIZE = -2
    CUT = -3
    CUT_PADDING = -4
    LONG_NAME = -5
    BAD_EXTENDED = -6
    LARGE_EXTENDED = -7
    SPARSE = -8
    TWO_NAMES = -9
    ORPHAN = -10
    """An extended header without its member."""
    GLOBAL_NAME = -11
    SEVERAL_VOLUMES = -12
    LARGE_MEMBER = -13
    LARGE_SAMPLE = -14
    MANY_PARTS = -15
    SAME_FIELD = -16
    FULL = -17
    """The arrays are full."""
    NOT_ONE = -18
    """The bytes are not exactly one sample."""
    OUTSIDE = -19
    """The sample does not lie in the bytes."""
