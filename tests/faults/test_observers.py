"""What only looks at a run: timelines, event files, reports, the doctor. Secrets, disks that fail or hang, cut files, two writers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from programs import python

import penstock as ps
from penstock._contracts.event import Event, Notice
from penstock.observe import tensorboard, trace
from penstock.packing import pack
from penstock.queues import FIFOQueue

SECRETS = ("hunter2", "AKIAIOSFODNN7EXAMPLE", "0123abcdef", "tok-5555")
URL = "s3://AKIAIOSFODNN7EXAMPLE:hunter2@bucket/x?X-Amz-Signature=0123abcdef"


@dataclass(frozen=True)
class Fetch:
    """An operator whose repr, and the error that it raises, have a secret."""

    url: str

    def __call__(self, number: int) -> int:
        if number % 10 == 3:
            raise OSError(f"GET {self.url} failed; sent: Authorization: Bearer tok-5555-6666")
        return number


def dataset() -> ps.Dataset:
    return ps.from_source(range(200)).map(Fetch(URL), on_error=ps.Retry(1, then=ps.Skip())).batch(8)


def files_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def check_clean(name: str, *texts: str | bytes) -> None:
    """Every text has something in it, and no secret."""
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode()
        assert data, name
        assert [secret for secret in SECRETS if secret.encode() in data] == [], name


def test_secrets_stand_in_no_timeline_curve_report_or_notice(tmp_path: Path) -> None:
    heard: list[Event] = []
    with dataset().feed(executor="threads", num_workers=2, listeners=[heard.append]) as feed:
        feed.trace(tmp_path / "feed.json")
        feed.observe(tensorboard=str(tmp_path / "logs"))
        assert sum(len(batch) for batch in feed) == 180
        check_clean("report", feed.report(), str(feed.stats()))
    timeline = (tmp_path / "feed.json").read_text()
    assert "[removed]" in timeline
    check_clean("timeline", timeline)
    check_clean("curves", *files_of(tmp_path / "logs"))
    check_clean("notices", "notices: ", *(event.text for event in heard if isinstance(event, Notice)))
    check_clean("explain", str(dataset().explain()), str(dataset()))


def test_the_name_of_a_queue_may_be_a_url_with_a_secret(tmp_path: Path) -> None:
    queue = FIFOQueue(3, name=URL)
    with trace(tmp_path / "queue.json", queue), tensorboard(queue, tmp_path / "logs"):
        queue.enqueue(1)
        queue.dequeue()
    check_clean("timeline", (tmp_path / "queue.json").read_text())
    check_clean("curves", *files_of(tmp_path / "logs"))


SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from faults.test_observers import dataset
for batch in dataset().feed():
    pass
"""


def test_the_doctor_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    arguments = ["train.py", "--token=tok-5555", "--password", "hunter2", "--source", URL, "--steps", "3"]
    done = python("-m", "penstock", "doctor", "--json", "figures.json", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check_clean("doctor", done.stdout + done.stderr, (tmp_path / "figures.json").read_text())
    assert json.loads((tmp_path / "figures.json").read_text())["script"] == [
        "train.py", "--token=[removed]", "--password", "[removed]", "--source", "s3://[removed]@bucket/x?[removed]", "--steps", "3",
    ]  # fmt: skip


def test_the_manifest_of_what_was_left_out_has_no_secret(tmp_path: Path) -> None:
    numbers = ps.from_source(range(40)).map(Fetch(URL)).map(lambda number: {"number": number})
    manifest = pack(numbers, tmp_path / "to", executor="threads", num_workers=1, on_error=ps.Skip())
    assert [lost["key"][0][1] for lost in manifest.skipped] == [3, 13, 23, 33]
    assert manifest.skipped[0]["text"].startswith("GET s3://[removed]@bucket/x?[removed] failed")
    check_clean("packed", *files_of(tmp_path))


# -- disks

WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "timeline": lambda target, folder: trace(folder / "t.json", target),
    "curves": tensorboard,
}


