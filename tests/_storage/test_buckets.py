from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from _storage.remotes import KEYS, KINDS, noise, opened, options
from faults.server import Fault, FaultServer

from penstock._storage.remote import RemoteStorage, open_remote
from penstock.errors import MissingExtra, PlanError, SourceError, StorageError

pytestmark = pytest.mark.usefixtures("obstore_started")

DATA = noise(3_000_000)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    names = ("train/a-1.txt", "train/a-2.txt", "train/b-1.txt", "train/sub/a-3.txt", "test/a-9.txt", "train/a-1.txt.psidx", "empty")
    with FaultServer({f"bucket/{name}": name.encode() for name in names} | {"bucket/big": DATA}) as made:
        yield made


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_pattern_is_one_listing_and_nothing_else(server: FaultServer, kind: str):
    storage = opened(kind, server, "train/a-*")
    assert [storage.name(file) for file in range(len(storage))] == [f"{kind}://bucket/train/a-1.txt", f"{kind}://bucket/train/a-2.txt"]
    assert [storage.size(file) for file in range(2)] == [13, 13]
    assert len(server.log) == 1
    assert "delimiter" in server.log[0].query
    assert storage.read(1, 0, 13) == b"train/a-2.txt"
    storage.close()


def test_patterns_find_folders_below_and_each_object_once(server: FaultServer):
    storage = opened("s3", server, "train/**/a-*.txt", "train/a-1.txt", "*/a-?.txt")
    names = [storage.name(file).removeprefix("s3://bucket/") for file in range(len(storage))]
    assert names == ["test/a-9.txt", "train/a-1.txt", "train/a-2.txt", "train/sub/a-3.txt"]
    storage.close()


def test_a_missing_shard_is_an_error():
    names = [f"bucket/t-{number:05d}-of-00004" for number in (0, 1, 3)]
    with FaultServer(dict.fromkeys(names, b"x")) as server:
        with pytest.raises(SourceError) as caught:
            opened("s3", server, "t-*")
        assert caught.value.what == "shard 't-00002-of-00004' is missing; 3 objects match 's3://bucket/t-*'"
        storage = opened("s3", server, "t-{00000..00001}-of-00004")
        assert len(storage) == 2
        storage.close()


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_key_that_the_pattern_itself_is_comes_first_and_hidden_ones_are_not_found(kind: str):
    names = ("p/a[1].txt", "p/a1.txt", "p/q?.txt", "p/qq.txt", "p/[x]/*.txt", "p/x/y.txt", "p/.hidden.txt", "p/.d/z.txt")
    with FaultServer({f"bucket/{name}": b"x" for name in names}) as server:
        for pattern, found in [
            ("p/a[1].txt", ["p/a[1].txt"]),
            ("p/a[12].txt", ["p/a1.txt"]),
            ("p/q?.txt", ["p/q?.txt"]),
            ("p/[x]/*.txt", ["p/[x]/*.txt"]),
            ("p/[q]*.txt", ["p/q?.txt", "p/qq.txt"]),
            ("p/.h*", ["p/.hidden.txt"]),
            ("p/**", ["p/[x]/*.txt", "p/a1.txt", "p/a[1].txt", "p/q?.txt", "p/qq.txt", "p/x/y.txt"]),
        ]:
            storage = opened(kind, server, pattern)
            assert [storage.name(file) for file in range(len(storage))] == sorted(f"{kind}://bucket/{name}" for name in found)
            storage.close()
        assert len(server.log) == 7


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_key_that_obstore_cannot_read_is_named_at_once_and_the_others_can_be_read(kind: str):
    key = "p//double.txt"
    with FaultServer({"bucket/p/a.txt": b"x", f"bucket/{key}": b"y"}) as server:
        for asked in ("p/*.txt", "p/**/*.txt", key):
            with pytest.raises(StorageError) as caught:
                opened(kind, server, asked)
            assert caught.value.what.startswith(f"'{kind}://bucket/{asked}' names or lists a key that obstore cannot read: ")
            assert "give that object a key without empty parts" in caught.value.fix
        assert len(server.log) == 2, "nothing is asked again"
        storage = opened(kind, server, "p/a.txt")
        assert storage.read(0, 0, 1) == b"x"
        storage.close()


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_folder_as_consoles_mark_it_is_no_object_and_an_empty_one_is(kind: str):
    names = {"p/": b"", "p/sub/": b"", "p/sub/a": b"x", "p/none": b"", "p/both": b"y", "p/both/": b""}
    with FaultServer({f"bucket/{name}": data for name, data in names.items()}) as server:
        for pattern, found in (("p/**", ["p/both", "p/none", "p/sub/a"]), ("p/*", ["p/both", "p/none"])):
            storage = opened(kind, server, pattern)
            assert [storage.name(file).rpartition("bucket/")[2] for file in range(len(storage))] == found
            assert storage.read(0, 0, 1) == b"y"
            storage.close()
        for key in ("p/", "p/sub/", "/p/none"):
            with pytest.raises(StorageError, match="names or lists a key that obstore cannot read: it has a slash at an end"):
                opened(kind, server, key)


def test_a_long_key_hides_no_status_of_the_answer(server: FaultServer):
    server.fault = lambda request: Fault(status=501)
    with pytest.raises(StorageError, match="cannot be read: "):
        opened("s3", server, "long" * 200)
    assert len(server.log) == 1


