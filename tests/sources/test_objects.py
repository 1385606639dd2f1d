"""Whole files of stores and web servers: the same elements as of the same files here, and errors that name the object."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _storage.remotes import KEYS, bucket, moto, noise
from faults.server import Fault, FaultServer
from sources.gathering import gathered
from sources.test_coco import CATEGORIES, annotation

import penstock as ps
from penstock._contracts.transform import Scratch
from penstock._ops.block import Block, ElementFailed
from penstock._storage import remote
from penstock.cli.bench_source import open_plain, open_records
from penstock.errors import ListFileError, ObjectChanged, PlanError, SourceError, StorageError
from penstock.sources.files import FilesSource, ListSource
from penstock.testing import check_source

pytestmark = pytest.mark.usefixtures("obstore_started")

IMAGES = {f"images/{name}/{number:02}.jpg": noise(7 * number, number) for name in ("cat", "dog") for number in range(20)}
MASKS = {key.replace("images", "masks").replace("jpg", "png"): data[::-1] for key, data in IMAGES.items()}
NAMES = [key.removeprefix("images/") for key in IMAGES]
COCO = {
    "images": [{"id": number, "file_name": name} for number, name in enumerate(NAMES[::-1])],
    "annotations": [annotation(number, number) for number in range(5)],
    "categories": CATEGORIES,
}
FILES = {
    **IMAGES,
    **MASKS,
    "images/readme.txt": b"no image",
    "list.txt": "".join(f"images/{name} {label}\n" for label, name in enumerate(NAMES[::-1])).encode(),
    "coco.json": json.dumps(COCO).encode(),
}
READ: dict[str, Callable[[Any], ps.Dataset]] = {
    "files": lambda at: ps.read_files(at("images/**/*.jpg")),
    "images": lambda at: ps.read_images(at("images")),
    "pairs": lambda at: ps.read_pairs(image=at("images/**/*.jpg"), mask=at("masks/**/*.png")),
    "list": lambda at: ps.read_list(at("list.txt")),
    "coco": lambda at: ps.read_coco(at("images"), at("coco.json"), contiguous_labels=True),
}


def texts(elements: Any, base: str) -> list[str]:
    return [
        repr({key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in e.items()}).replace(base, "")
        for e in elements
    ]


@pytest.mark.slow
def test_a_bucket_gives_what_its_files_give_shuffled_in_workers_and_behind_a_resume(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with moto() as endpoint:
        options = bucket(endpoint, FILES)
        for kind, read in READ.items():
            local = read(lambda name: str(tmp_path / name))
            far = read(lambda name: ps.RemoteFiles(f"s3://bucket/{name}", options))
            with local.shuffle(seed=3).feed(num_workers=0) as feed:
                expected = texts(feed, f"{tmp_path}/")
            for executor in ("threads", "processes"):
                with far.shuffle(seed=3).feed(num_workers=2, executor=executor) as feed:
                    first = texts((next(feed) for _ in range(15)), "s3://bucket/")
                    state = feed.state_dict()
                with read(lambda name: ps.RemoteFiles(f"s3://bucket/{name}", options)).shuffle(seed=3).feed(num_workers=2) as feed:
                    feed.load_state_dict(state)
                    assert first + texts(feed, "s3://bucket/") == expected, kind
            assert getattr(far, "classes", None) == getattr(local, "classes", None)
            sizes = [dataset._root.known_numbers["num_bytes"].gather_columns(np.arange(40), None) for dataset in (far, local)]
            np.testing.assert_array_equal(*sizes)


def fingerprint(dataset: ps.Dataset) -> Any:
    return dataset._root.source.fingerprint()  # type: ignore[attr-defined]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({f"bucket/{name}": data for name, data in FILES.items()}) as made:
        yield made


@pytest.fixture
def at(server: FaultServer) -> Callable[..., ps.RemoteFiles]:
    """Return a function that names an object, or several, with options that read it."""
    options = {"endpoint": server.url, "backoff_s": 0.001, "retries": 2, **KEYS}
    return lambda *names, **given: ps.RemoteFiles([f"s3://bucket/{name}" for name in names], {**options, **given})


def test_the_sources_keep_the_laws_and_have_no_files_of_this_machine(server: FaultServer, at: Any) -> None:
    for kind, read in READ.items():
        source = read(at)._root.source  # type: ignore[attr-defined]
        assert list(source.input_files()) == [], kind
        check_source(source, again=lambda read=read: read(at)._root.source)
    urls = f"{server.url}/bucket/images/{{cat,dog}}/{{00..19}}.jpg"
    assert open_records(urls) is None
    assert len(open_plain(urls, None, "bench")[0]) == 40
    check_source(FilesSource(urls), expected=[{"path": f"{server.url}/bucket/{key}", "data": data} for key, data in IMAGES.items()])
    before = fingerprint(READ["images"](at))
    assert fingerprint(READ["images"](at)) == before
    server.put("bucket/images/cat/03.jpg", bytes(21))  # of the same size
    assert fingerprint(READ["images"](at)) != before


@pytest.mark.parametrize("kind", ["files", "pairs"])
def test_a_block_asks_for_its_objects_at_once_and_for_each_once(tmp_path: Path, kind: str) -> None:
    with FaultServer({f"bucket/{name}": data for name, data in FILES.items()}, latency_s=0.05) as server:
        options = {"endpoint": server.url, "cache_dir": tmp_path, **KEYS}
        source = READ[kind](lambda name: ps.RemoteFiles(f"s3://bucket/{name}", options))._root.source  # type: ignore[attr-defined]
        first, rows = len(server.log), gathered(source)
        asked = server.log[first:]
        assert len(asked) == len({request.path for request in asked}) == (38 if kind == "files" else 76), "two of 40 are empty"
        assert max(request.in_flight for request in asked) > 8
        assert gathered(pickle.loads(pickle.dumps(source))) == rows
        assert len(server.log) == first + len(asked), "the second time from the cache"


def test_one_that_fails_is_the_row_that_fails_and_a_policy_may_leave_it_out(server: FaultServer, at: Any) -> None:
    ds = ps.read_files(at("images/**/*.jpg"))
    source: Any = ds._root.source  # type: ignore[attr-defined]
    server.put("bucket/images/dog/07.jpg", b"another")
    for row, kind, words in ((27, ObjectChanged, "was replaced while it was read"), (5, StorageError, "may not be read")):
        first, rows, scratch = len(server.log), list[Any](), Scratch()
        with pytest.raises(kind, match=f"'s3://bucket/{list(IMAGES)[row]}'\"? {words}") as caught:
            source.gather(range(40), rows)
        assert [e["data"] for e in rows] == list(IMAGES.values())[:row]
        assert caught.value.__notes__ == [f"reading file 's3://bucket/{list(IMAGES)[row]}'"]
        assert len(server.log) - first < 130, "none is asked for by itself"
        block = Block(zeros := np.zeros(40, np.int64), np.arange(40), zeros.astype(np.uint64), source=source, transient=source)
        assert [bytes(block.read_transient(at, scratch)["data"]) for at in range(row)] == list(IMAGES.values())[:row]
        with pytest.raises(ElementFailed) as failed:
            block.read_transient(row, scratch)
        assert isinstance(failed.value.error, kind)
        server.fault = lambda request: Fault(status=403) if request.path.endswith("cat/05.jpg") else None
    with ds.feed(num_workers=2, on_error=ps.Skip()) as feed:
        assert [e["data"] for e in feed] == [data for number, data in enumerate(IMAGES.values()) if number not in (5, 27)]


@pytest.mark.parametrize("many", [10, 100])
def test_what_a_list_names_is_found_by_folders_or_one_by_one_and_what_is_not_there_fails_when_it_is_read(
    server: FaultServer, at: Any, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MANY", many)
    names = [*NAMES[::-1], "cat/no*ne.jpg", "cat/.hidden.jpg"]
    server.put("bucket/images/cat/.hidden.jpg", b"hidden")
    server.put("bucket/images/cat/no1ne.jpg", b"")
    server.put("bucket/a.txt", "\n".join(names).encode())
    ds = ps.read_list(at("a.txt"), root=at("images"), label=False)
    assert len(server.log) == (2 + 2 if many == 10 else 2 + 42)
    assert [e["path"] for e in ds.take(40)] == names[:40]
    assert ds[41]["data"] == b"hidden"
    with pytest.raises(StorageError, match=r"'cat/no\*ne.jpg' is not there") as caught:
        ds[40]
    assert caught.value.__notes__[0].startswith("reading line 41 of 's3://bucket/a.txt'")
    with ds.feed(num_workers=0, on_error=ps.Skip()) as feed:
        assert len(list(feed)) == 41
    with pytest.raises(StorageError, match="is not there"):
        ds._root.known_numbers["num_bytes"].gather([0], [])


def test_paths_of_a_list_may_be_urls_and_secrets_in_them_are_never_shown(server: FaultServer, tmp_path: Path) -> None:
    def listed(text: str, **options: Any) -> ListSource:
        (tmp_path / "l.txt").write_text(text)
        return ListSource(tmp_path / "l.txt", **options)

    host = server.url.replace("://", "://bob:hunter2@")
    lines = [f"HTTP{host[4:]}/bucket/images/{name}?sig=hunter2 {label}\n" for label, name in enumerate(NAMES[::-1])]
    source = listed("".join(lines))
    rows = [{"path": f"{server.url}/bucket/images/{name}?[removed]", "data": IMAGES[f"images/{name}"]} for name in NAMES[::-1]]
    assert gathered(source) == [{**row, "label": label} for label, row in enumerate(rows)]
    assert source.fingerprint() == listed("".join(lines).replace("hunter2", "hunter3")).fingerprint()
    assert source.describe(3).endswith(f"l.txt' ('{server.url}/bucket/images/dog/16.jpg?[removed]')")
    for text, options, words in (
        (lines[0] + "a.jpg 1\n", {}, "line 2: path 'a.jpg' is no URL, and others are"),
        (lines[0], {"root": tmp_path}, "is outside root"),
        (lines[0], {"root": f"{host}/other"}, "is outside root"),
        ("../a.jpg 1\n", {"root": f"{host}/bucket"}, "path '../a.jpg' is outside root"),
        ("/a.jpg 1\n", {"root": f"{host}/bucket"}, "path '/a.jpg' is outside root"),
        (lines[0] * 2, {"duplicates": "error"}, "stands in the list a second time"),
        (f"{host}/x\n", {}, "no label"),
        (f"{host}/bucket/images/none.jpg 1\n", {}, "is not there"),
    ):
        with pytest.raises((ListFileError, StorageError), match=words) as caught:
            gathered(listed(text, **options))
        assert "hunter2" not in str(caught.value), words
    names = "a..b.jpg", "a b#1?.jpg", "\xfc.jpg"
    for name in names:
        server.put(f"bucket/images/{name}", name.encode())
    for root in (f"{host}/bucket/images", f"{host}/bucket/images/?sig=hunter2"):
        assert gathered(listed("".join(f"{name}\t7\n" for name in names), root=root)) == [
            {"path": name, "data": name.encode(), "label": 7} for name in names
        ]


def test_what_finds_nothing_or_cannot_be_listed_says_where(at: Any) -> None:
    for call, kind, words in (
        (lambda: ps.read_files(at("none/*.jpg")), SourceError, "no object matches 's3://bucket/none/\\*.jpg'"),
        (lambda: ps.read_files(at("images/*.jpg", "images/cat/77.jpg")), SourceError, "no object matches|77.jpg' is not there"),
        (lambda: ps.read_images(at("none")), SourceError, r"no object matches 's3://bucket/none/\*\*'"),
        (lambda: ps.read_images(at("images{1,2}")), SourceError, r"no object matches 's3://bucket/images\?1,2}/\*\*'"),
        (lambda: ps.read_images(at("images/cat")), SourceError, "no sub-folder in 's3://bucket/images/cat'"),
        (lambda: ps.read_images(at("images", "masks")), PlanError, "2 URLs are given"),
        (lambda: ps.read_images("https://bob:hunter2@h/images"), PlanError, "web servers have no listing"),
        (lambda: ps.read_list(at("none.txt")), StorageError, "'s3://bucket/none.txt' is not there"),
        (lambda: ps.read_coco(at("images"), at("none.json")), StorageError, "'s3://bucket/none.json' is not there"),
        (lambda: ps.read_pairs(a=at("images/**/*.jpg"), b=at("masks/dog/*.png")), SourceError, "60 files have no partner: 's3://bucket/"),
    ):
        with pytest.raises(kind, match=words) as caught:
            call()
        assert "hunter2" not in str(caught.value)


def test_the_deadline_at_opening_is_that_of_one_object_and_what_was_opened_is_packed(tmp_path: Path) -> None:
    with FaultServer({f"bucket/{name}": data for name, data in IMAGES.items()}, latency_s=0.1) as server:
        urls = ps.RemoteFiles(f"{server.url}/bucket/images/{{cat,dog}}/{{00..19}}.jpg", {"deadline_s": 3, "max_requests": 1})
        ps.pack(ps.read_files(urls).take(5), tmp_path / "packed", executor="threads", num_shards=2)
    assert [bytes(e["data"]) for e in ps.read_packed(tmp_path / "packed")] == list(IMAGES.values())[:5]
