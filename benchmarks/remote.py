"""Records of 100 kB of an S3 endpoint and a web server that answer 20 ms late, shuffled and in order, against plain parallel range reads.

The server is a process of its own on this machine; both sides share its CPU. It is Penstock's own server for tests
(`tests/faults/server.py`, S3 and web), which is quick; and moto's (`moto_*`), which others wrote, with a pause of 20 ms in front of it:
it computes so much per request, and takes a copy of the whole object each time, that it is itself the limit of most of what is
measured with it: in order its objects are of 8 MB, so that one request brings a whole one.

The limit is `obstore.get_range` in as many threads as there may be requests in flight: shuffled a range per record, in order ranges of
8 MB, as large as Penstock's own, cut into records without a copy. Penstock reads records of a block that lie near each other with one
request in shuffled order too, most of all where files are small (`moto_*`), and may so be above 1.

Two ways of Penstock: `penstock_*` are two threads that read blocks of records whose places they know (`read_spans`), which the limit is
for; `feed_*` is what a user runs, a feed of `read_tfrecord` with its default workers, both check sums of each record and new bytes for
each. Its index is built before the clock. Each contestant's records are all compared with what the server has in a pass before the
clock; listing the bucket is not on the clock.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rounds
from data import Size

_RECORD_BYTES = 100_000
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_NUM_WORDS = (_RECORD_BYTES - _HEADER_BYTES - _FOOTER_BYTES) // 8
_RECORDS_PER_RANGE = 80
_IN_FLIGHT = 32
_BLOCK = 128
_LATENCY_S = 0.02
_KEYS = {"region": "us-east-1", "access_key_id": "testing", "secret_access_key": "testing"}

Pass = Callable[[Callable[[int, Any], None] | None], int]
"""Read all records; call what is given with the number and the frame of each; return how many they were."""


class Shape(NamedTuple):
    """How many records there are, and in how many files."""

    count: int
    num_files: int

    @property
    def per_file(self) -> int:
        """Records of a file."""
        return self.count // self.num_files


def _shape(run: rounds.Run, shuffled: bool, moto: bool) -> Shape:
    count = max(256, run.size.num_small // 10)
    if not moto:
        return Shape(count // 4 * 4, 4)
    # moto takes a copy of the whole object for each request: in order as many bytes as with one large range for each file
    return Shape(max(256, count // 16) // 4 * 4, 4) if shuffled else Shape(max(256, count // 2) // 32 * 32, 32)


def _objects(shape: Shape) -> Iterator[bytes]:
    """Make TFRecord files; the payload of a record is its number again and again."""
    from penstock.formats.tfrecord import frame

    for part in np.arange(shape.count).reshape(shape.num_files, -1):
        yield b"".join(frame(np.full(_NUM_WORDS, number, np.int64).tobytes()) for number in part)


def _check(number: int, frame: Any) -> None:
    assert len(frame) == _RECORD_BYTES, f"record {number} has {len(frame)} bytes"
    words = np.frombuffer(frame, np.int64, _NUM_WORDS, _HEADER_BYTES)
    assert np.all(words == number), f"what came for record {number} is another one"


def serve(*shape: int) -> None:
    """Be the quick server, until standard input ends; print the port."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from faults.server import FaultServer

    objects = {f"bucket/part-{number:02}": data for number, data in enumerate(_objects(Shape(*shape)))}
    with FaultServer(objects, latency_s=_LATENCY_S) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def serve_moto(*shape: int) -> None:
    """Be moto's server, until standard input ends; print the port."""
    import logging
    import threading
    import urllib.request

    import obstore
    from moto.server import DomainDispatcherApplication, create_backend_app
    from obstore.store import S3Store
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)

    def late(environment: Any, start: Any) -> Any:
        time.sleep(_LATENCY_S)
        return application(environment, start)

    server = make_server("127.0.0.1", 0, late, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=60).close()
    store = S3Store("bucket", client_options={"allow_http": True}, endpoint=endpoint, **_KEYS)
    for number, data in enumerate(_objects(Shape(*shape))):
        obstore.put(store, f"part-{number:02}", data, use_multipart=False)
    print(server.port, flush=True)
    sys.stdin.read()


def _need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise rounds.Missing(f"{package} is not installed")


@contextlib.contextmanager
def _served(shape: Shape, moto: bool) -> Iterator[str]:
    code = f"import remote; remote.{'serve_moto' if moto else 'serve'}{tuple(shape)}"
    folder = Path(__file__).resolve().parent
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def _order(count: int, shuffled: bool) -> Any:
    return np.random.default_rng(7).permutation(count) if shuffled else np.arange(count)


def _measured(count: int, read_all: Pass) -> dict[str, Any]:
    """Read all records once and compare them, then once on the clock."""
    seen: list[int] = []

    def check(number: int, frame: Any) -> None:
        _check(number, frame)
        seen.append(number)

    assert read_all(check) == count
    assert sorted(seen) == list(range(count))
    begin = time.perf_counter()
    assert read_all(None) == count
    seconds = time.perf_counter() - begin
    return {"rate": count * _RECORD_BYTES / seconds / 1e6, "seconds": seconds}


