from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from _storage.remotes import options
from faults.server import FaultServer
from programs import python

from penstock._storage.requests import Client, Turn
from penstock.errors import StorageError


def test_the_threads_are_no_more_than_requests_may_be_in_flight_and_end_with_the_client():
    client, seen, all_there = Client(options(max_requests=3)), set(), threading.Barrier(3)

    def job() -> None:
        seen.add(threading.current_thread())
        all_there.wait(60)

    Turn(client, "it").run([job] * 9)
    assert {thread.name for thread in seen} == {"penstock-remote"}
    assert len(seen) == 3
    client.close()
    client.close()
    assert not any(thread.is_alive() for thread in seen)


def test_the_first_error_of_a_request_breaks_off_the_others_and_comes_as_itself():
    client, ended = Client(options()), []
    turn = Turn(client, "it")

    def wait() -> None:
        try:
            turn.sleep(3600)
        finally:
            time.sleep(0.01)
            ended.append(True)

    def fail() -> None:
        raise StorageError("it fails", where="here", fix="nothing")

    with pytest.raises(StorageError) as caught:
        turn.run([wait, fail])
    assert caught.value.what == "it fails"
    client.close()
    assert ended in ([True], [])


@pytest.mark.parametrize("end", [Client.close, Client.stop])
def test_a_client_that_ends_breaks_off_what_is_waited_for(end: Callable[[Client], None]):
    client, begun, caught = Client(options()), threading.Event(), list[str]()
    turn = Turn(client, "s3://bucket/key")

    def wait() -> None:
        begun.set()
        turn.sleep(3600)

    def read() -> None:
        with pytest.raises(StorageError) as error:
            turn.run([wait])
        caught.append(error.value.what)

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    end(client)
    reader.join()
    assert caught == ["'s3://bucket/key' was being read when the storage was closed"]
    with pytest.raises(StorageError) as again:
        Turn(client, "it").run([begun.set])
    assert again.value.what == "'it' was being read when the storage was closed"


def test_a_read_that_ended_is_written_to_no_more():
    """A request that is in the middle of writing is waited for; one that has not begun does not write."""
    client = Client(options(deadline_s=0.05, max_requests=1))
    turn, writes = Turn(client, "it"), list[str]()

    def write() -> None:
        with turn.breaking(lambda: None):
            time.sleep(0.2)
            writes.append("first")

    with pytest.raises(StorageError, match="the deadline"):
        turn.run([write, lambda: writes.append("second")])
    assert writes == ["first"]
    client.close()
    assert writes == ["first"]


WITHOUT_DESCRIPTORS = """
import http.client, os, resource, sys
import obstore
from penstock._storage.remote import open_remote
from _storage.remotes import KEYS, options

url, endpoint = sys.argv[1:]
given = options(store={"endpoint": endpoint, **KEYS})
before = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.open(os.devnull, os.O_RDONLY)  # the lowest that is free
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
try:
    open_remote([url], given, "read_test")
except OSError as error:
    print("Too many open files" in str(error))
resource.setrlimit(resource.RLIMIT_NOFILE, before)
storage = open_remote([url], given, "read_test")
print(storage.read(0, 0, 3))
storage.close()
"""


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_without_a_descriptor_left_a_read_is_an_error_and_the_next_works(kind: str):
    pytest.importorskip("obstore", reason="the extra cloud is not installed")
    with FaultServer({"bucket/key": b"abc"}) as server:
        url = f"{server.url}/bucket/key" if kind == "http" else "s3://bucket/key"
        done = python("-c", WITHOUT_DESCRIPTORS, url, server.url)
    assert done.stdout == "True\nb'abc'\n", done.stderr
