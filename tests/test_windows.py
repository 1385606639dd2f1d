"""What works on Windows, run here without whatever Windows lacks; and the errors of what does not. See `as_on_windows.py`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import python

pytestmark = pytest.mark.slow  # `make check` has mypy, whose stubs tell what Windows has
ROOT = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("as_on_windows.py")
KERNELS = ROOT / "src/penstock/kernels"
FEW = ("_workers/test_inline.py", "kernels/test_spans.py", "sources/test_arrays.py", "sources/test_tokens.py")
FAST = (
    "_workers/test_inline.py", "_storage/test_publish.py", "image/test_operator.py", "queues/test_exchange.py", "sources/test_arrays.py",
    "sources/test_folder.py", "sources/test_jsonl.py", "sources/test_parquet.py", "sources/test_tar.py", "sources/test_tfrecord.py",
    "sources/test_tokens.py",
)  # fmt: skip
ALL = (
    "_workers/test_inline.py", "_workers/test_threads.py", "_storage/test_opening.py", "_storage/test_publish.py", "image",
    "queues", "sources", "feed/test_feed.py",
)  # fmt: skip
ON_PURPOSE = {
    # Free memory is not known.
    "queues/test_base.py::test_a_queue_that_full_takes_more_than_half_of_the_free_memory_warns_at_the_first_element",
    # Asks /proc for maps.
    "sources/test_catalogue.py::test_few_files_with_many_records_share_a_mapped_catalogue",
    # A folder cannot be opened.
    "sources/test_listfile.py::test_a_list_that_cannot_be_read_is_an_error_that_names_it",
    "sources/test_reading.py::test_read_ends_gives_size_and_both_ends_and_a_reason_for_what_cannot_be_read",
    # Hides posix_fadvise, which is not there.
    "sources/test_whole_files.py::test_a_system_without_the_call_reads_as_ever",
    # Look into functions of the C library that read nothing there.
    "sources/test_examples.py::test_a_block_of_good_records_takes_one_call",
    "sources/test_whole_files.py::test_a_block_that_stops_at_a_file_reads_that_one_and_the_next_again",
    "sources/test_whole_files.py::test_files_that_do_not_fit_together_are_read_one_by_one",
    "sources/test_whole_files.py::test_the_kernel_ends_behind_the_file_with_which_its_time_is_over",
    "sources/test_whole_files.py::test_what_was_read_ahead_is_given_to_the_next_row_of_its_block_alone",
    # Asks the program `tar`.
    "sources/test_tar.py::test_names_are_data_and_nothing_is_written_but_the_index",
}
"""Tests of what Windows does not have or does in another way, beside those that the program finds by themselves."""

ASKED = """
import time
import numpy as np
import penstock as ps
from penstock._contracts.storage import StorageOptions
from penstock._storage.cache import BlockCache
from penstock.errors import PlanError
from penstock.enqueuer import GeneratorEnqueuer
from penstock.packing import pack

def double(x):
    return 2 * x

dataset = ps.from_source(range(6)).map(double).batch(3)
for options in ({}, {"num_workers": 2}, {"num_workers": 0}, {"executor": "threads"}):
    with dataset.feed(**options) as feed:
        print([batch.tolist() for batch in feed])
        print(*[line.strip() for line in str(feed.report()).splitlines() if line.startswith("  notice:")])
with ps.from_source(range(60)).map(lambda number: time.sleep(0.005) or number).batch(3).feed() as feed:
    list(feed)
    print("runs it in" in feed.report(), feed.stats().no_processes)
print(ps.parallel_jobs(double, [1, 2], executor="threads"), ps.parallel_jobs(double, [1, 2], 0))
print(*[line.strip() for line in str(dataset.explain()).splitlines() if "stage" in line])
apart = ps.from_source(range(6)).map(double, executor="processes", concurrency=2).batch(3)
for call in (
    lambda: list(dataset.feed(executor="processes")),
    lambda: list(apart.feed()),
    lambda: ps.parallel_jobs(double, [1, 2]),
    lambda: ps.parallel_jobs(double, [1, 2], executor="threads", done="done"),
    lambda: GeneratorEnqueuer(lambda: iter(range(3)), use_multiprocessing=True).start(2),
    lambda: pack(dataset, "packed", executor="threads"),
    lambda: BlockCache(StorageOptions(cache_dir="cache")),
    lambda: dataset.feed(on_stall="skip"),
):
    try:
        call()
    except PlanError as error:
        print(error)
