"""Runs in a memory cgroup of 512 MB: a warning comes before the kernel kills, and none without need; page faults from a real disk."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from faults.cgroups import memory_group, run_in
from observe.test_curves import points_of

LIMIT = 512 << 20
PAGES = 10240

DECODE = """
import sys, threading
import numpy as np
import penstock as ps

def decode(number):
    return np.full(1 << 20, number % 256, np.uint8)

elements = ps.from_source(range(100_000)).map(decode)
"""

KEEPS = """
with elements.batch(16).feed(executor="threads", num_workers=2) as feed:
    kept = [batch for batch in feed]
"""

TOO_MUCH_AHEAD = """
with elements.batch(96).feed(executor="threads", num_workers=2, memory_bytes=4 << 30) as feed:
    next(feed)
    threading.Event().wait()
"""

LARGE_WINDOW = """
kept = elements.filter(lambda element: True).shuffle(2000, seed=1).batch(4)
with kept.feed(executor="threads", num_workers=2, memory_bytes=4 << 30) as feed:
    for batch in feed:
        pass
"""

LEAKS = """
leaked = []

def leaking(element):
    leaked.append(element.copy())
    return element[:1000]

with elements.map(leaking, name="leaking").batch(4).feed(executor="threads", num_workers=2) as feed:
    for batch in feed:
        pass
"""

QUEUE = """
queue = ps.queues.FIFOQueue(100_000, name="images")

def fill():
    number = 0
    while True:
        queue.enqueue(decode(number))
        number += 1

threading.Thread(target=fill, daemon=True).start()
with ps.from_source(range(100_000_000)).batch(4).feed(executor="threads", num_workers=1) as feed:
    for batch in feed:
        pass
"""


@pytest.mark.parametrize(
    ("program", "largest", "change"),
    [
        pytest.param(KEEPS, "the training loop keeps ", "drop batches that are done with", id="the loop keeps batches"),
        pytest.param(
            TOO_MUCH_AHEAD,
            "batch buffers, which stage 'read+decode' fills",
            "lower memory_bytes, now 4,295 MB",
            id="read ahead",
            marks=pytest.mark.slow,
        ),
        pytest.param(LARGE_WINDOW, "elements of stage 'read+decode", "lower memory_bytes", id="a shuffle buffer", marks=pytest.mark.slow),
        pytest.param(
            LEAKS,
            "the functions up to stage 'read+decode+leaking'",
            "look at what they keep",
            id="a function keeps elements",
            marks=pytest.mark.slow,
        ),
        pytest.param(QUEUE, "queue 'images' takes ", "lower its capacity", id="a queue"),
    ],
)
def test_a_warning_with_the_stage_comes_before_the_kernel_kills(program: str, largest: str, change: str) -> None:
    with memory_group(LIMIT) as group:
        done = run_in(group, DECODE + program)
    assert done.returncode == -signal.SIGKILL
    (text,) = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line and "cgroup" in line]
    assert "of the 537 MB that the cgroup of this process allows are in use, and at the limit the kernel kills it" in text
    assert text.partition(" MB: ")[2].startswith(largest)
    assert f"To change: {change}" in text


HEALTHY = """
import json, warnings
warnings.simplefilter("error")
with elements.take(800).batch(16).feed(executor="threads", num_workers=2, memory_bytes=100 << 20) as feed:
    for batch in feed:
        pass
    memory = feed.stats().memory
print(json.dumps([memory.limit_bytes, memory.limit_used_bytes, memory.process_bytes]))
"""


def test_a_run_that_stays_below_the_limit_has_no_warning_and_tells_the_limit() -> None:
    with memory_group(LIMIT) as group:
        done = run_in(group, DECODE + HEALTHY)
    assert done.stderr == ""
    limit, used, process = json.loads(done.stdout)
    assert limit == LIMIT
    assert 0.5 * process < used < 0.8 * limit


FAULTS = """
import json, mmap, sys
import numpy as np
import penstock as ps

file = open(sys.argv[1], "rb")
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)  # else one fault reads many pages

def read(number):
    return np.frombuffer(pages, np.uint8, 64, 4096 * number).copy()

with ps.from_source(range(len(pages) // 4096)).shuffle(seed=1).map(read).batch(64).feed(executor="threads", num_workers=2) as feed:
    curves = feed.observe(tensorboard=sys.argv[2])
    for epoch in range(2):
        for batch in feed:
            pass
    print(json.dumps([feed.stats().memory.num_major_faults, str(curves.path)]))
"""


def test_page_faults_from_a_disk_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "pages"
    with file.open("wb") as out:
        out.write(os.urandom(PAGES * 4096))
        out.flush()
        os.fsync(out.fileno())
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what this process has cached would be found there
    with memory_group(64 << 20) as group:
        done = run_in(group, FAULTS, str(file), str(tmp_path))
    assert done.stderr == ""
    num_faults, curves = json.loads(done.stdout)
    assert PAGES < num_faults < 10 * PAGES  # of the second epoch too: the cgroup has no room for what the first one read
    points = points_of(Path(curves))[1]
    assert sum(values["process/major_page_faults"] for _, values in points) == pytest.approx(num_faults, rel=0.1)
    assert all(0.0 < values["cgroup/used_fraction"] <= 1.0 for _, values in points)
