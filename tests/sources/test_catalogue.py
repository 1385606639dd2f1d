from __future__ import annotations

import os
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.marks import Marked, marked
from sources.memory import growth, needs_proc

import penstock as ps
from penstock._storage import open_storage
from penstock._workers.shared_pickle import FilePart, pickle_apart
from penstock.errors import RecordError
from penstock.formats.index import Indices, joined
from penstock.sources import indexing
from penstock.sources.indexing import open_all, open_indices

NUM_FILES = 300
PAST_NS = 1_000_000_000_000_000_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files whose time is so long ago that it is trusted, and a cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    for number in range(NUM_FILES):
        write(tmp_path / "data" / f"{number:03}.x", number)
    return tmp_path / "data"


def write(path: Path, number: int, time_ns: int = PAST_NS) -> None:
    path.write_bytes(marked(*[b"%d" % number] * (number % 3)))
    os.utime(path, ns=(time_ns, time_ns))


class Opened:
    """One look at the indices of a folder's files, and which of them were asked for one by one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.format = Marked()

        def watched(storage: Any, *given: Any, **options: Any) -> Any:
            self.asked.extend(range(len(storage)))
            return open_indices(storage, *given, **options)

        storage = open_storage(folder / "*.x", "read_x")
        with monkeypatch.context() as patch:
            patch.setattr(indexing, "open_indices", watched)
            self.indices = open_all(storage, self.format)
        one_by_one = open_indices(storage, Marked())
        same(self.indices, one_by_one)


def same(indices: Indices, others: Any) -> None:
    wanted = joined(others, [""] * len(others))
    for name in ("starts", "sizes", "crcs", "samples", "meta_of"):
        assert getattr(indices, name).tolist() == getattr(wanted, name).tolist()
    assert list(indices.metas) == list(wanted.metas)
    assert {name: values.tolist() for name, values in indices.columns.items()} == {
        name: values.tolist() for name, values in wanted.columns.items()
    }


def catalogues(folder: Path) -> list[Path]:
    return list((folder.parent / "cache" / "penstock" / "catalogue").glob("*.psidx"))


def test_the_second_start_opens_no_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Opened(folder, monkeypatch).asked == list(range(NUM_FILES))
    assert len(catalogues(folder)) == 1
    again = Opened(folder, monkeypatch)
    assert (again.asked, again.format.scanned) == ([], [])


def test_small_files_of_a_catalogue_have_no_index_of_their_own(folder: Path) -> None:
    (folder / "100.x").write_bytes(marked(*[b"abc"] * 100_000))
    assert len(open_all(open_storage(folder / "*.x", "read_x"), Marked())) == NUM_FILES
    assert os.listdir(folder / ".penstock") == ["100.x.psidx"]


def test_few_files_with_many_records_share_a_mapped_catalogue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write_many(folder / f"{number}.y", 50_000 + number)
    for given in range(2):
        indices = open_all(open_storage(folder / "*.y", "read_x"), Marked())
        monkeypatch.setattr(indexing, "open_indices", None)
        assert indices.starts.tolist() == [0, 50_000, 100_001, 150_003]
        assert len(catalogues(folder)) == 1, given
        offsets = indices.columns["offsets"]
        sent = pickle_apart(indices).buffers
        assert any(isinstance(part, FilePart) and part.path == str(catalogues(folder)[0]) for part in sent)
        assert offsets[50_000:50_002].tolist() == [1, 5]


def write_many(path: Path, count: int) -> None:
    path.write_bytes(marked(*[b"abc"] * count))
    os.utime(path, ns=(PAST_NS, PAST_NS))


def test_a_path_that_leads_elsewhere_gives_what_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = folder.parent / "other"
    other.mkdir()
    for number in range(NUM_FILES):
        (other / f"{number:03}.x").write_bytes(b"\0" * (folder / f"{number:03}.x").stat().st_size)
        os.utime(other / f"{number:03}.x", ns=(PAST_NS, PAST_NS))
    link = folder.parent / "link"
    link.symlink_to("data")
    assert len(Opened(link, monkeypatch).indices.columns["offsets"]) == sum(number % 3 for number in range(NUM_FILES))
    os.utime(other, ns=(time.time_ns(), link.stat().st_mtime_ns))
    link.unlink()
    link.symlink_to("other")
    again = Opened(link, monkeypatch)
    assert len(again.asked) == NUM_FILES
    assert len(again.indices.columns["offsets"]) == sum(path.stat().st_size for path in other.glob("*.x"))


def test_the_oldest_catalogues_go_where_all_are_too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Opened(folder, monkeypatch)
    (first,) = catalogues(folder)
    os.utime(first, ns=(PAST_NS, PAST_NS))
    write(folder / "300.x", 300)
    Opened(folder, monkeypatch)
    assert len(catalogues(folder)) == 2
    monkeypatch.setattr(indexing, "_MOST_KEPT_BYTES", 3 * first.stat().st_size)
    write(folder / "301.x", 301)
    Opened(folder, monkeypatch)
    assert len(catalogues(folder)) == 2
    assert not first.exists()


def test_where_a_file_changed_all_are_looked_at_again_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Opened(folder, monkeypatch)
    write(folder / "007.x", 8, PAST_NS + 1)
    assert Opened(folder, monkeypatch).asked
    write(folder / "100.x", 101)  # another size at the same time
    assert Opened(folder, monkeypatch).asked
    assert Opened(folder, monkeypatch).asked == []
    write(folder / "007.x", 8, time.time_ns())  # until its time can be told
    assert Opened(folder, monkeypatch).asked
    assert Opened(folder, monkeypatch).asked
    write(folder / "007.x", 8, time.time_ns() - 10 * 10**9)
    assert Opened(folder, monkeypatch).asked
    assert Opened(folder, monkeypatch).asked == []


def test_another_set_of_files_has_a_catalogue_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Opened(folder, monkeypatch)
    write(folder / "300.x", 300)
    assert Opened(folder, monkeypatch).asked == list(range(NUM_FILES + 1))
    assert len(catalogues(folder)) == 2
    assert Opened(folder, monkeypatch).asked == []


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: data[:900] + b"?" + data[901:], lambda data: b""])
def test_a_damaged_catalogue_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    Opened(folder, monkeypatch)
    (path,) = catalogues(folder)
    good = path.read_bytes()
    path.write_bytes(spoil(good))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = Opened(folder, monkeypatch)
    told = [str(one.message) for one in caught]
    assert len(told) == bool(spoil(good))
    assert all(one.startswith("the catalogue '") and " is damaged (" in one and one.endswith("and is made again") for one in told)
    assert (again.asked, len(again.format.scanned)) == (list(range(NUM_FILES)), NUM_FILES)
    assert path.read_bytes() == good
    assert Opened(folder, monkeypatch).asked == []


def test_catalogues_go_when_indices_are_built_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Opened(folder, monkeypatch)
    open_indices(open_storage(folder / "*.x", "read_x"), Marked(), rebuild=True)
    assert catalogues(folder) == []
    assert Opened(folder, monkeypatch).asked
    assert Opened(folder, monkeypatch).asked == []


def test_where_no_catalogue_can_be_written_indices_are_opened_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "cache").write_text("no folder")
    for _ in range(2):
        assert Opened(folder, monkeypatch).asked == list(range(NUM_FILES))
    (folder.parent / "cache").unlink()
    monkeypatch.setattr(indexing, "_MOST_BYTES", 1000)
    for _ in range(2):
        assert Opened(folder, monkeypatch).asked == list(range(NUM_FILES))
    assert catalogues(folder) == []


def test_few_files_and_remote_ones_have_none(folder: Path) -> None:
    storage = open_storage(folder / "00*.x", "read_x")
    assert len(open_all(storage, Marked())) == 10
    assert catalogues(folder) == []


def test_a_file_of_another_format_is_an_error_with_its_name_and_nothing_is_kept(folder: Path) -> None:
    (folder / "150.x").write_bytes(b"nothing of the kind")
    for _ in range(2):
        with pytest.raises(RecordError, match=r"150\.x"):
            open_all(open_storage(folder / "*.x", "read_x"), Marked())
    assert catalogues(folder) == []


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    for number in range(NUM_FILES):
        path = tmp_path / "data" / f"{number:03}.csv"
        path.write_text("name,x\n" + "".join(f"n{row},{number * 10 + row}\n\n" for row in range(3)))
        os.utime(path, ns=(PAST_NS, PAST_NS))
    return str(tmp_path / "data" / "*.csv")


def test_sources_read_the_same_through_a_catalogue(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for _ in range(2):
        csv, text = ps.read_csv(lines, columns={"x": np.int64}), ps.read_text(lines, skip_blank=True)
        assert [row["x"] for row in csv.shuffle(seed=1).feed(executor="threads", num_workers=2)] == [
            csv.shuffle(seed=1)[at]["x"] for at in range(len(csv))
        ]
        copied = pickle.loads(pickle.dumps(text._root.source))
        where = text._root.source.describe(6), copied.describe(7)
        seen.append(([int(row["x"]) for row in csv], text[5], where, csv.feed().state_dict()["dataset"]))
        monkeypatch.setattr(indexing, "open_indices", None)
    assert seen[0] == seen[1]
    assert seen[0][0] == [number * 10 + row for number in range(NUM_FILES) for row in range(3)]
    assert "line 4 of " in seen[0][2][0]


@pytest.mark.slow
@needs_proc
def test_a_source_of_many_files_takes_no_object_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    num_files, data = 5_000, tmp_path / "data"
    data.mkdir()
    for number in range(num_files):
        path = data / f"{number:04}.txt"
        path.write_text("x\n")
        os.utime(path, ns=(PAST_NS, PAST_NS))
    pattern = str(data / "*.txt")
    assert len(ps.read_text(pattern)) == num_files
    traced = []
    for part in (str(data / "[0-1]*.txt"), pattern):
        grown = growth(
            "import tracemalloc\nimport penstock as ps\nps.read_text(arguments[0])\ntracemalloc.start()",
            "ds = ps.read_text(arguments[1])\nprint(len(ds), tracemalloc.get_traced_memory()[0])",
            data / "0*.txt",
            part,
        )
        traced.append(tuple(map(int, grown.lines[0].split())))
    (few, few_bytes), (count, num_bytes) = traced
    assert (few, count) == (2_000, num_files)
    # Beside the path and its line, whose place takes 12 bytes: 114 more for each further file, 125 on Python 3.14.
    assert (num_bytes - few_bytes) / (count - few) < len(os.fsencode(path)) + 12 + 140