"""

SAID = """\
[[0, 2, 4], [6, 8, 10]]
notice: 'double': called in this program, one call at a time, and not in worker processes: they need Linux or macOS, and this is Windows; in WSL they run
[[0, 2, 4], [6, 8, 10]]
notice: 'double': called in this program, one call at a time, and not in worker processes: they need Linux or macOS, and this is Windows; in WSL they run
[[0, 2, 4], [6, 8, 10]]

[[0, 2, 4], [6, 8, 10]]

False they need Linux or macOS, and this is Windows; in WSL they run
[2, 4] [2, 4]
stage 'read+double' on one thread of this program, one call at a time
no worker processes can be started: they need Linux or macOS, and this is Windows; in WSL they run
  where: executor="processes"
  fix:   give executor="threads"
no worker processes can be started: they need Linux or macOS, and this is Windows; in WSL they run
  where: executor="processes"
  fix:   give executor="threads"
parallel_jobs(executor="processes") needs Linux or macOS, and this is Windows
  where: parallel_jobs(executor="processes")
  fix:   give executor="threads", or run the program in WSL
parallel_jobs(done=...) needs Linux or macOS, and this is Windows
  where: parallel_jobs(done=...)
  fix:   leave it out, or run the program in WSL
use_multiprocessing=True needs Linux or macOS, and this is Windows
  where: use_multiprocessing=True
  fix:   leave it out, or run the program in WSL
pack() needs Linux or macOS, and this is Windows
  where: pack()
  fix:   pack on another machine, whose files this one can read, or run the program in WSL
cache_dir= needs Linux or macOS, and this is Windows
  where: cache_dir=
  fix:   leave it out, or run the program in WSL
on_stall="skip" needs Linux or macOS, and this is Windows
  where: on_stall="skip"
  fix:   give "raise" or "warn", or run the program in WSL
"""  # noqa: E501


def run(folder: Path, *arguments: object, limit_s: float = 60) -> str:
    """Run the program; return what it wrote."""
    done = python(PROGRAM, *arguments, cwd=folder, timeout_s=limit_s, PYTHONPATH=str(ROOT / "src"), PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def passed(folder: Path, names: tuple[str, ...], *before: str, limit_s: float) -> int:
    """Run tests there; return how many passed."""
    left_out = [word for name in ON_PURPOSE for word in ("--deselect", f"tests/{name}")]
    options = ["-q", "--timeout=0", "--timeout-method=thread", "-p", "no:cacheprovider", "--hypothesis-profile=quick", "-m", "not slow"]
    said = run(
        ROOT,
        *before,
        "pytest",
        *options,
        f"--basetemp={folder / 'tests'}",
        *left_out,
        *(f"tests/{name}" for name in names),
        limit_s=limit_s,
    )
    found = re.search(r"(\d+) passed", said)
    return int(found[1]) if found else 0


def test_a_default_feed_works_and_what_needs_processes_or_locks_says_so(tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text(ASKED)
    assert run(tmp_path, "asked.py") == SAID
    assert [path.name for path in tmp_path.iterdir()] == ["asked.py"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the C library as it is on Windows, where nothing in it reads a file."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("library") / "library.so"
    flags = [
        "-D_WIN32",
        '-D__declspec(x)=__attribute__((visibility("default")))',
        "-U__linux__",
        "-U__APPLE__",
        "-shared",
        "-fPIC",
        "-O1",
        "-std=c11",
        "-ffp-contract=off",
        "-fvisibility=hidden",
        "-w",
    ]
    subprocess.run([compiler, *flags, "-o", str(path), *map(str, sorted(KERNELS.glob("*.c")))], check=True)
    return f"--library={path}"


def test_arrays_token_files_and_spans_of_files_are_read_without_the_c_library(tmp_path: Path) -> None:
    assert passed(tmp_path, FEW, limit_s=100) > 70


def test_local_files_threads_and_queues_work_with_a_c_library_as_it_is_on_windows(tmp_path: Path, library: str) -> None:
    assert passed(tmp_path, FAST, library, limit_s=110) > 300


@pytest.mark.timeout(500)
def test_all_sources_queues_and_image_operators_work(tmp_path: Path, library: str) -> None:
    assert passed(tmp_path, ALL, library, limit_s=480) > 1500