def replace_descriptor(writer: Any, descriptor: int) -> None:
    """Let what it writes from now on go elsewhere."""
    os.dup2(descriptor, writer._file._descriptor)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_one_warning_and_a_count_and_training_goes_on(tmp_path: Path, kind: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ps.from_source(range(400)).batch(4).feed(executor="threads", num_workers=1) as feed, FIFOQueue(3) as queue:
            queue.enqueue(1)
            writer = WRITERS[kind]([feed, queue], tmp_path)
            full = os.open("/dev/full", os.O_WRONLY)
            replace_descriptor(writer, full)
            os.close(full)
            assert len(list(feed)) == 100
            writer.close()
    assert not writer.is_alive
    (text,) = [str(one.message) for one in caught]
    assert "No space left" in text
    assert "training goes on" in text
    assert (writer.num_dropped if kind == "timeline" else writer.num_failed) > 0


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_that_is_removed_while_it_is_written_to_harms_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "run").mkdir()
    with ps.from_source(range(400)).batch(4).feed(executor="threads", num_workers=1) as feed:
        writer = WRITERS[kind](feed, tmp_path / "run")
        next(feed)
        shutil.rmtree(tmp_path / "run")
        assert len(list(feed)) == 99
        writer.close()
    assert not writer.is_alive
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", WRITERS)
def test_a_place_where_no_file_can_be_is_an_error_at_once_and_the_feed_can_be_used(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with ps.from_source(range(40)).batch(4).feed(executor="threads", num_workers=1) as feed:
        with pytest.raises(OSError, match="file"):
            WRITERS[kind](feed, tmp_path / "file")
        assert len(list(feed)) == 10
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_disk_that_hangs_does_not_hold_up_close(tmp_path: Path) -> None:
    queue = FIFOQueue(4)
    curves = tensorboard(queue, tmp_path)
    out, full = os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(1 << 16))
    os.set_blocking(full, True)
    replace_descriptor(curves, full)
    os.close(full)
    queue.enqueue(1)
    curves.close()  # waits for the thread for 2 s at most
    assert curves.is_alive
    reader = threading.Thread(target=drain, args=(out,))
    reader.start()
    reader.join()
    curves._ticker.join(60)
    assert not curves.is_alive


def drain(descriptor: int) -> None:
    while os.read(descriptor, 1 << 16):
        pass
    os.close(descriptor)


# -- cuts and two writers


def test_of_two_timelines_with_one_name_the_later_has_it_and_both_go_on(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    first, second = FIFOQueue(400, name="first"), FIFOQueue(400, name="second")
    with trace(path, first) as one:
        for number in range(300):
            first.enqueue(number)
        deadline = time.monotonic() + 60
        while path.stat().st_size < 10_000 and time.monotonic() < deadline:  # it has been written
            time.sleep(0.02)
        with trace(path, second):
            second.enqueue(1)
            first.dequeue()
    assert one.num_dropped == 0
    names = [record["name"] for record in json.loads(path.read_text()) if record["ph"] == "X"]
    assert names == ["enqueue second"]


@pytest.mark.parametrize("cut", [1, 2, 3, 40, 400])
def test_a_timeline_that_is_cut_has_all_whole_records_a_line_each(tmp_path: Path, cut: int) -> None:
    """Not by a kill, which leaves strict JSON; by a copy that broke off. Perfetto reads such a file, see tests/interop."""
    queue = FIFOQueue(400, name="numbers")
    with trace(tmp_path / "t.json", queue):
        for number in range(100):
            queue.enqueue(number)
    text = (tmp_path / "t.json").read_text()
    whole = json.loads(text)
    lines = text[:-cut].splitlines()[1:-1]  # without the bracket and the line that was cut
    assert [json.loads(line.rstrip(",")) for line in lines] == whole[: len(lines)]
    assert len(lines) >= len(whole) - 1 - cut // 40
