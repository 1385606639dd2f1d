"""Numbers of elements, and jobs that are killed while they measure, in a process of their own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.dataset import measuring
from penstock.sources.measures import Column, Measures

COUNT = 300


def tripled(element: int) -> int:
    return element * 3


def is_even(element: int) -> np.bool_:
    return np.bool_(element % 2 == 0)


def is_even_or_number(element: int) -> int | bool:
    return element if element == 20 else element % 2 == 0


def bad_tens(element: int) -> int:
    if element % 10 == 0:
        raise ValueError(f"{element} is bad")
    return element + 1


def values(column: Column | None) -> list[int]:
    assert column is not None
    return [int(value) for value in column.gather_columns(np.arange(len(column)), None)[0]]


def numbers(count: int = COUNT) -> ps.Dataset:
    return ps.from_source(range(count))


def inline(
    folder: str | Path, ds: ps.Dataset | None = None, functions: dict[str, Any] | None = None, *, chunk_size: int = 64, **options: Any
) -> Measures:
    """Measure in chunks of a few elements, by default in the caller's thread."""
    measuring.CHUNK_SIZE, before = chunk_size, measuring.CHUNK_SIZE
    try:
        return measuring.measure(numbers() if ds is None else ds, folder, functions or {"length": tripled}, **{"num_workers": 0, **options})
    finally:
        measuring.CHUNK_SIZE = before


def noting(element: int, calls: str) -> int:
    """Note the call in a file; kill the job whose process a file names at an element that it names, once."""
    with open(calls, "ab", buffering=0) as file:
        file.write(f"{element}\n".encode())
    orders = Path(f"{calls}.orders")
    if orders.exists():
        job, dies_at = map(int, orders.read_text().split())
        if element == dies_at:
            orders.unlink()
            os.kill(job, signal.SIGKILL)
            threading.Event().wait()
    return element * 3


def life(folder: str, calls: str, dies_at: int, options: dict[str, Any]) -> None:
    """Measure, and be killed at an element."""
    Path(f"{calls}.orders").write_text(f"{os.getpid()} {dies_at}")
    inline(folder, functions={"length": partial(noting, calls=calls)}, **options)


def meeting(element: int, calls: str) -> int:
    """Note the call in a file of this job, and wait until the file `calls` is there: until then other jobs may come and begin."""
    with open(f"{calls}.{os.getpid()}", "ab", buffering=0) as file:
        file.write(f"{element}\n".encode())
    wait_for(lambda: Path(calls).exists())
    return element * 3


def wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(6000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise TimeoutError("it has not come within a minute")


def sharing(folder: str, calls: str) -> None:
    """Measure in a process that is one of several."""
    inline(folder, functions={"length": partial(meeting, calls=calls)})


def number_in(element: dict[str, Any], calls: str | None = None) -> int:
    """Return the number that a text or a file is, which fails for 13; note the call if it is said."""
    value = int(element["text"] if "text" in element else element["data"])
    if calls is not None:
        with open(calls, "ab", buffering=0) as file:
            file.write(f"{value}\n".encode())
    if value == 13:
        raise ValueError(value)
    return value


def is_large(element: dict[str, Any]) -> bool:
    return number_in(element) > 20


def updated(folder: Path, ds: ps.Dataset, functions: dict[str, Any] | None = None) -> Measures:
    return inline(
        folder / "out", ds, functions or {"n": number_in, "large": is_large}, chunk_size=8, update=True, on_error=ps.Skip(), version="1"
    )


def life_of_names(folder: str, at: int, measures: Callable[[], object] | None = None) -> None:
    """Measure, and be killed when the file number `at` is about to get its name."""
    given, count = os.rename, 0

    def replace(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        given(source, target)

    os.replace = os.rename = replace  # type: ignore[assignment]
    if measures is None:
        inline(folder, numbers(20), {"length": tripled, "even": is_even}, chunk_size=8)
    else:
        measures()


def noted(calls: str | Path) -> list[int]:
    """Return the elements that were measured since the last call, sorted."""
    found = sorted(map(int, Path(calls).read_text().split()))
    Path(calls).unlink()
    return found


def texts_here() -> ps.Dataset:
    return ps.read_text("*.txt")
