"""Elements that were read once into a file."""

from __future__ import annotations

import errno
import hashlib
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._contracts.policy import decide
from penstock._contracts.source import KeptLost
from penstock.errors import SpecError
from penstock.sources.kept import Keeper, KeptSource

ELEMENTS: list[Any] = [{"a": 1, "b": [b"\0", "é"]}, (2.5, None), np.arange(6).reshape(2, 3), b"", "", {"x": np.float32(0.1)}]


def kept(path: Path, elements: list[Any]) -> KeptSource:
    with path.open("wb") as file:
        keeper = Keeper(file, "stream Numbers")
        for element in elements:
            keeper.add(element)
        return keeper.finish()


def gathered(source: KeptSource, indices: list[int]) -> list[Any]:
    rows: list[Any] = []
    source.gather(indices, rows)
    return rows


@given(st.lists(st.integers(0, len(ELEMENTS) - 1)))
def test_any_elements_come_back_in_any_order(tmp_path_factory: pytest.TempPathFactory, indices: list[int]) -> None:
    source = kept(tmp_path_factory.mktemp("kept") / "it", ELEMENTS)
    assert len(source) == len(ELEMENTS)
    assert repr(gathered(source, indices)) == repr([ELEMENTS[index] for index in indices])


def test_an_element_is_kept_as_it_is_at_that_time(tmp_path: Path) -> None:
    array = np.zeros(3)
    with (tmp_path / "it").open("wb") as file:
        keeper = Keeper(file, "it")
        for value in (1, 2):
            array[:] = value
            keeper.add(array)
        assert [row.tolist() for row in gathered(keeper.finish(), [1, 0])] == [[2] * 3, [1] * 3]


def test_none_at_all_are_no_elements(tmp_path: Path) -> None:
    assert len(kept(tmp_path / "it", [])) == 0


def test_a_worker_is_sent_no_table_and_reads_the_same(tmp_path: Path) -> None:
    source = kept(tmp_path / "it", list(range(10_000)))
    gathered(source, [3])
    data = pickle.dumps(source)
    assert len(data) < 1000
    assert gathered(pickle.loads(data), [9_999, 0]) == [9_999, 0]


def test_what_tells_it_from_others_are_the_elements_and_not_the_file(tmp_path: Path) -> None:
    one, same, other = (kept(tmp_path / name, values) for name, values in (("1", [1, 2]), ("2", [1, 2]), ("3", [1, 3])))
    assert one.held() == same.held() != other.held()
    assert one.fingerprint() == same.fingerprint() == {"kind": "kept", "count": 2}
    assert one.label() == "stream Numbers, 2 elements, kept in '1'"
    with (tmp_path / "4").open("wb") as file:
        assert Keeper(file, "it").finish(("lost",)).held() == (hashlib.sha256().hexdigest(), "lost")
    assert len(KeptSource.none("it")) == 0


def test_an_element_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        kept(tmp_path / "it", [1, threading.Lock()])
    assert caught.value.where == "element 1 of stream Numbers"
    assert "lock" in str(caught.value)


def test_a_file_that_was_cut_is_an_error_that_names_the_element_and_that_no_policy_hides(tmp_path: Path) -> None:
    source = kept(tmp_path / "it", ["a" * 100, "b" * 100])
    assert gathered(source, [1]) == ["b" * 100]
    with (tmp_path / "it").open("r+b") as file:
        file.truncate(150)
    rows: list[Any] = []
    with pytest.raises(KeptLost) as caught:
        source.gather([0, 1], rows)
    assert rows == ["a" * 100]
    assert caught.value.where == f"element 1 of stream Numbers, in {str(tmp_path / 'it')!r}"
    (tmp_path / "it").unlink()
    for reader in (source, pickle.loads(pickle.dumps(source))):
        with pytest.raises(KeptLost, match="FileNotFoundError"):
            gathered(reader, [0])
    for policy in (ps.Skip(), ps.Replace(0), ps.Retry(3)):
        assert decide(policy, caught.value, 0) == ps.Raise()


class OneWay(Exception):
    """Has a pickle that cannot be read."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)


def test_a_pickle_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeptLost, match="TypeError") as caught:
        gathered(kept(tmp_path / "it", [OneWay(1, 2)]), [0])
    assert "a pickle that cannot be read" in caught.value.fix


def test_a_file_that_may_not_grow_is_the_systems_error_with_what_was_kept(tmp_path: Path) -> None:
    class Full(io.BytesIO):
        name = "it.kept"

        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    keeper = Keeper(Full(), "stream Numbers")
    for failing in (lambda: keeper.add(1), keeper.finish):
        with pytest.raises(OSError) as caught:
            failing()
        assert any("of stream Numbers had been kept in 'it.kept'" in note for note in caught.value.__notes__)
