"""Sources of records over URLs: the same elements as of files, with few requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _storage.remotes import KEYS
from faults.server import Fault, FaultServer, Request
from sources.test_megatron import DOCUMENTS, tokens, write

import penstock as ps
from penstock._storage import open_storage
from penstock._storage.remote import RemoteStorage

LINES = [f"line {number} of a file far away" for number in range(5000)]

pytestmark = pytest.mark.usefixtures("obstore_started")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("HOME", str(tmp_path))  # where the indices go
    half = len(LINES) // 2
    halves = {f"bucket/part-{n}.txt": "\n".join(LINES[n * half : (n + 1) * half]).encode() for n in (0, 1)}
    with FaultServer(halves) as made:
        yield made


def patterns(server: FaultServer, kind: str) -> str:
    """Return what names both files."""
    return f"{server.url}/bucket/part-{{0..1}}.txt" if kind == "http" else "s3://bucket/part-*.txt"


def given(server: FaultServer, kind: str) -> dict[str, object]:
    """Return options for it."""
    return {"backoff_s": 0.001, "retries": 20, **({} if kind == "http" else {"endpoint": server.url, **KEYS})}


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_lines_of_urls_are_those_of_files_at_random_shuffled_and_behind_faults(server: FaultServer, kind: str):
    dataset = ps.read_text(ps.RemoteFiles(patterns(server, kind), given(server, kind)))
    assert len(dataset) == len(LINES)
    assert [dataset[index]["text"] for index in (0, 2499, 2500, 4999)] == [LINES[index] for index in (0, 2499, 2500, 4999)]

    def every_fifth(request: Request) -> Fault | None:
        return Fault(status=503) if request.number % 5 == 0 else None

    server.fault = every_fifth
    with dataset.shuffle(seed=7).feed(executor="threads", num_workers=2) as feed:
        assert sorted(element["text"] for element in feed) == sorted(LINES)


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_pass_takes_few_requests_and_a_second_opening_takes_no_reading(server: FaultServer, kind: str):
    dataset = ps.read_text(ps.RemoteFiles(patterns(server, kind), given(server, kind)))
    before = len(server.log)
    with dataset.feed(executor="threads", num_workers=2) as feed:
        assert [element["text"] for element in feed] == LINES
    assert len(server.log) - before < 200, "a request for every line would be 5000"
    before = len(server.log)
    again = ps.read_text(ps.RemoteFiles(patterns(server, kind), given(server, kind)))
    assert len(again) == len(LINES)
    assert len(server.log) - before <= 2, "the index that is kept is used"


def test_of_a_server_that_tells_no_version_no_index_is_kept(server: FaultServer, tmp_path: Path) -> None:
    server.fault = lambda request: Fault(headers={"etag": "", "last-modified": ""})
    urls = ps.RemoteFiles(patterns(server, "http"), given(server, "http"))
    with pytest.warns(UserWarning, match="is not kept, as the server tells no version of the file") as caught:
        assert ps.read_text(urls)[1]["text"] == LINES[1]
    assert sorted("part-1.txt" in str(warning.message) for warning in caught) == [False, True]
    assert not list(tmp_path.rglob("*.psidx"))
    # Of the same size, with its lines at other places.
    server.put("bucket/part-0.txt", "\n".join(LINES[: len(LINES) // 2][::-1]).encode())
    with pytest.warns(UserWarning, match="built each time"):
        assert ps.read_text(urls)[0]["text"] == LINES[2499]


OLD, NOW = "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:03 GMT"


@pytest.mark.parametrize(
    ("headers", "is_kept"),
    [
        ({"etag": 'W/"1"', "last-modified": ""}, False),
        ({"etag": 'W/"1"', "last-modified": OLD, "date": NOW}, False),
        ({"etag": "", "last-modified": OLD, "date": NOW}, False),
        ({"etag": "", "last-modified": OLD, "date": "Thu, 01 Jan 2026 00:00:05 GMT"}, True),
        ({"last-modified": OLD, "date": NOW}, True),
    ],
    ids=["weak", "weak and young", "young", "old", "strong"],
)
@pytest.mark.filterwarnings("ignore:the index of")
def test_an_index_is_kept_where_no_other_version_can_look_the_same(
    server: FaultServer, tmp_path: Path, headers: dict[str, str], is_kept: bool
) -> None:
    server.fault = lambda request: Fault(headers=headers)
    ps.read_text(ps.RemoteFiles(f"{server.url}/bucket/part-0.txt", given(server, "http")))
    assert bool(list(tmp_path.rglob("*.psidx"))) == is_kept


def test_an_index_of_a_url_is_that_of_its_query_but_for_what_signs_it(server: FaultServer, tmp_path: Path) -> None:
    urls = ["?id=1", "?id=2", "?id=1&X-Amz-Signature=abc&sig=d", "", "?X-Amz-Signature=abc", "?sigma=1"]
    counts = []
    for url in urls:
        storage = open_storage(ps.RemoteFiles(f"{server.url}/bucket/part-0.txt{url}", given(server, "http")), "read_text")
        assert isinstance(storage, RemoteStorage)
        counts.append(storage.place(0).partition("\n")[2])
    assert counts == ["id=1", "id=2", "id=1", "", "", "sigma=1"]


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_documents_of_megatron_come_from_urls(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "a")
    files = {f"bucket/part-{n}.{ending}": (tmp_path / f"a.{ending}").read_bytes() for n in (0, 1) for ending in ("bin", "idx")}
    with FaultServer(files) as server:
        ds = ps.read_megatron(ps.RemoteFiles(patterns(server, kind).removesuffix(".txt"), given(server, kind)))
        assert tokens(ds) == tokens({"tokens": one} for one in DOCUMENTS) * 2
