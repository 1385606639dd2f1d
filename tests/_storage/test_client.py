from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from _storage.remotes import options

from penstock._storage.buckets import Client
from penstock._storage.parts import Turn
from penstock.errors import StorageError


async def name(client: Client, turn: Turn) -> str:
    return threading.current_thread().name


def test_work_of_many_threads_runs_in_one():
    client = Client(options())
    assert client.run(name, "it") == "penstock-remote"

    async def ident(client: Client, turn: Turn) -> int:
        return threading.get_ident()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: client.run(ident, "it"), range(50)))) == 1
    client.close()
    client.close()


def test_the_error_of_the_work_comes_as_itself():
    async def fail(client: Client, turn: Turn) -> None:
        raise StorageError("it fails", where="here", fix="nothing")

    client = Client(options())
    with pytest.raises(StorageError) as caught:
        client.run(fail, "it")
    assert caught.value.what == "it fails"
    client.close()


def test_the_deadline_ends_what_never_ends_and_the_error_says_what_went_wrong_last():
    async def wait(client: Client, turn: Turn) -> None:
        turn.last = "the server said 503"
        await asyncio.Event().wait()

    client = Client(options(deadline_s=0.05))
    with pytest.raises(StorageError) as caught:
        client.run(wait, "s3://bucket/key")
    assert caught.value.what == "'s3://bucket/key' did not come after 0.05 s, the deadline: the server said 503"
    client.close()


def test_close_breaks_off_what_is_waited_for():
    begun, ended = threading.Event(), []

    async def wait(client: Client, turn: Turn) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    client = Client(options())
    caught: list[BaseException] = []

    def read() -> None:
        try:
            client.run(wait, "s3://bucket/key")
        except StorageError as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    client.close()
    reader.join()
    assert ended == [True]
    assert "'s3://bucket/key' was being read when the storage was closed" in str(caught[0])
    with pytest.raises(StorageError) as again:
        client.run(name, "it")
    assert again.value.what == "'it' was being read when the storage was closed"


def test_a_client_that_never_ran_is_closed_too():
    client = Client(options())
    client.stop()
    client.close()


def test_stop_does_not_wait_and_the_thread_ends():
    client = Client(options())
    client.run(name, "it")
    thread = client._thread
    assert thread is not None
    client.stop()
    thread.join()
    del client
    gc.collect()


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, tracemalloc
from penstock._storage.buckets import Client
from penstock._contracts.storage import StorageOptions

async def work(client, turn):
    return 5

client = Client(StorageOptions())
before = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.open(os.devnull, os.O_RDONLY)  # the lowest that is free
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
try:
    client.run(work, "it")
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, before)
print(client.run(work, "it"))
client.close()
"""


def test_without_a_descriptor_left_the_first_read_is_an_error_and_the_next_works():
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[Errno 24] Too many open files\n5\n", done.stderr
