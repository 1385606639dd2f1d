"""Remote reading against an S3 that others wrote: moto's server, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _storage.remotes import noise

from penstock._contracts.storage import StorageOptions
from penstock._storage import open_storage
from penstock.errors import ObjectChanged, StorageError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("obstore_started")]

FILES = {f"folder/part-{number:05d}-of-00003": noise(200_000 + number, number) for number in range(3)}


@pytest.fixture
def endpoint() -> Iterator[str]:
    pytest.importorskip("moto", reason="moto is not installed")
    command = [sys.executable, "-c", "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if "Running on http://" in line:
                break
        yield line.split("Running on ")[1].strip()
        server.terminate()
        server.stderr.read()


@pytest.fixture
def store(endpoint: str) -> dict[str, Any]:
    """Make the bucket with its objects; return the options to read it."""
    import urllib.request

    import obstore

    options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "testing", "secret_access_key": "testing"}
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=60).close()
    writer = obstore.store.S3Store("bucket", client_options={"allow_http": True}, **options)
    for key, data in FILES.items():
        obstore.put(writer, key, data, use_multipart=False)
    return options


def test_objects_are_listed_read_in_parts_and_found_changed(store: dict[str, Any], tmp_path: Path):
    import obstore

    options = StorageOptions(store=store, cache_dir=tmp_path, cache_block_bytes=65536)
    for given in (StorageOptions(store=store, max_range_bytes=50_000), options, options):
        storage: Any = open_storage("s3://bucket/folder/part-*", "read_test", given)
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
    storage = open_storage("s3://bucket/folder/part-*", "read_test", StorageOptions(store=store))
    writer = obstore.store.S3Store("bucket", client_options={"allow_http": True}, **store)
    obstore.put(writer, next(iter(FILES)), b"another", use_multipart=False)
    with pytest.raises(ObjectChanged):
        storage.read(0, 0, 7)
    obstore.delete(writer, list(FILES)[1])
    with pytest.raises(StorageError) as caught:
        storage.read(1, 0, 7)
    assert "is not there" in caught.value.what
    storage.close()
    assert os.listdir(tmp_path)
