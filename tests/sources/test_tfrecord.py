from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
from formats.tfrecords import FIVE, borders, record_at, tfrecord, write_tfrecord

from penstock._storage import open_storage
from penstock.errors import RecordError
from penstock.sources.indexing import open_all
from penstock.sources.tfrecord import TFRecordFormat, TFRecordSource
from penstock.testing import check_source


def opened(path: Path | str, **options: Any) -> TFRecordSource:
    return TFRecordSource(open_storage(str(path), "read_tfrecord"), **options)


def elements(source: TFRecordSource) -> list[bytes]:
    rows: list[Any] = []
    source.gather(range(len(source)), rows)
    return [row["record"] for row in rows]


def test_the_laws_of_a_source_hold(tmp_path: Path) -> None:
    shards = [FIVE, [], [bytes([number]) * number for number in range(50)]]
    for number, records in enumerate(shards):
        write_tfrecord(tmp_path / f"x.tfrecord-0000{number}-of-00003", records)
    expected = [{"record": record} for records in shards for record in records]
    check_source(
        opened(tmp_path / "x*", allow_empty=True),
        expected=expected,
        again=lambda: opened(tmp_path / "x*", allow_empty=True),
        most_elements=60,
    )


def test_it_names_its_records(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    source = opened(path)
    assert source.describe(2) == f"record 2 of '{path}', offset {borders(FIVE)[2]}"
    assert source.label() == f"read_tfrecord('{path}', 5 elements)"
    assert pickle.loads(pickle.dumps(source)).fingerprint() == source.fingerprint()


def test_every_flipped_bit_is_found_in_its_record_and_the_others_are_read(tmp_path: Path) -> None:
    good, path = tfrecord(FIVE), write_tfrecord(tmp_path / "x", FIVE)
    indices = open_all(open_storage(str(path), "t"), TFRecordFormat())
    for offset, bit in itertools.product(range(len(good)), (0, 3, 7)):
        data = bytearray(good)
        data[offset] ^= 1 << bit
        path.write_bytes(data)
        source = opened(path, indices=indices)
        bad = record_at(FIVE, offset)
        rows: list[Any] = []
        with pytest.raises(RecordError) as error:
            source.gather(range(5), rows)
        assert rows == [{"record": record} for record in FIVE[:bad]]
        assert error.value.where == f"'{path}', record {bad}, offset {borders(FIVE)[bad]}"
        rest = list(range(bad + 1, 5))
        rows.clear()
        source.gather(rest, rows)
        assert rows == [{"record": FIVE[number]} for number in rest]


def test_a_block_in_any_order_names_the_bad_record(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    data = bytearray(path.read_bytes())
    data[borders(FIVE)[2] + 14] ^= 1
    path.write_bytes(data)
    source, rows = opened(path), []
    with pytest.raises(RecordError) as error:
        source.gather([4, 0, 2, 1], rows)
    assert [row["record"] for row in rows] == [FIVE[4], FIVE[0]]
    assert error.value.what.startswith(
        f"record 2 of '{path}' at offset {borders(FIVE)[2]}: the 12 bytes of its data have the masked CRC32C 0x"
    )
    assert "feed(on_error=ps.Skip()) leaves the record out" in error.value.fix
    unchecked = elements(opened(path, check_crc=False))
    assert unchecked[:2] + unchecked[3:] == FIVE[:2] + FIVE[3:]


def test_a_damaged_header_is_an_error_at_once_or_one_bad_record(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    data = bytearray(path.read_bytes())
    data[borders(FIVE)[2]] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordError) as error:
        opened(path)
    assert error.value.what.startswith(f"record 2 of '{path}' at offset {borders(FIVE)[2]}: its length 13 has the masked CRC32C")
    assert "resync=True" in error.value.fix
    source = opened(path, resync=True)
    assert len(source) == 5
    rows: list[Any] = []
    with pytest.raises(RecordError, match="record 2 of "):
        source.gather(range(5), rows)
    source.gather([3, 4], rows)
    assert [row["record"] for row in rows] == FIVE[:2] + FIVE[3:]


def test_a_header_that_is_right_but_not_the_one_of_the_index_is_an_error(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", [b"ab", b"cd"])
    storage = open_storage(str(path), "t")
    indices = open_all(storage, TFRecordFormat())
    indices.columns["lengths"][:] = [36, 18]
    rows: list[Any] = []
    with pytest.raises(RecordError) as error:
        TFRecordSource(storage, indices=indices).gather([0], rows)
    assert error.value.what.endswith("it says 2 bytes, and 20 lie between its header and what follows")


def test_an_empty_file_is_an_error_unless_it_is_meant(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "x0", FIVE)
    write_tfrecord(tmp_path / "x1", [])
    with pytest.raises(RecordError) as error:
        opened(tmp_path / "x*")
    assert error.value.what == f"'{tmp_path / 'x1'}' has 0 bytes"
    assert error.value.where == f"read_tfrecord, '{tmp_path / 'x1'}'"
    assert "allow_empty=True" in error.value.fix
    assert elements(opened(tmp_path / "x[01]", allow_empty=True)) == FIVE
    only = opened(tmp_path / "x1", allow_empty=True)
    assert (len(only), elements(only)) == (0, [])


def test_a_record_over_the_limit_is_an_error(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    assert len(opened(path, max_record_bytes=12)) == 5
    with pytest.raises(RecordError) as error:
        opened(path, max_record_bytes=11)
    assert error.value.what == f"record 2 of '{path}', offset {borders(FIVE)[2]} has 12 bytes, over max_record_bytes=11"
    assert error.value.where.startswith("read_tfrecord, record 2")
    assert error.value.fix


def test_the_format_decodes_a_span_alone(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", FIVE)
    table, data = opened(path).table, memoryview(path.read_bytes())
    assert TFRecordFormat().decode(data[:21], table, 0) == {"record": b"first"}
    with pytest.raises(RecordError) as error:
        TFRecordFormat().decode(memoryview(bytes(21)), table, 0)
    assert error.value.what.startswith(f"record 0 of '{path}' at offset 0: its length 0 has")
