from __future__ import annotations

import gzip
import pickle
import zlib
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from formats.tfrecords import FIVE, tfrecord, write_tfrecord

import penstock as ps
from penstock._contracts.source import StatefulStream
from penstock._storage import open_storage
from penstock.errors import RecordError, StateDamaged, StateUnavailable
from penstock.sources.tfrecord import StoredFile, TFRecordStream
from penstock.testing import check_source

PACK = {"GZIP": gzip.compress, "ZLIB": zlib.compress}
SHARDS = [FIVE, [bytes([number]) * number for number in range(200)], [b"last"]]
ALL = [{"record": record} for records in SHARDS for record in records]


@pytest.fixture(params=["GZIP", "ZLIB"])
def compression(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def pattern(tmp_path: Path, compression: str) -> str:
    for number, records in enumerate(SHARDS):
        write_tfrecord(tmp_path / f"x.tfrecord-0000{number}-of-00003", records, compression)
    return str(tmp_path / "x*")


def opened(pattern: str, compression: str, **options: Any) -> TFRecordStream:
    return TFRecordStream(open_storage(pattern, "read_tfrecord"), compression, **options)


def test_the_laws_of_a_stream_hold(pattern: str, compression: str) -> None:
    source = opened(pattern, compression)
    assert isinstance(source, StatefulStream)
    check_source(source, expected=ALL, again=lambda: opened(pattern, compression), most_elements=300)


def test_every_state_goes_on_behind_its_element(pattern: str, compression: str) -> None:
    source = opened(pattern, compression)
    states = [source.state() for _ in source.open(0)]
    assert states[:6] == [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [1, 1]]
    for number, state in list(enumerate(states, 1))[::7]:
        assert list(source.open_at(3, state)) == ALL[number:]


def test_a_resume_opens_no_file_before_its_place(pattern: str, compression: str, tmp_path: Path) -> None:
    source = opened(pattern, compression)
    (tmp_path / "x.tfrecord-00000-of-00003").write_bytes(b"no longer what it was")
    assert list(source.open_at(0, [1, 198])) == ALL[5 + 198 :]


def test_two_passes_at_a_time_do_not_move_each_other(pattern: str, compression: str) -> None:
    source = opened(pattern, compression)
    one, other = source.open(0), source.open(0)
    assert list(islice(one, 50)) == list(islice(other, 50))
    next(one)
    assert source.state() == [1, 46]
    next(other)
    assert list(one) == list(other) == ALL[51:]
    dataset = ps.read_tfrecord(pattern, compression=compression)
    with dataset.feed() as first, dataset.feed() as second:
        assert [next(first) for _ in ALL] == [next(second) for _ in ALL] == ALL


@pytest.mark.parametrize("state", [None, [0], [3, 0], [-1, 0], [0, -1], [0, "1"], {"file": 0}, [0.0, 1]])
def test_a_state_of_no_place_is_refused(pattern: str, compression: str, state: Any) -> None:
    with pytest.raises(StateDamaged) as refusal:
        opened(pattern, compression).open_at(0, state)
    assert refusal.value.what == f"{state!r} is no place in 3 files"
    assert refusal.value.where.startswith("read_tfrecord('")
    assert refusal.value.fix


@pytest.mark.parametrize("number", [6, 1000])
def test_a_state_behind_the_end_of_its_file_is_not_the_end_of_the_data(pattern: str, compression: str, number: int) -> None:
    source = opened(pattern, compression)
    assert list(source.open_at(0, [0, 5])) == ALL[5:]
    with pytest.raises(StateDamaged) as refusal:
        next(source.open_at(0, [0, number]))
    assert f"[0, {number}] is no place in" in refusal.value.what
    assert "-00000-of-00003', which has 5 records" in refusal.value.what
    with pytest.raises(StateDamaged, match="which has 1 records"):
        list(source.open_at(0, [2, number]))


def test_before_its_first_element_a_pass_is_where_it_was_started(pattern: str, compression: str) -> None:
    source = opened(pattern, compression)
    with pytest.raises(StateUnavailable) as refusal:
        source.state()
    assert refusal.value.what == "this thread has not read"
    source.open(0)
    assert source.state() == [0, 0]
    source.open_at(0, [1, 3])
    assert source.state() == [1, 3]


def test_a_bad_record_ends_the_pass_with_its_place(tmp_path: Path, compression: str) -> None:
    data = bytearray(tfrecord(FIVE))
    bad_data(data)
    (tmp_path / "x").write_bytes(PACK[compression](data))
    with pytest.raises(RecordError) as error:
        list(opened(str(tmp_path / "x"), compression).open(0))
    assert error.value.what.startswith(f"record 2 of '{tmp_path / 'x'}' at offset 37: the 12 bytes of its data have the masked CRC32C")
    assert len(list(opened(str(tmp_path / "x"), compression, check_crc=False).open(0))) == 5


def bad_data(data: bytearray) -> None:
    data[21 + 16 + 13] ^= 1


def bad_length(data: bytearray) -> None:
    data[21 + 8] ^= 1


def cut(data: bytearray) -> None:
    del data[21 + 3 :]


@pytest.mark.parametrize("harm", [bad_data, bad_length, cut])
def test_nobody_is_told_to_go_on_behind_a_bad_record(tmp_path: Path, compression: str, harm: Any) -> None:
    data = bytearray(tfrecord(FIVE))
    harm(data)
    (tmp_path / "x").write_bytes(PACK[compression](data))
    source = opened(str(tmp_path / "x"), compression)
    dataset = ps.read_tfrecord(str(tmp_path / "x"), compression=compression)
    for read in (
        lambda: list(source.open(0)),
        lambda: ps.pack(dataset, tmp_path / "out", executor="threads", on_error=ps.Skip()),
        lambda: list(dataset.feed(on_error=ps.Skip())),
    ):
        with pytest.raises(RecordError) as error:
            read()
        assert error.value.fix == (
            "get another copy of the file or write it again; "
            "behind a bad record a compressed file is not read, whatever the policy: leave the file out to go on with the others"
        )


def test_a_record_that_is_only_too_long_says_how_it_is_read(tmp_path: Path, compression: str) -> None:
    write_tfrecord(tmp_path / "x", [b"x" * 100], compression)
    with pytest.raises(RecordError) as error:
        list(opened(str(tmp_path / "x"), compression, max_record_bytes=99).open(0))
    assert error.value.fix.startswith("give a larger max_record_bytes if such records are meant; ")


def test_files_without_records_are_an_error_unless_they_are_meant(tmp_path: Path, compression: str) -> None:
    write_tfrecord(tmp_path / "x", [], compression)
    with pytest.raises(RecordError) as error:
        list(opened(str(tmp_path / "x"), compression).open(0))
    assert error.value.what == f"'{tmp_path / 'x'}' has no records"
    assert "allow_empty=True" in error.value.fix
    assert list(opened(str(tmp_path / "x"), compression, allow_empty=True).open(0)) == []
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(RecordError) as error:
        opened(str(tmp_path / "x"), compression)
    assert error.value.what == f"'{tmp_path / 'x'}' has 0 bytes"
    assert list(opened(str(tmp_path / "x"), compression, allow_empty=True).open(0)) == []


def test_its_names(pattern: str, compression: str, tmp_path: Path) -> None:
    source = opened(pattern, compression)
    first = tmp_path / "x.tfrecord-00000-of-00003"
    assert source.label() == f"read_tfrecord('{first}' and 2 more, {compression})"
    assert source.describe(7) == f"record 7 of all, of '{first}' and 2 more"
    assert source.declared_length() is None
    assert pickle.loads(pickle.dumps(source)).fingerprint() == source.fingerprint()
    assert source.fingerprint()["num_files"] == 3


def test_a_stored_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    file = StoredFile(open_storage(str(tmp_path / "x"), "t"), 0)
    assert [file.read(4), file.read(4), file.read(4), file.read(4)] == [b"0123", b"4567", b"89", b""]
