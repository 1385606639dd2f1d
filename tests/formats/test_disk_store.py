from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _storage.forks import forked, held_by_another_thread

from penstock.formats.cache_stores import DiskStore, PlaceTable

RECORDS = {3: b"three", 0: b"", 7: b"seven" * 40}
SRC = str(Path(__file__).parents[2] / "src")


def identified(name: str = "plan") -> Any:
    return lambda: {"name": name}


def store(folder: Path, name: str = "plan", max_bytes: int | None = None) -> DiskStore:
    return DiskStore(str(folder), identified(name), max_bytes)


def filled(folder: Path) -> DiskStore:
    found = store(folder)
    found.put(list(RECORDS), list(RECORDS.values()))
    return found


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*/*.{kind}"))


def child(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """Start a Python process that has `store(folder)` and runs `code`."""
    prelude = (
        "import os, resource, signal, sys, warnings\n"
        "from penstock.formats.cache_stores import DiskStore\n"
        "def store(folder, max_bytes=None):\n"
        "    return DiskStore(folder, lambda: {'name': 'plan'}, max_bytes)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )


def test_what_was_stored_is_found_in_this_process_and_in_the_next(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert first.get([0, 3]) == [None, None]
    first.put(list(RECORDS), list(RECORDS.values()))
    for found in (first, store(tmp_path)):
        assert found.get([7, 1, 3, 0, 7]) == [RECORDS[7], None, b"three", b"", RECORDS[7]]
    assert first.label() == f"in {str(tmp_path)!r}: 3 elements, 205 bytes; 4 hits, 3 misses"


def test_the_folder_says_which_plan_it_belongs_to_and_holds_nothing_else(tmp_path: Path) -> None:
    filled(tmp_path)
    (home,) = tmp_path.iterdir()
    assert json.loads((home / "plan.json").read_text()) == {"format": 2, "name": "plan"}
    assert sorted(path.suffix for path in home.iterdir()) == [".data", ".index", ".json"]


def test_a_process_that_only_reads_leaves_nothing_behind(tmp_path: Path) -> None:
    filled(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert store(tmp_path).get([3]) == [b"three"]
    assert store(tmp_path, "absent").get([3]) == [None]
    assert sorted(tmp_path.rglob("*")) == before


def test_files_of_another_plan_that_somebody_copied_in_count_for_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    store(tmp_path, "other").put([3], [b"drei"])
    (home,) = {path.parent for path in files(tmp_path, "data") if b"three" not in path.read_bytes()}
    for kind in ("data", "index"):
        for path in files(tmp_path, kind):
            if path.parent != home:
                shutil.copy(path, home)
    assert store(tmp_path, "other").get([3, 0, 7]) == [b"drei", None, None]


def test_two_stores_find_what_the_other_has_written_meanwhile(tmp_path: Path) -> None:
    one, two = store(tmp_path), store(tmp_path)
    assert one.get([1]) == two.get([1]) == [None]
    one.put([1, 2], [b"a", b"b"])
    assert two.get([1]) == [b"a"]
    two.put([2, 3], [b"b", b"c"])
    assert one.get([1, 2, 3]) == [b"a", b"b", b"c"]
    assert sum(path.stat().st_size for path in files(tmp_path, "data")) == 3  # 2 was there already
    assert len(files(tmp_path, "index")) == 2


def test_cut_anywhere_only_whole_records_count(tmp_path: Path) -> None:
    filled(tmp_path)
    for kind in ("data", "index"):
        (path,) = files(tmp_path, kind)
        good = path.read_bytes()
        for length in range(len(good)):
            path.write_bytes(good[:length])
            found = store(tmp_path).get(list(RECORDS))
            assert all(record in (None, wanted) for record, wanted in zip(found, RECORDS.values(), strict=True))
            if kind == "index":
                assert 3 - found.count(None) == length // 24
        path.write_bytes(good)
    assert None not in store(tmp_path).get(list(RECORDS))


def test_a_damaged_record_is_mended_for_good_by_the_next_that_is_stored(tmp_path: Path) -> None:
    filled(tmp_path)
    (path,) = files(tmp_path, "data")
    path.write_bytes(b"X" + path.read_bytes()[1:])
    mending = store(tmp_path)
    assert mending.get([3]) == [None]
    mending.put([3], [b"three"])
    for found in (mending, store(tmp_path)):
        assert found.get([3, 7]) == [b"three", RECORDS[7]]
    assert mending.label().endswith("1 damaged")
    again = store(tmp_path)
    assert again.get([3]) == [b"three"]
    assert not again.label().endswith("damaged")


def test_a_data_file_that_is_gone_is_as_if_it_had_never_been(tmp_path: Path) -> None:
    found = filled(tmp_path)
    files(tmp_path, "data")[0].unlink()
    for again in (found, store(tmp_path)):
        assert again.get(list(RECORDS)) == [None, None, None]


def test_a_folder_that_is_emptied_during_the_run_is_said_and_not_missed(tmp_path: Path) -> None:
    found = filled(tmp_path)
    shutil.rmtree(next(tmp_path.iterdir()))
    assert found.get([3]) == [None]
    with pytest.warns(UserWarning, match="cannot be written"):
        found.put([3], [b"three"])
    assert store(tmp_path).get([3]) == [None]


def test_the_limit_is_one_for_the_whole_folder(tmp_path: Path) -> None:
    one, two = store(tmp_path, "one", 2000), store(tmp_path, "two", 2000)
    for index in range(20):
        one.put([index], [bytes(100)])
        two.put([index], [bytes(100)])
    total = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 1800 < total <= 2000
    kept = sum(record is not None for found in (one, two) for record in found.get(range(20)))
    assert kept == 15
    one.put([30, 31], [bytes(500), b""])
    assert one.get([30]) == [None]
    assert "(the folder at most 2 kB)" in one.label()


@pytest.mark.parametrize("place", ["file", "missing"])
def test_where_nothing_can_be_written_the_run_goes_on_with_one_warning(tmp_path: Path, place: str) -> None:
    if place == "file":
        (tmp_path / "cache").write_text("in the way")
    found = store(tmp_path / "cache" if place == "file" else Path("/proc/penstock-cache"))
    assert found.get([1]) == [None]
    with pytest.warns(UserWarning, match="cannot be written") as caught:
        found.put([1], [b"a"])
    assert len(caught) == 1
    words = str(caught[0].message)
    assert words.startswith("the cache in ")
    assert words.endswith("the run goes on without storing, and what is not there is computed each time")
    found.put([1], [b"a"])  # a second warning would be an error here
    assert found.get([1]) == [None]
    assert found.label().endswith("0 hits, 2 misses, cannot be written")


FULL = """
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
found = store(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for index in range(20):
        found.put([index], [bytes([index]) * 90])
print(len(caught), [record == bytes([index]) * 90 for index, record in enumerate(found.get(range(20)))].count(True))
"""


def test_a_disk_that_is_full_in_the_middle_of_a_record_leaves_the_ones_before(tmp_path: Path) -> None:
    with child(FULL, tmp_path) as process:
        assert process.communicate()[0].split() == ["1", "11"]
    assert files(tmp_path, "data")[0].stat().st_size == 1000
    found = store(tmp_path)
    assert found.get(range(12)) == [bytes([index]) * 90 for index in range(11)] + [None]
    found.put([11], [b"next"])
    assert found.get([11]) == [b"next"]


def test_a_forked_child_writes_to_files_of_its_own(tmp_path: Path) -> None:
    code = """
found = store(sys.argv[1])
found.put([0], [b"parent"])
pid = os.fork()
found.put([1 if pid else 2], [b"parent" if pid else b"child"])
if pid:
    os.waitpid(pid, 0)
    print(found.get([0, 1, 2]))
"""
    with child(code, tmp_path) as process:
        assert "[b'parent', b'parent', b'child']" in process.communicate()[0]
    assert len(files(tmp_path, "data")) == 2


def test_a_child_forked_while_threads_read_and_write_goes_on_and_finds_what_there_is(tmp_path: Path) -> None:
    found = filled(tmp_path)
    assert found.get(list(RECORDS)) == list(RECORDS.values())
    found._table = PlaceTable()  # as a thread leaves it that was in the middle of reading the indices

    def check() -> None:
        assert found.get(list(RECORDS)) == list(RECORDS.values())
        found.put([99], [b"of the child"])
        assert found.get([99]) == [b"of the child"]
        assert "4 elements" in found.label()

    with held_by_another_thread(found._locks.own()), held_by_another_thread(found._writing.own()):
        forked(check)


def test_nothing_stays_open_between_calls(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
    found = filled(tmp_path)
    found.get([0, 3, 7, 9])
    assert (sorted(os.listdir("/proc/self/fd")) if before else []) == before


def test_large_records_are_written_one_by_one_and_found_again(tmp_path: Path) -> None:
    records = [bytes([number]) * (40_000 + number) for number in range(5)] + [b"small"]
    found = store(tmp_path)
    found.put(range(6), records)
    found.put([6], [b"next"])
    for again in (found, store(tmp_path)):
        assert again.get(range(7)) == [*records, b"next"]
