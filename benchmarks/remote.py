"""Records of 100 kB of an S3 endpoint that answers 20 ms late, shuffled and in order, against plain parallel range reads.

The limit is `obstore.get_range` in as many threads as there may be requests in flight, a range per record. Penstock has as many in flight,
and reads neighbours together. The server is a process of its own on this machine; both sides share its CPU.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

_RECORD_BYTES = 100_000
_NUM_FILES = 4
_IN_FLIGHT = 32
_BLOCK = 128
_LATENCY_S = 0.02
_SERVER = """
import sys
import numpy as np
from penstock.testing.server import FaultServer
data = np.random.default_rng(7).bytes({size})
with FaultServer({{f"bucket/part-{{i}}": data for i in range({files})}}, latency_s={latency}) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def _num_records(run: rounds.Run) -> int:
    return max(256, run.size.num_small // 10)


@contextlib.contextmanager
def _served(run: rounds.Run) -> Iterator[dict[str, Any]]:
    size = _num_records(run) // _NUM_FILES * _RECORD_BYTES
    code = _SERVER.format(size=size, files=_NUM_FILES, latency=_LATENCY_S)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1", "access_key_id": "none", "secret_access_key": "none"}
        server.stdin.close()


def _order(run: rounds.Run, shuffled: bool) -> tuple[Any, Any]:
    count = _num_records(run) // _NUM_FILES * _NUM_FILES
    order = np.random.default_rng(7).permutation(count) if shuffled else np.arange(count)
    return order // (count // _NUM_FILES), order % (count // _NUM_FILES) * _RECORD_BYTES


def _rate(count: int, begin: float) -> dict[str, Any]:
    return {"rate": count * _RECORD_BYTES / (time.perf_counter() - begin) / 1e6}


def _plain(shuffled: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise rounds.Missing("obstore is not installed") from None
        files, offsets = _order(run, shuffled)
        with _served(run) as options:
            store = S3Store("bucket", client_options={"allow_http": True}, **options)

            def read(place: int) -> int:
                return len(obstore.get_range(store, f"part-{files[place]}", start=int(offsets[place]), length=_RECORD_BYTES))

            with ThreadPoolExecutor(_IN_FLIGHT) as pool:
                list(pool.map(read, range(_IN_FLIGHT)))
                begin = time.perf_counter()
                total = sum(pool.map(read, range(len(files))))
                result = _rate(len(files), begin)
        assert total == len(files) * _RECORD_BYTES
        return result

    return measure


def _penstock(shuffled: bool, web: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        from penstock._contracts.storage_options import storage_options
        from penstock._storage import open_storage

        files, offsets = _order(run, shuffled)
        lengths = np.full(len(files), _RECORD_BYTES)
        with _served(run) as given:
            endpoint = given["endpoint"]
            options = storage_options({"max_requests": _IN_FLIGHT, **({} if web else given)}, "remote.py")
            names = [f"{endpoint}/bucket/part-{number}" for number in range(_NUM_FILES)] if web else "s3://bucket/part-*"
            storage: Any = open_storage(names, "remote.py", options)

            def read(first: int) -> int:
                block = slice(first, first + _BLOCK)
                _, starts = storage.read_spans(files[block], offsets[block], lengths[block], None)
                return len(starts)

            read(0)
            with ThreadPoolExecutor(2) as pool:  # as many workers as a feed has here
                begin = time.perf_counter()
                total = sum(pool.map(read, range(0, len(files), _BLOCK)))
                result = _rate(len(files), begin)
            storage.close()
        assert total == len(files)
        return result

    return measure


def _nothing(size: Size, root: Path) -> None:
    """The server makes the data."""


def _claim() -> rounds.Claim:
    ours = {f"{kind}_{order}": f"plain_{order}" for order in ("shuffled", "ordered") for kind in ("penstock_s3", "penstock_http")}
    return rounds.Claim(
        name="remote",
        title="100 kB records of an endpoint that answers 20 ms late, against obstore.get_range in 32 threads",
        unit="MB/s",
        prepare=_nothing,
        reference="plain_shuffled",
        references=ours | {"plain_shuffled": "", "plain_ordered": ""},
        targets=tuple(rounds.Target(contestant=name, metric="ratio", sense=">=", bound=0.9) for name in ours),
    )


if __name__ == "__main__":
    contestants: dict[str, Callable[[rounds.Run], dict[str, Any]]] = {}
    for order in ("shuffled", "ordered"):
        contestants[f"plain_{order}"] = _plain(order == "shuffled")
        contestants[f"penstock_s3_{order}"] = _penstock(order == "shuffled", web=False)
        contestants[f"penstock_http_{order}"] = _penstock(order == "shuffled", web=True)
    rounds.main(_claim(), contestants)