def test_a_request_that_timed_out_at_the_store_is_asked_again(server: FaultServer):
    storage = opened("s3", server, "big")
    faults = iter([Fault(status=400, body=b"<Error><Code>RequestTimeout</Code></Error>")])
    server.fault = lambda request: next(faults, None)
    assert storage.read(0, 0, 9) == DATA[:9]
    storage.close()


def test_an_endpoint_without_a_name_is_asked_twice():
    store = {"endpoint": "https://no-such-host.invalid", **KEYS}
    with pytest.raises(StorageError, match="did not come after 2 tries") as caught:
        open_remote(["s3://bucket/big"], options(store=store), "read_test")
    assert caught.value.fix == "check the host in the URL or endpoint, the name service and the certificate"


@pytest.mark.parametrize(("kind", "num_tries"), [("NotSupportedError", 1), ("UnknownConfigurationKeyError", 1), ("GenericError", 5)])
def test_what_obstore_never_does_is_not_asked_again(server: FaultServer, monkeypatch: pytest.MonkeyPatch, kind: str, num_tries: int):
    import obstore

    tries = []

    def head_async(*given: Any) -> None:
        tries.append(given)
        raise getattr(obstore.exceptions, kind)("no")

    monkeypatch.setattr(obstore, "head_async", head_async)
    with pytest.raises(StorageError, match="no"):
        opened("s3", server, "big")
    assert len(tries) == num_tries


def test_nothing_found_is_an_error(server: FaultServer):
    with pytest.raises(SourceError) as caught:
        opened("s3", server, "train/c-*")
    assert caught.value.what == "no object matches 's3://bucket/train/c-*'"
    with pytest.raises(StorageError, match=r"^'s3://bucket/train/c-1\.txt' is not there: "):
        opened("s3", server, "train/c-1.txt")
    assert len(server.log) == 2  # and is not asked again


def test_large_ranges_come_in_order_and_go_on_where_they_broke_off(server: FaultServer):
    storage = opened("s3", server, "big", max_requests=1)
    breaks = iter([Fault(close_after=2_500_000)])
    server.fault = lambda request: next(breaks, None)
    assert storage.read(0, 7, 2_900_000) == DATA[7:2_900_007]
    begins = [request.begin for request in server.log[1:]]
    assert begins[0] == 7
    assert begins[1] >= 1 << 20, "what came is not asked for again"
    storage.close()


def test_more_or_fewer_bytes_than_asked_for_are_not_taken(server: FaultServer):
    storage = opened("s3", server, "big")
    for wrong in (b"x" * 99, b"x" * 101):
        faults = iter([Fault(body=wrong)])
        server.fault = lambda request, left=faults: next(left, None)  # type: ignore[misc]
        assert storage.read(0, 0, 100) == DATA[:100]
    storage.close()


def test_credentials_that_expired_are_looked_for_again_once(server: FaultServer):
    given: list[dict[str, Any]] = []

    def provider() -> dict[str, Any]:
        given.append({"access_key_id": f"KEY{len(given)}", "secret_access_key": "hunter2", "token": None, "expires_at": None})
        return given[-1]

    store = {"endpoint": server.url, "region": "us-east-1", "credential_provider": provider}
    storage = open_remote(["s3://bucket/big"], options(store=store), "read_test")
    expired = Fault(status=400, body=b"<Error><Code>ExpiredToken</Code><Message>hunter2hunter2</Message></Error>")
    server.fault = lambda request: expired if f"KEY{len(given) - 1}" == "KEY0" else None
    assert storage.read(0, 0, 9) == DATA[:9]
    assert len(given) == 2
    server.fault = lambda request: Fault(status=403)
    with pytest.raises(StorageError, match="may not be read") as caught:
        storage.read(0, 0, 9)
    assert len(given) == 3
    for secret in ("hunter2", KEYS["access_key_id"]):
        assert secret not in str(caught.value)
    storage.close()


def test_options_that_obstore_does_not_know_are_refused_without_their_values(server: FaultServer):
    with pytest.raises(PlanError, match="obstore does not take the storage options") as caught:
        open_remote(["s3://bucket/big"], options(store={"no_such_option": "hunter2"}), "read_test")
    assert "hunter2" not in str(caught.value)


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra) as caught:
        open_remote(["gs://bucket/key"], options(), "read_test")
    assert (caught.value.what, caught.value.fix) == ("gs:// needs obstore", 'pip install "penstock[cloud]"')


def _first_bytes(storage: RemoteStorage, results: Any) -> None:
    try:
        results.put(storage.read(0, 0, 9))
    except StorageError as error:
        results.put(error.what)
    storage.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_behind_a_fork_connections_are_made_anew_or_an_error_says_why_not(server: FaultServer, kind: str):
    storage = opened(kind, server, "big")
    assert storage.read(0, 0, 9) == DATA[:9]
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_first_bytes, args=(storage, results))
    child.start()
    got = results.get()
    child.join()
    results.close()
    if kind == "http":
        assert got == DATA[:9]
    else:
        assert got.startswith(f"'{kind}://bucket/big' cannot be read in this process: it was forked from one that used obstore")
    assert storage.read(0, 9, 9) == DATA[9:18]
    storage.close()
    child.close()


@pytest.mark.slow
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("kind", KINDS)
def test_a_storage_goes_to_another_process(server: FaultServer, kind: str):
    storage = opened(kind, server, "big")
    context = multiprocessing.get_context("forkserver")
    results = context.SimpleQueue()
    child = context.Process(target=_first_bytes, args=(storage, results))
    child.start()
    assert results.get() == DATA[:9]
    child.join()
    results.close()
    child.close()
    storage.close()