def _plain(shuffled: bool, moto: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        _need(*(("moto",) if moto else ()), "obstore")
        import obstore
        from obstore.store import S3Store

        shape = _shape(run, shuffled, moto)
        count, per_file = shape.count, shape.per_file
        # (first record, how many)
        ranges = [
            (file * per_file + first, 1 if shuffled else min(_RECORDS_PER_RANGE, per_file - first))
            for file in range(shape.num_files)
            for first in range(0, per_file, 1 if shuffled else _RECORDS_PER_RANGE)
        ]
        if shuffled:
            ranges = [ranges[place] for place in _order(count, True).tolist()]
        with _served(shape, moto) as endpoint:
            store = S3Store("bucket", client_options={"allow_http": True}, endpoint=endpoint, **_KEYS)

            def read(first: int, number: int) -> list[Any]:
                begin, length = first % per_file * _RECORD_BYTES, number * _RECORD_BYTES
                data = memoryview(obstore.get_range(store, f"part-{first // per_file:02}", start=begin, length=length))
                return [data[start : start + _RECORD_BYTES] for start in range(0, len(data), _RECORD_BYTES)]

            with ThreadPoolExecutor(_IN_FLIGHT) as pool:

                def read_all(check: Callable[[int, Any], None] | None) -> int:
                    total = 0
                    for (first, _), frames in zip(ranges, pool.map(read, *zip(*ranges, strict=True)), strict=True):
                        total += len(frames)
                        if check:
                            for place, frame in enumerate(frames):
                                check(first + place, frame)
                    return total

                return _measured(count, read_all)

    return measure


def _names_and_options(endpoint: str, web: bool, shape: Shape) -> tuple[Any, dict[str, Any]]:
    if web:
        return [f"{endpoint}/bucket/part-{number:02}" for number in range(shape.num_files)], {"max_requests": _IN_FLIGHT}
    return "s3://bucket/part-*", {"max_requests": _IN_FLIGHT, "endpoint": endpoint, **_KEYS}


def _spans(shuffled: bool, moto: bool, web: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        _need(*(("moto",) if moto else ()), *(() if web else ("obstore",)))
        from penstock._contracts.storage import RemoteFiles, storage_options
        from penstock._storage import open_storage

        shape = _shape(run, shuffled, moto)
        count = shape.count
        order = _order(count, shuffled)
        files, offsets = order // shape.per_file, order % shape.per_file * _RECORD_BYTES
        lengths = np.full(count, _RECORD_BYTES)
        with _served(shape, moto) as endpoint:
            names, options = _names_and_options(endpoint, web, shape)
            storage: Any = open_storage(RemoteFiles(names, storage_options(options, "remote.py")), "remote.py")

            def read(first: int) -> tuple[int, Any, Any]:
                block = slice(first, first + _BLOCK)
                return first, *storage.read_spans(files[block], offsets[block], lengths[block], None)

            with ThreadPoolExecutor(2) as pool:  # as many workers as a feed has here

                def read_all(check: Callable[[int, Any], None] | None) -> int:
                    total = 0
                    for first, data, starts in pool.map(read, range(0, count, _BLOCK)):
                        total += len(starts)
                        if check:
                            for place, start in enumerate(starts.tolist()):
                                check(int(order[first + place]), data[start : start + _RECORD_BYTES])
                    return total

                result = _measured(count, read_all)
            storage.close()
        return result

    return measure


def _feed(shuffled: bool, moto: bool, web: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        _need(*(("moto",) if moto else ()), *(() if web else ("obstore",)))
        import penstock as ps

        shape = _shape(run, shuffled, moto)
        count = shape.count
        with tempfile.TemporaryDirectory() as cache, _served(shape, moto) as endpoint:
            os.environ["XDG_CACHE_HOME"] = cache  # where the index goes
            dataset = ps.read_tfrecord(ps.RemoteFiles(*_names_and_options(endpoint, web, shape)))
            if shuffled:
                dataset = dataset.shuffle(seed=7)

            def frames() -> Iterable[tuple[int, bytes]]:
                with dataset.feed() as feed:
                    for element in feed:
                        payload = element["record"]
                        yield int.from_bytes(payload[:8], "little"), payload

            def read_all(check: Callable[[int, Any], None] | None) -> int:
                total = 0
                for number, payload in frames():
                    total += 1
                    if check:
                        check(number, bytes(_HEADER_BYTES) + payload + bytes(_FOOTER_BYTES))
                return total

            return _measured(count, read_all)

    return measure


def _contestants() -> dict[str, Callable[[rounds.Run], dict[str, Any]]]:
    found: dict[str, Callable[[rounds.Run], dict[str, Any]]] = {}
    for end, shuffled in (("shuffled", True), ("ordered", False)):
        found[f"plain_{end}"] = _plain(shuffled, moto=False)
        found[f"penstock_s3_{end}"] = _spans(shuffled, moto=False, web=False)
        found[f"penstock_http_{end}"] = _spans(shuffled, moto=False, web=True)
        found[f"feed_s3_{end}"] = _feed(shuffled, moto=False, web=False)
        found[f"feed_http_{end}"] = _feed(shuffled, moto=False, web=True)
        found[f"moto_plain_{end}"] = _plain(shuffled, moto=True)
        found[f"moto_penstock_{end}"] = _spans(shuffled, moto=True, web=False)
        found[f"moto_feed_{end}"] = _feed(shuffled, moto=True, web=False)
    return found


_CONTESTANTS = _contestants()


def _reference(name: str) -> str:
    return f"{'moto_' if name.startswith('moto') else ''}plain_{name.rpartition('_')[2]}"


def _nothing(size: Size, root: Path) -> None:
    """The server makes the data."""


CLAIM = rounds.Claim(
    name="remote",
    title="100 kB records of an endpoint that answers 20 ms late, against obstore.get_range in 32 threads",
    unit="MB/s",
    prepare=_nothing,
    reference="",
    references={name: _reference(name) for name in _CONTESTANTS},
    targets=tuple(
        rounds.Target(contestant=name, metric="ratio", sense=">=", bound=0.9)
        for name in _CONTESTANTS
        if "plain" not in name and (not name.startswith("moto") or importlib.util.find_spec("moto"))
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, _CONTESTANTS)
