"""Event files: the bytes of every message, unique names, cuts, and processes that were forked. TensorBoard reads them in tests/interop."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from penstock.formats.tfrecord import read_records
from penstock.observe.curves import EventFile


def records_of(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [bytes(record) for record in read_records(file)]


def test_a_point_is_one_event_with_a_value_for_each_tag(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "logs" / "run")
    file.begin(7)
    file.write(300, [("a/b", 0.5), ("c", -1.0)])
    file.close()
    version, start, point = records_of(file.path)
    assert version[9:] == b"\x10\x00\x1a\x0dbrain.Event:2"  # step 0, file_version
    assert start[9:] == b"\x10\x07\x3a\x02\x08\x01"  # step 7, session_log.status = START
    assert point[0] == 0x09
    assert struct.unpack("<d", point[1:9])[0] > 1.6e9
    values = b"\x0a\x0a\x0a\x03a/b\x15" + struct.pack("<f", 0.5) + b"\x0a\x08\x0a\x01c\x15" + struct.pack("<f", -1.0)
    assert point[9:] == b"\x10\xac\x02\x2a" + bytes([len(values)]) + values
    assert file.num_bytes == file.path.stat().st_size


def test_files_of_one_folder_and_second_have_names_of_their_own(tmp_path: Path) -> None:
    files = [EventFile(tmp_path) for _ in range(5)]
    assert len({file.path for file in files}) == 5
    assert all("tfevents" in file.path.name for file in files)
    for file in files:
        file.close()
        file.close()


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.write(1, [("fill", 1.0)])
    size = file.path.stat().st_size
    child = os.fork()
    if child == 0:
        file.write(2, [("fill", 0.0)])
        file.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert file.path.stat().st_size == size
    file.write(3, [("fill", 0.5)])
    file.close()
    assert len(records_of(file.path)) == 3
