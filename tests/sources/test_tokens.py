"""Windows of tokens: which there are, what is in them, and what becomes of files that change."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock as ps
from penstock._contracts.source import ColumnSource
from penstock._storage import open_storage
from penstock.errors import LengthMismatch, PlanError, RecordError, SourceError
from penstock.sources.tokens import TokenSource, find_tokens
from penstock.testing import check_source


def made(pattern: Any, length: int, stride: int, *, dtype: Any = None, **options: Any) -> TokenSource:
    storage = open_storage(pattern, "read_tokens")
    return TokenSource(storage, find_tokens(storage, dtype), length=length, stride=stride, **options)


def written(folder: Path, *counts: int, dtype: Any = np.uint16) -> list[NDArray[Any]]:
    """Write one file for each count; their tokens go on from file to file."""
    arrays = np.split(np.arange(sum(counts), dtype=dtype), np.cumsum(counts)[:-1])
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return arrays


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_windows_are_those_of_a_plain_loop_over_each_file(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], length: int, stride: int, raw: bool
) -> None:
    folder = tmp_path_factory.mktemp("loop")
    arrays = written(folder, *counts, dtype=np.int32)
    for number, array in enumerate(arrays if raw else []):
        array.tofile(folder / f"{number}.bin")
    expected = [a[k : k + length + 1].tolist() for a in arrays for k in range(0, len(a) - length, stride)]
    pattern = folder / ("*.bin" if raw else "*.npy")
    if not expected:
        with pytest.raises(RecordError, match=f"no file has the {length + 1} tokens of one window; the longest has {max(counts)}"):
            made(pattern, length, stride, dtype=np.int32)
        return
    source = made(pattern, length, stride, dtype=np.int32)
    rows: list[Any] = []
    source.gather(range(len(source)), rows)
    assert [row["tokens"].tolist() for row in rows] == expected
    assert source.gather_columns(np.arange(len(source)), None)[0].tolist() == expected


def test_the_laws_of_a_source_hold(tmp_path: Path) -> None:
    written(tmp_path, 100, 5, 70)
    source = made(tmp_path / "*.npy", 8, 3)
    assert isinstance(source, ColumnSource)
    check_source(source, again=lambda: made(tmp_path / "*.npy", 8, 3))
    check_source(pickle.loads(pickle.dumps(source)))
    check_source(made(tmp_path / "*.npy", 8, 3, eos=7))


def test_names_of_windows_and_of_the_source_say_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 20, 3, 11)
    source = made("*.npy", 4, 4)
    assert source.describe(1) == "tokens 4 to 8 of '0.npy'"
    assert source.describe(4) == "tokens 0 to 4 of '2.npy'"
    assert source.label() == "read_tokens('0.npy' and 2 more, 4, 34 uint16, 6 elements, 8 tokens behind the last windows)"


def test_its_files_are_input_files(tmp_path: Path) -> None:
    written(tmp_path, 20, 11)
    assert list(made(tmp_path / "*.npy", 4, 4).input_files()) == [str(tmp_path / "0.npy"), str(tmp_path / "1.npy")]


def test_the_fingerprint_knows_tokens_stride_and_dtype_but_neither_name_nor_time(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        written(tmp_path / name, 50, 50)
    os.utime(tmp_path / "b" / "0.npy", (1, 1))
    first, second = made(tmp_path / "a" / "*", 4, 4), made(tmp_path / "b" / "*", 4, 4)
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != made(tmp_path / "a" / "*", 4, 2).fingerprint()
    np.save(tmp_path / "b" / "1.npy", np.zeros(50, np.uint16))
    assert first.fingerprint() != made(tmp_path / "b" / "*", 4, 4).fingerprint()


def test_a_file_that_is_cut_while_it_is_read_is_an_error_behind_the_windows_before_it(tmp_path: Path) -> None:
    written(tmp_path, 40, 40)
    source = made(tmp_path / "*.npy", 4, 4)
    out = source.gather_columns(np.arange(len(source)), None)[0]
    os.truncate(tmp_path / "1.npy", 150)
    rows: list[Any] = []
    with pytest.raises(SourceError, match=r"1\.npy' has 150 bytes and had 208") as caught:
        source.gather(range(len(source)), rows)
    assert len(rows) == 9
    assert caught.value.__notes__ == [f"reading tokens 0 to 4 of {str(tmp_path / '1.npy')!r}"]
    with pytest.raises(SourceError, match="150 bytes"):
        source.gather_columns(np.arange(len(source)), [out])


def test_a_file_that_is_replaced_or_removed_before_it_is_read_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 40, 40, 40)
    source = made(tmp_path / "*.npy", 4, 4)
    np.save(tmp_path / "1.npy", np.zeros(40, np.uint16))
    os.utime(tmp_path / "1.npy", (1, 1))
    (tmp_path / "2.npy").unlink()
    rows: list[Any] = []
    source.gather([0], rows)
    with pytest.raises(SourceError, match=r"1\.npy' was written to, or replaced, since it was opened"):
        source.gather([9], rows)
    pickle.loads(pickle.dumps(source)).gather([0], rows)
    with pytest.raises(FileNotFoundError, match=r"2\.npy"):
        pickle.loads(pickle.dumps(source)).gather([18], rows)


def test_a_token_beyond_the_vocabulary_is_named(tmp_path: Path) -> None:
    tokens = np.arange(40, dtype=np.uint16)
    tokens[21] = 999
    np.save(tmp_path / "ids.npy", tokens)
    source = made(tmp_path / "ids.npy", 4, 4, vocab_size=100)
    rows: list[Any] = []
    with pytest.raises(RecordError, match="token 21 is 999, and vocab_size is 100") as caught:
        source.gather(range(9), rows)
    assert len(rows) == 5
    assert caught.value.where == f"{str(tmp_path / 'ids.npy')!r}, offset 170, in tokens 20 to 24 of {str(tmp_path / 'ids.npy')!r}"
    dataset = ps.read_tokens(tmp_path / "ids.npy", 4, vocab_size=100).batch(3)
    with dataset.feed() as feed:
        assert next(feed)["tokens"].tolist()[2] == [8, 9, 10, 11, 12]
        with pytest.raises(RecordError, match="token 21 is 999") as caught:
            next(feed)
    assert "index 5" in "".join(caught.value.__notes__)


def test_indices_outside_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    written(tmp_path, 40)
    source = made(tmp_path / "*.npy", 4, 4)
    for index in (-1, 9):
        with pytest.raises(LengthMismatch, match=f"there are 9 windows, and indices from {index} to {index}"):
            source.gather_columns(np.array([index]), None)


def test_more_files_than_may_stay_open_are_read_and_memory_does_not_grow_with_them(tmp_path: Path) -> None:
    for number in range(300):
        np.full(1000, number, np.uint16).tofile(tmp_path / f"{number:03}.bin")
    source = made(tmp_path / "*.bin", 99, 99, dtype=np.uint16)
    order = np.random.default_rng(1).permutation(len(source))
    out = [np.empty((64, 100), np.int64)]
    source.gather_columns(order[:64], out)  # what a first call imports is not what grows
    tracemalloc.start()
    try:
        for begin in range(0, len(order) - 64, 64):
            block = order[begin : begin + 64]
            assert (source.gather_columns(block, out)[0] == (block // 10)[:, None]).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert len(os.listdir("/proc/self/fd")) < 200 or not os.path.isdir("/proc/self/fd")


@pytest.mark.parametrize("through", ["kernel", "storage"])
def test_a_uint64_token_that_is_no_int64_is_an_error_and_not_negative(
    tmp_path: Path, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = np.arange(30, dtype=np.uint64)
    tokens[[5, 22]] = (2**63 - 1, 2**63)
    tokens.tofile(tmp_path / "ids.bin")
    source = made(tmp_path / "ids.bin", 4, 4, dtype=np.uint64)
    if through == "storage":
        monkeypatch.setattr("penstock.sources.tokens._ready", lambda *_: False)
    rows: list[Any] = []
    with pytest.raises(RecordError, match=r"token 22 is 9223372036854775808, which does not fit int64") as caught:
        source.gather(range(7), rows)
    assert len(rows) == 5
    assert rows[1]["tokens"].tolist() == [4, 2**63 - 1, 6, 7, 8]
    assert "offset 176" in caught.value.where
    assert "int64" in caught.value.fix
    huge = made(tmp_path / "ids.bin", 4, 4, dtype=np.uint64, vocab_size=2**64)
    with pytest.raises(RecordError, match="token 22 is 9223372036854775808, and vocab_size is 9223372036854775808"):
        huge.gather([5], rows)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=12, max_size=40), st.integers(1, 6), st.integers(1, 9))
def test_documents_are_the_segments_of_windows_by_their_last_token_or_their_places(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[int], length: int, stride: int
) -> None:
    folder = tmp_path_factory.mktemp("documents")
    np.array(tokens, np.uint16).tofile(folder / "ids.bin")
    begins = np.array([0, *(place + 1 for place, token in enumerate(tokens) if token == 0)], np.uint32)
    np.save(folder / "begins.npy", begins)
    by_token, by_places, by_file = (
        ps.read_tokens(folder / "ids.bin", length, dtype=np.uint16, stride=stride, **given)
        for given in ({"eos": 0}, {"documents": begins.tolist()}, {"documents": folder / "begins.npy", "output_dtype": np.int32})
    )
    for number, window in enumerate(by_token):
        seen, segment, position = [], 1, 0
        for token in tokens[number * stride : number * stride + length + 1]:
            seen.append([token, segment, position])
            segment, position = (segment + 1, 0) if token == 0 else (segment, position + 1)
        for found in (window, by_places[number], by_file[number]):
            assert np.stack(list(found.values()), axis=1).tolist() == seen


def test_documents_that_are_no_places_in_the_only_file_are_refused(tmp_path: Path) -> None:
    written(tmp_path, 20, 11)
    (tmp_path / "text").write_text("no array, and not short")
    for begins in ([3, 2], [-1], [21], [0.5], [[1]], tmp_path / "text"):
        with pytest.raises(PlanError, match="of the 20 tokens begin"):
            ps.read_tokens(tmp_path / "0.npy", 4, documents=begins)
    with pytest.raises(PlanError, match="of the 31 tokens begin"):
        ps.read_tokens(tmp_path / "*.npy", 4, documents=[0])
    with pytest.raises(PlanError, match="eos and documents= are given"):
        ps.read_tokens(tmp_path / "0.npy", 4, documents=[0], eos=1)


def test_places_of_documents_in_a_file_are_mapped_by_worker_processes_too_and_known_to_the_fingerprint(tmp_path: Path) -> None:
    (tokens,) = written(tmp_path, 40)
    np.save(tmp_path / "begins", [0, 7, 7, 9])
    ds = ps.read_tokens(tmp_path / "0.npy", 19, documents=tmp_path / "begins.npy").batch(2)
    with ds.feed(executor="processes", num_workers=1) as feed:
        assert next(feed)["segment_ids"].tolist() == [[1] * 7 + [2] * 2 + [3] * 11, [1] * 20]
    wanted: list[dict[str, Any]] = [{}, {"eos": 3}, {"documents": tokens[:5]}, {"documents": tokens[:6]}]
    assert len({str(made(tmp_path / "0.npy", 4, 4, **options).fingerprint()) for options in wanted}) == 4


def test_tokens_come_in_the_dtype_that_is_asked_for_or_are_an_error_if_it_does_not_hold_them(tmp_path: Path) -> None:
    np.array([1, 2**31 - 1, 3, 4, 2**31, 6, -1, 8], np.int64).tofile(tmp_path / "ids.bin")
    ds = ps.read_tokens(tmp_path / "ids.bin", 1, dtype=np.int64, stride=2, output_dtype="int32")
    assert (ds[0]["tokens"].tolist(), ds[0]["tokens"].dtype) == ([1, 2**31 - 1], np.int32)
    for number, token in ((2, 2**31), (3, -1)):
        with pytest.raises(RecordError, match=f"is {token}, which does not fit int32: ids are 0 to {2**31 - 1}"):
            _ = ds[number]
    with pytest.raises(PlanError, match="output_dtype="):
        ps.read_tokens(tmp_path / "ids.bin", 1, dtype=np.int64, output_dtype=float)
