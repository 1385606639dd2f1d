"""What every test gets: a leak audit around it, a temporary folder of the run's own, and the Hypothesis profiles."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings

from penstock.testing.leaks import held, left_behind

# The default gives the same examples in every run, so that a red run can be repeated by typing the same again;
# `pytest --hypothesis-profile=thorough` looks further and differs each time.
settings.register_profile("default", deadline=None, derandomize=True, database=None, max_examples=60)
# `make test` on each Python: a third of the examples, the same ones in every run.
settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=20)
settings.register_profile("thorough", deadline=None, print_blob=True, database=None, max_examples=1000)
settings.load_profile("default")

GRACE_S = 2.0
"""DESIGN section 5, point 7: close() returns within two seconds, so nothing may be left two seconds after a test."""

_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Point the temporary files of this run, child processes included, to a folder that nobody else writes to."""
    if hasattr(config, "workerinput"):  # `make coverage` measures the processes of the tests, not the thousands that they start
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest's own tmp_path stays where it was
    folder = tempfile.mkdtemp(prefix="penstock-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cells`, which `make test` gives; `make check` runs all of them."""
    parser.addoption("--cells", type=int, help="of each parametrized test run so many cells, spread over all of them")


@pytest.hookimpl(trylast=True)  # behind `-m` and `-k`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--cells` does not ask for."""
    most = config.option.cells
    if most is None:
        return
    cells: dict[str, list[pytest.Item]] = {}
    for item in items:
        cells.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {each[number * len(each) // most] for each in cells.values() for number in range(most)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """Take what is there before the first test out of the garbage collector's sight: an audit that collects then takes 2 ms, not 200."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> None:
    """Start Python's fork server before an audit looks: with its resource tracker it lives as long as the run.

    For all tests: a feed with executor="auto" may try worker processes in any.
    """
    if sys.platform == "win32":
        return
    multiprocessing.set_forkserver_preload(
        ["pytest", "hypothesis", "asyncio", "numpy", "penstock", "penstock._workers.child", "penstock._workers.remote"]
    )
    # Its socket stands in a folder that Python removes at exit, after the folder of this run is gone.
    own, tempfile.tempdir = tempfile.tempdir, os.environ["PYTEST_DEBUG_TEMPROOT"]
    try:
        child = multiprocessing.get_context("forkserver").Process(target=os.getpid)
        child.start()
        child.join()
        child.close()
    finally:
        tempfile.tempdir = own


@pytest.fixture(scope="session")
def obstore_started() -> None:
    """Let obstore start its threads and open its descriptors before an audit looks: they live as long as the process.

    For tests that read s3:// or gs://: `pytestmark = pytest.mark.usefixtures("obstore_started")`.
    """
    obstore = pytest.importorskip("obstore", reason="the extra cloud is not installed")
    store = obstore.store.S3Store(
        "none", endpoint="http://127.0.0.1:1", region="none", skip_signature=True,
        client_options={"allow_http": True}, retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
    )  # fmt: skip

    async def fail() -> None:
        with pytest.raises(obstore.exceptions.BaseError):
            await obstore.get_async(store, "none")

    asyncio.run(fail())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Remember whether a test failed: its traceback then keeps its locals alive, so an audit would say nothing."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def leak_audit(request: pytest.FixtureRequest) -> Any:
    """Fail a test that leaves a thread, process, descriptor, shared memory or temporary file behind."""
    folder = tempfile.gettempdir()
    before = held(folder)
    yield
    if request.node.stash.get(_FAILED, False):
        return
    leaks = left_behind(before, GRACE_S, folder)
    if leaks:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture
def nervous() -> Iterator[None]:
    """Let threads change places after every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Let garbage lie: what is free then was not in a cycle, and no finaliser or callback of the collector runs anywhere."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
