"""What the tests of remote files share: options that fail soon, and storages of the fault server's objects."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from faults.server import FaultServer

from penstock._contracts.storage import StorageOptions
from penstock._storage.remote import RemoteStorage, open_remote

KINDS = ("http", "s3", "gs")
KEYS = {"access_key_id": "AKIDNOBODYKNOWS", "secret_access_key": "hunter2hunter2", "region": "us-east-1"}


def noise(count: int, seed: int = 0) -> bytes:
    """Return bytes of which no two places are alike."""
    return b"".join(hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(-(-count // 32)))[:count]


def options(server: FaultServer | None = None, **given: Any) -> StorageOptions:
    """Return options with waits of milliseconds; for s3:// with the server as endpoint."""
    store = {"endpoint": server.url, **KEYS} if server is not None else {}
    quick = {"backoff_s": 0.001, "max_backoff_s": 0.01, "timeout_s": 5.0, "deadline_s": 60.0, "retries": 4}
    return StorageOptions(**{"store": store, **quick, **given})


def opened(kind: str, server: FaultServer, *keys: str, **given: Any) -> RemoteStorage:
    """Open objects of "bucket" over plain HTTP, as an S3 endpoint, or as one of Google Cloud Storage, by a nameless account."""
    start = f"{server.url}/bucket/" if kind == "http" else f"{kind}://bucket/"
    if kind == "gs":
        names = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        given = {
            "store": {"service_account_key": json.dumps({"gcs_base_url": server.url, "disable_oauth": True, **names})},
            "allow_http": True,
            **given,
        }
    return open_remote([start + key for key in keys], options(server, **given), "read_test")


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server as a process of its own, and give its URL."""
    pytest.importorskip("moto", reason="moto is not installed")
    command = [sys.executable, "-c", "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"]
    pages = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "7"}  # short ones, so that listings have several
    with subprocess.Popen(command, env=pages, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if "Running on http://" in line:
                break
        reader = threading.Thread(target=server.stderr.read)  # it logs each request, and would wait when the pipe is full
        reader.start()
        yield line.split("Running on ")[1].strip()
        server.terminate()
        reader.join()


def bucket(endpoint: str, objects: Mapping[str, bytes]) -> dict[str, Any]:
    """Make "bucket" in moto with its objects; return the options to read it."""
    import urllib.request

    import obstore

    given = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "testing", "secret_access_key": "testing"}
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=60).close()
    writer = obstore.store.S3Store("bucket", client_options={"allow_http": True}, **given)
    for key, data in objects.items():
        obstore.put(writer, key, data, use_multipart=False)
    return given
