"""Remote reading against an S3 that others wrote: moto's server, as a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _storage.remotes import bucket, moto, noise

import penstock as ps
from penstock._contracts.storage import StorageOptions
from penstock._storage import open_storage
from penstock._storage.urls import is_readable
from penstock.errors import ObjectChanged, StorageError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("obstore_started")]

FILES = {f"folder/part-{number:05d}-of-00003": noise(200_000 + number, number) for number in range(3)}


@pytest.fixture
def endpoint() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def store(endpoint: str) -> dict[str, Any]:
    """Make the bucket with its objects; return the options to read it."""
    return bucket(endpoint, FILES)


def test_objects_are_listed_read_in_parts_and_found_changed(store: dict[str, Any], tmp_path: Path):
    import obstore

    options = StorageOptions(store=store, cache_dir=tmp_path, cache_block_bytes=65536)
    for given in (StorageOptions(store=store, max_range_bytes=50_000), options, options):
        storage: Any = open_storage(ps.RemoteFiles("s3://bucket/folder/part-*", given), "read_test")
        assert [storage.name(file) for file in range(3)] == [f"s3://bucket/{key}" for key in FILES]
        whole = list(FILES.values())
        assert [storage.size(file) for file in range(3)] == [len(data) for data in whole]
        generator = np.random.default_rng(7)
        files, lengths = generator.integers(0, 3, 50), generator.integers(0, 20_000, 50)
        offsets = generator.integers(0, 200_000 - lengths)
        data, starts = storage.read_spans(files, offsets, lengths, None)
        for file, offset, length, start in zip(files, offsets, lengths, starts, strict=True):
            assert data[start : start + length].tobytes() == whole[file][offset : offset + length]
        storage.close()
    storage = open_storage(ps.RemoteFiles("s3://bucket/folder/part-*", {"store": store}), "read_test")
    writer = obstore.store.S3Store("bucket", client_options={"allow_http": True}, **store)
    obstore.put(writer, next(iter(FILES)), b"another", use_multipart=False)
    with pytest.raises(ObjectChanged):
        storage.read(0, 0, 7)
    obstore.delete(writer, list(FILES)[1])
    with pytest.raises(StorageError, match="is not there"):
        storage.read(1, 0, 7)
    storage.close()
    assert os.listdir(tmp_path)


HOSTILE = (
    "/x", "x", "d/", "d", "a//b", "a/b", "//a", "a/./b", "a/../b", "./a", "../a", "a/.", "s/e//", "s/e/f",
    "q?x", "qax", "h#x", "p%2Fx", "p/x", "p%2fx", "plus+x", "plus x", "plus%20x", "%", "%zz", " ", "end ",
    "star*x", "br[x]", "brx", "{a,b}", "n@3", "pipe|^`<x>", "quote'\"x", "amp&x=y;z", "back\\slash", "c:x", "http://h/x",
    "\u00e9", "e\u0301", "\u202fnarrow", "\U0001f600", "tab\tx", "del\x7fx",
    "l" * 1024, "m/" + "l" * 1000, "m/status 404", "Signature=x",
)  # fmt: skip
"""Keys of which many are one when somebody quotes, unquotes, normalizes or strips them. Each holds its own name."""

MARKS = ("p/", "p/sub/", "d/", "m/empty/", "p/old_$folder$")


@pytest.fixture
def hostile(store: dict[str, Any]) -> dict[str, Any]:
    """Fill "hostile" by a client that sends keys as they are; return the options to read it."""
    import boto3

    client = boto3.client(
        "s3", endpoint_url=store["endpoint"], region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    client.create_bucket(Bucket="hostile")
    for key in filter(is_readable, HOSTILE):
        client.put_object(Bucket="hostile", Key=key, Body=key.encode())
    client.create_bucket(Bucket="unreadable")
    for key in ("a//b", "a/b", "tab\tx"):
        client.put_object(Bucket="unreadable", Key=key, Body=key.encode())
    client.create_bucket(Bucket="marked")
    for key in (*MARKS, "p/sub/a", "d", "m/a", "m/none"):
        client.put_object(Bucket="marked", Key=key, Body=b"" if key in MARKS or key == "m/none" else key.encode())
    client.close()
    return store


def read_all(pattern: str, store: dict[str, Any], **given: Any) -> dict[str, str]:
    """Return the text of each object by its key."""
    storage: Any = open_storage(ps.RemoteFiles(f"s3://{pattern}", {"store": store, "retries": 1, **given}), "read_test")
    bucket = pattern.partition("/")[0]
    texts = {
        storage.name(file).removeprefix(f"s3://{bucket}/"): storage.read(file, 0, storage.size(file)).decode()
        for file in range(len(storage))
    }
    storage.close()
    return texts


def test_the_object_that_is_read_is_the_one_that_was_listed_or_named(hostile: dict[str, Any], tmp_path: Path):
    readable = [key for key in HOSTILE if is_readable(key)]
    assert len(HOSTILE) - len(readable) == 13
    visible = {key: key for key in readable if not key.startswith(".")}
    matching = {key: key for key in visible if "/" not in key}
    for given in ({}, {"cache_dir": tmp_path}):
        assert read_all("hostile/a/*", hostile, **given) == {"a/b": "a/b"}
        assert read_all("hostile/m/**", hostile, **given) == {key: key for key in visible if key.startswith("m/")}
        assert read_all("hostile/[!td]*", hostile, **given) == {key: key for key in matching if key[0] not in "td"}
        assert read_all("hostile/**/[!td]*", hostile, **given) == {key: key for key in visible if key.rpartition("/")[2][0] not in "td"}
    for key in HOSTILE:
        if key not in readable:
            with pytest.raises(
                StorageError, match="names or lists a key that obstore cannot read: it has a slash at an end, an empty part"
            ):
                read_all(f"hostile/{key}", hostile)
        elif "{" not in key and "@" not in key:
            assert read_all(f"hostile/{key}", hostile) == {key: key}


def test_an_index_is_of_the_object_that_was_listed(hostile: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    visible = sorted(key for key in HOSTILE if is_readable(key) and key[0] not in "td")
    for _ in range(2):  # the second time from the indices
        lines = ps.read_text(ps.RemoteFiles(["s3://hostile/[!td]*", "s3://hostile/**/[!td]*"], StorageOptions(store=hostile, retries=1)))
        assert sorted(element["text"] for element in lines) == visible
