"""Fields are decoded by extension, and nothing that could run is (C29)."""

from __future__ import annotations

import io
import pickle
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import output_of

import penstock as ps
from penstock.errors import RecordError
from penstock.formats.tar import decode_field, stays_bytes


def npy(array: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **how)
    return out.getvalue()


def decode(field: str, data: bytes) -> Any:
    return decode_field(field, memoryview(data).toreadonly())


def refusal(field: str, data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        decode(field, data)
    return str(caught.value)


def test_numbers_texts_and_json_by_the_last_part_of_the_extension() -> None:
    assert decode("cls", b"17\n") == 17
    assert decode("left.index", b"-3") == -3
    assert decode("txt", "Grüße".encode()) == "Grüße"
    assert decode("meta.json", b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert decode("jpg", b"\xff\xd8") == b"\xff\xd8"
    assert decode("", b"x") == b"x"


TEXTS = [
    *('{"a": NaN}', "[Infinity]", "-Infinity", '{"a": 1, "a": 2}', "1e400", '{"a": 1}', " [1] ", "1 2", '"\0"', "nul\0l", '"é"', "١"),
    *("1_000", " 5", "+5", "5\n", "-3", "5.0", "٣", "0x5", "5 5", "\ufeff7", "9" * 30, "null", "true", "-0", "007"),
]


def last_column(path: Path) -> Any:
    return ps.read_csv(path, names=["n"], columns={"n": np.int64}).map(lambda row: row["n"])


def lines(path: Path) -> Any:
    return ps.read_text(path).map(lambda row: row["text"])


@pytest.mark.parametrize(("field", "read"), [("json", ps.read_jsonl), ("cls", last_column), ("txt", lines)])
@pytest.mark.parametrize("text", TEXTS)
def test_a_field_of_a_sample_is_read_by_the_rule_of_files_of_its_format(tmp_path: Path, field: str, read: Any, text: str) -> None:
    (tmp_path / "x").write_text(text)
    try:
        (expected,) = read(tmp_path / "x").feed(executor="inline")
    except RecordError as error:
        if "only -9223372036854775808 to" not in str(error):  # a column has a dtype; here an int may be of any size
            assert "is not what its name says" in refusal(field, text.encode())
    else:
        assert decode(field, text.rstrip("\n").encode()) == expected


ARRAYS = [
    np.arange(6, dtype=np.int64).reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    np.array(2.5),
    np.empty((0, 3), np.uint8),
    np.array([True, False]),
    np.arange(3, dtype=">i2"),
    np.array(["a", "bc"]),
    np.array([1 + 2j]),
    np.array(["2024-01-01"], "M8[D]"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_arrays_are_those_that_numpy_wrote_and_belong_to_the_caller(array: np.ndarray) -> None:
    found = decode("npy", npy(array))
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()
    assert found.flags.writeable
    assert found.flags.owndata


def test_a_header_of_version_2_is_read() -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.arange(3), version=(2, 0))
    assert decode("npy", out.getvalue()).tolist() == [0, 1, 2]


def test_what_is_not_as_its_name_says_is_an_error_with_its_first_bytes() -> None:
    for field, data in (("cls", b"seven"), ("cls", b""), ("json", b"{"), ("json", b"[" * 100_000), ("txt", b"\xff"), ("id", b"9" * 5000)):
        text = refusal(field, data)
        assert f"field {field!r} of {len(data)} bytes is not what its name says" in text
    huge = npy(np.zeros(4, np.uint8)).replace(b"(4,)", b"(4000000000000,)").replace(b" " * 12, b"", 1)
    assert "has 4000000000000 bytes, and 4 are there" in refusal("npy", huge)
    assert "it has no header of an array" in refusal("npy", npy(np.zeros(4)).replace(b"\x01\0v\0", b"\x01\0\xff\xff"))
    assert "without structured types" in refusal("npy", npy(np.zeros(2, [("a", "<i4")])))
    assert "it has no header of an array" in refusal("npy", b"\x93NUMPY" + bytes(99))
    assert "it has no header of an array" in refusal("npy", npy(np.zeros(4, np.float32)).replace(b"<f4", b"<f3"))


@given(place=st.integers(0, 140), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_a_damaged_array_is_an_array_or_an_error(place: int, byte: int, cut: int) -> None:
    data = bytearray(npy(np.arange(4, dtype=np.float32)))
    data[place % len(data)] = byte
    try:
        found = decode("npy", bytes(data[: len(data) - cut % 20]))
    except RecordError:
        return
    assert found.nbytes == 16


class Payload:
    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))

    def __init__(self, path: str) -> None:
        self.path = path


def test_pickles_never_run_and_nobody_looks_for_their_classes(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    payload = pickle.dumps(Payload(str(mark)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objects = npy(np.array([Payload(str(mark))], object), allow_pickle=True)
        inside = npy(np.array([(1, Payload(str(mark)))], [("a", "i4"), ("b", "O")]), allow_pickle=True)
    for name, data in (("a.pkl", payload), ("b.npy", objects), ("c.npy", inside)):
        (tmp_path / name).write_bytes(data)
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from penstock.errors import RecordError
        from penstock.formats.tar import decode_field, stays_bytes
        seen = []
        sys.addaudithook(lambda event, _: seen.append(event) if event.startswith("pickle") else None)
        folder = Path(sys.argv[1])
        for name, fields in (("a.pkl", ("pkl", "pyd", "pickle", "pt", "x.pth", "npy")), ("b.npy", ("npy",)), ("c.npy", ("npy",))):
            for field in fields:
                try:
                    decode_field(field, memoryview((folder / name).read_bytes()))
                except RecordError as error:
                    assert "needs allow_pickle" in str(error) or (name, field) == ("a.pkl", "npy"), error
                else:
                    raise SystemExit(f"{name} was read as {field}")
        print("events:", seen)
    """)
    assert output_of("-c", code, tmp_path) == "events: []\n"
    assert not mark.exists()


@pytest.mark.parametrize("field", ["jpg", "left.png", "cls.jpg", "", "unknown"])
def test_bytes_of_which_nothing_is_known_stay_bytes(field: str) -> None:
    assert stays_bytes(field)
    assert decode(field, b"\xff\xd8") == b"\xff\xd8"


@pytest.mark.parametrize("field", ["cls", "jpg.cls", "txt", "json", "npy", "pkl"])
def test_fields_with_a_decoder_do_not(field: str) -> None:
    assert not stays_bytes(field)
