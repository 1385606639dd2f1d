"""What is said of a tar file that is not one, or that holds what is not read."""

from __future__ import annotations

from penstock.errors import RecordError
from penstock.kernels.tar import Table
from penstock.kernels.tar_codes import MAX_BYTES, MAX_EXTENDED, MAX_NAME, MAX_PARTS, Column, Outcome, Place

__all__ = ["WRITE_AGAIN", "compressed_error", "name_of", "scan_error", "tar_error"]

WRITE_AGAIN = "get another copy of the file or write it again"
_SHOWN_BYTES = 120
_TELL = "a sample's members must lie side by side: write the archive sorted by name, as `tar --sort=name` does"

_WORDS: dict[Outcome, tuple[str, str]] = {
    Outcome.BAD_CHECKSUM: ("there is no tar header: its check sum does not fit its bytes", WRITE_AGAIN),
    Outcome.BAD_SIZE: ("the size of the member is no number, is negative or has more than 63 bits", WRITE_AGAIN),
    Outcome.CUT: ("unexpected end: the member says that it has more bytes than the file has left", WRITE_AGAIN),
    Outcome.CUT_PADDING: ("unexpected end: the file is cut in the padding behind the member's data", WRITE_AGAIN),
    Outcome.LONG_NAME: (f"the name of the member has more than {MAX_NAME} bytes", "write it with shorter names"),
    Outcome.BAD_EXTENDED: ("the extended header (PAX or GNU long name) is not as it should be", WRITE_AGAIN),
    Outcome.LARGE_EXTENDED: (f"the extended header (PAX or GNU long name) has more than {MAX_EXTENDED} bytes", WRITE_AGAIN),
    Outcome.SPARSE: ("the member is stored sparse, with its zeros left out", "write the archive without --sparse"),
    Outcome.TWO_NAMES: ("two headers give the member a name, a size or attributes; readers differ in which one they believe", WRITE_AGAIN),
    Outcome.ORPHAN: ("unexpected end: an extended header stands before the end of the archive, without its member", WRITE_AGAIN),
    Outcome.GLOBAL_NAME: ("a global PAX header sets the name or size of all members behind it", "write the archive without it"),
    Outcome.SEVERAL_VOLUMES: ("the member goes on in another volume or has an old GNU name table", "write the archive in one volume"),
    Outcome.LARGE_MEMBER: (f"the member has more than {MAX_BYTES} bytes", "split it into several samples"),
    Outcome.LARGE_SAMPLE: (f"the sample has more than {MAX_BYTES} bytes", "split it into several samples"),
    Outcome.MANY_PARTS: (
        f"the sample has more than {MAX_PARTS} members",
        "give each sample a key of its own: the name up to its first dot",
    ),
    Outcome.SAME_FIELD: (
        "the sample has two members with the same extension",
        "give each sample a key of its own: the name up to its first dot",
    ),
    Outcome.NOT_ONE: ("the bytes are not one sample: the file is not the one that its index was built of", "build the index again"),
    Outcome.OUTSIDE: ("the sample does not lie in the bytes that were read", "build the index again"),
}

_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
    b"\x04\x22\x4d\x18": ("LZ4", "unlz4"),
}


def scan_error(outcome: Outcome, table: Table, name: str, head: bytes | None) -> RecordError:
    """Return the error for what stopped the scan of a file.

    Args:
        outcome: a negative one.
        table: as the scan left it.
        name: of the file.
        head: its first bytes; None: not the whole file was scanned.
    """
    offset = int(table.state[Place.ERROR_AT])
    if outcome == Outcome.BAD_CHECKSUM and offset == 0 and head is not None:
        no_tar = tar_error("this is no tar file: its first 512 bytes are no header", name, 0, fix="check the pattern")
        return compressed_error(name, head) or no_tar
    what, fix = _WORDS[outcome]
    member = table.names[int(table.state[Place.NUM_NAME_BYTES]) :][: int(table.state[Place.ERROR_NAME])].tobytes()
    return tar_error(what, name, offset, member=member, fix=fix)


def compressed_error(name: str, head: bytes) -> RecordError | None:
    """Return the error for an archive that is compressed as a whole, by its first bytes; None for any other file."""
    for magic, (kind, program) in _COMPRESSED.items():
        if head.startswith(magic):
            return tar_error(
                f"the file is compressed with {kind} as a whole, so nothing in it can be read without all before it",
                name,
                0,
                fix=f"decompress it once (`{program} FILE`), or convert it with `penstock pack`; compress members, if at all",
            )
    return None


def tar_error(what: str, name: str, offset: int, *, fix: str, member: bytes = b"") -> RecordError:
    """Return an error about a place in a file."""
    whose = f", member {_shown(member)}" if member else ""
    return RecordError(f"{what}{whose}", where=f"{name!r}, offset {offset}", fix=fix)


def name_of(table: Table, row: int) -> bytes:
    """Return the name of a member."""
    begin = int(table.rows[row - 1, Column.NAME_END]) if row else 0
    return table.names[begin : int(table.rows[row, Column.NAME_END])].tobytes()


def _shown(member: bytes) -> str:
    text = member.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN_BYTES else text[:_SHOWN_BYTES] + "...")
