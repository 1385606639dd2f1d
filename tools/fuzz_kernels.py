"""Run the C kernels under AddressSanitizer and UndefinedBehaviorSanitizer on random shapes, strides and edge sizes.

The C files are built once per level of vector instructions (plain C, AVX2, AVX-512) and each build is compared with the NumPy twins in a
child process. Every array is an allocation of its own and views reach up to its edges, so that one byte too far is seen. Before that a
call with a wrong size must be caught, which shows that the sanitizer is on.

    python tools/fuzz_kernels.py [seconds for each build]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fuzz_examples
import fuzz_framing
import fuzz_spans
import fuzz_stream
import fuzz_tar
import fuzz_text_kernels

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(map(str, (ROOT / "src" / "penstock" / "kernels").glob("*.c")))
FLAGS = [
    "-O2",
    "-g",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
LEVELS = {0: "plain C", 1: "up to AVX2", 2: "up to AVX-512"}
SEED = 20240607


def main(arguments: list[str]) -> int:
    """Build, prove that overruns are seen, fuzz; return the exit status."""
    if arguments[:1] == ["--child"]:
        return child(Path(arguments[1]), float(arguments[2]))
    seconds = float(arguments[0]) if arguments else 5.0
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        say("skipped: it needs Linux and a C compiler with AddressSanitizer")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for level, name in LEVELS.items():
            library = Path(folder) / f"kernels{level}.so"
            subprocess.run([compiler, *FLAGS, *SANITIZE, f"-DPENSTOCK_VECTORS={level}", *SOURCES, "-o", str(library)], check=True)
            proof = run_child(compiler, library, -1.0)
            if proof.returncode == 0 or "heap-buffer-overflow" not in proof.stderr:
                say(f"an overrun on purpose was not caught, so the sanitizer is not on:\n{proof.stdout}{proof.stderr}")
                return 1
            fuzzed = run_child(compiler, library, seconds)
            say(f"{name}: {fuzzed.stdout.strip() or 'failed'}")
            if fuzzed.returncode:
                say(fuzzed.stderr)
                return 1
    return 0


def run_child(compiler: str, library: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run this file again inside the sanitizer's runtime; a negative time asks for the overrun on purpose."""
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        # Python keeps memory until it exits: that is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, __file__, "--child", str(library), str(seconds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def child(path: Path, seconds: float) -> int:
    """Compare random calls with the twins until the time is over."""
    from penstock.kernels.library import load_library

    library = load_library(path)
    if library is None:
        say(f"{path} does not load")
        return 1
    if seconds < 0:
        library.write_images(np.zeros((1, 9, 9, 3), np.uint8), np.zeros(1, bool), None, None, False, [np.empty((9, 8, 3), np.uint8)])
        return 0
    rng = np.random.default_rng(SEED)
    num_calls, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for case in CASES:
            case(library, rng)
            num_calls += 1
    say(f"{num_calls} calls equal to the NumPy twins, no finding")
    return 0


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(text + "\n")


def same(left: NDArray[Any], right: NDArray[Any], about: object) -> None:
    """Stop where two arrays differ by a bit."""
    if left.tobytes() != right.tobytes():
        raise AssertionError(f"C and NumPy differ: {about}")


def side(rng: np.random.Generator) -> int:
    """Draw a size: mostly around those of vectors, sometimes larger than a piece of a row."""
    return int(rng.choice([0, 1, 2, *rng.integers(0, 70, 20), rng.integers(1000, 1500)]))


def random_view(rng: np.random.Generator, max_channels: int) -> NDArray[np.uint8]:
    """Make images in an allocation of their own, seen whole, mirrored, turned, thinned or cropped."""
    shape = (int(rng.integers(0, 3)), int(rng.integers(0, 6)), side(rng), int(rng.integers(1, max_channels + 1)))
    view = rng.integers(0, 256, shape, dtype=np.uint8)
    for axis in range(4):
        view = np.flip(view, axis) if rng.random() < 0.4 else view
    match rng.integers(0, 8):
        case 0:
            view = view.transpose(0, 2, 1, 3)
        case 1:
            view = view[:, :, :: int(rng.integers(2, 4))]
        case 2:
            view = view[:, 1:, int(rng.integers(0, 9)) :]
        case 3:
            view = view[..., : max(1, shape[3] - 1)]
        case 4:
            view = view[:, ::-2]
    return view


def permute(library: Any, rng: np.random.Generator) -> None:
    """Compare a permutation of a random range."""
    from penstock.kernels import checked

    num_elements = int(rng.integers(1, 2 ** int(rng.integers(1, 64)), dtype=np.uint64, endpoint=True))
    length, key = int(rng.integers(0, 200)), int(rng.integers(0, 2**64, dtype=np.uint64))
    positions = rng.integers(0, num_elements - 1, length, endpoint=True, dtype=np.int64)
    if length and rng.random() < 0.1:
        positions[rng.integers(0, length)] = rng.choice([-1, min(num_elements, 2**63 - 1), 2**63 - 1, -(2**63)])
    ours, other = np.zeros(length, np.int64), np.zeros(length, np.int64)
    row = library.permute(positions, num_elements, key, ours)
    if row != checked.permute_twin(positions, num_elements, key, other):
        raise AssertionError(f"C and NumPy name different rows: {row}, {num_elements}")
    if row < 0:
        same(ours, other, (num_elements, length, key))


def philox_uniform(library: Any, rng: np.random.Generator) -> None:
    """Compare uniform numbers."""
    from penstock.kernels import checked

    length, num_draws = int(rng.integers(0, 20)), int(rng.integers(0, 11))
    epochs, indices = rng.integers(-(2**63), 2**63 - 1, length), rng.integers(-(2**63), 2**63 - 1, length)
    lanes = rng.integers(0, 2**64, length, dtype=np.uint64)
    ours, other = np.empty((length, num_draws)), np.empty((length, num_draws))
    for version, out in ((library.philox_uniform, ours), (checked.philox_uniform_twin, other)):
        version(2**64 - 1, length, epochs, indices, lanes, out)
    same(ours, other, (length, num_draws))


def normalize(library: Any, rng: np.random.Generator) -> None:
    """Compare normalised images in both layouts."""
    from penstock.kernels import checked

    values = random_view(rng, 4)
    length, height, width, channels = values.shape
    scale, bias = np.asarray(rng.normal(0, 2, (2, channels)), np.float32)
    for channels_first in (True, False):
        shape = (length, channels, height, width) if channels_first else values.shape
        ours, other = np.empty(shape, np.float32), np.empty(shape, np.float32)
        library.normalize(values, scale, bias, ours, channels_first)
        checked.normalize_twin(values, scale, bias, other, channels_first)
        same(ours, other, (values.shape, values.strides, channels_first))


def crop_image(library: Any, rng: np.random.Generator) -> None:
    """Compare windows of one image of any dtype, whose rows lie apart or run upwards."""
    from penstock.kernels import checked

    dtype = np.dtype(rng.choice(["u1", "u2", "f4", "f8", "c16"]))
    height, width, channels, fill = int(rng.integers(1, 9)), side(rng) + 1, int(rng.integers(1, 6)), 0 if rng.random() < 0.5 else 77
    values = rng.integers(0, 256, (height, width, channels * dtype.itemsize), dtype=np.uint8).view(dtype)
    values = values[:: int(rng.choice([-1, 1, 2])), int(rng.integers(0, width)) :]
    shape = (int(rng.integers(1, 9)), side(rng) + 1, channels)
    ours, other = np.empty(shape, dtype), np.empty(shape, dtype)
    top, left, flip = int(rng.integers(-12, 12)), int(rng.integers(-width - 2, width + 2)), bool(rng.random() < 0.5)
    fill *= dtype.itemsize == 1
    how = checked.cropping(values.shape, values.strides, dtype, shape, dtype, flip, fill)
    library.crop_image(how, values, top, left, ours)
    checked.crop_image_twin(how or b"", values, top, left, other)
    same(ours, other, (dtype, values.shape, values.strides, shape, top, left, flip))


def write_images(library: Any, rng: np.random.Generator) -> None:
    """Compare images that are mirrored and normalised, or copied, each to its own place."""
    from penstock.kernels import checked

    values = np.ascontiguousarray(random_view(rng, 4))
    length, height, width, channels = values.shape
    flips = np.less(rng.random(length), 0.5)
    first, plain = bool(rng.random() < 0.5), rng.random() < 0.3
    scale, bias = (None, None) if plain else rng.normal(0, 3, (2, channels)).astype(np.float32)
    shape = (channels, height, width) if first and not plain else (height, width, channels)
    ours, others = (np.empty((length, *shape), np.uint8 if plain else np.float32) for _ in range(2))
    library.write_images(values, flips, scale, bias, first, list(ours))
    checked.write_images_twin(values, flips, scale, bias, first, list(others))
    same(ours, others, (values.shape, flips, first, plain))


def crop_images(library: Any, rng: np.random.Generator) -> None:
    """Compare windows inside, across and outside of images."""
    from penstock.kernels import checked

    length, height, width, channels = int(rng.integers(0, 4)), int(rng.integers(0, 9)), side(rng), int(rng.integers(0, 6))
    values = rng.integers(0, 256, (length, height, width, channels), dtype=np.uint8)
    tops, lefts = rng.integers(-12, 12, length), rng.integers(-width - 2, width + 2, length)
    if length and rng.random() < 0.1:
        tops[0], lefts[-1] = rng.choice([-(2**63), 2**63 - 1], 2)
    flips, fill = rng.integers(0, 2, length).astype(np.uint8), int(rng.integers(0, 256))
    shape = (length, int(rng.integers(0, 9)), side(rng), channels)
    ours, other = np.empty(shape, np.uint8), np.empty(shape, np.uint8)
    library.crop_images(values, tops, lefts, flips, fill, ours)
    checked.crop_images_twin(values, tops, lefts, flips, fill, other)
    same(ours, other, (values.shape, shape, tops, lefts, flips))


def deal(library: Any, rng: np.random.Generator) -> None:
    """Compare positions that go down a random tree, some of whose nodes lead nowhere."""
    from penstock.kernels import checked

    num_nodes, num_children, length = int(rng.integers(0, 40)), int(rng.integers(1, 40)), int(rng.integers(0, 200))
    shares = rng.integers(0, 2**63, num_nodes, dtype=np.uint64)
    sides = ~rng.integers(0, num_children, (num_nodes, 2))
    for node in range(1, num_nodes):
        sides[rng.integers(0, node), rng.integers(0, 2)] = node
    if num_nodes and rng.random() < 0.2:
        sides[-1, 0] = rng.choice([0, num_nodes, ~num_children, 2**63 - 1, -(2**63)])
    positions = rng.integers(0, 2**62) + (np.arange(length) if rng.random() < 0.5 else rng.integers(0, 2**62, length))
    if length and rng.random() < 0.1:
        positions[-1] = -1
    grouped, results = rng.random() < 0.5, []
    for version in (library.deal, checked.deal_twin):
        out, starts = np.zeros((4 if grouped else 2, length), np.int64), np.zeros(num_children + 1 if grouped else 0, np.int64)
        results.append((version(positions, shares, sides, num_children, out, starts), out, starts))
    (ours, out, starts), (other, *same_arrays) = results
    if ours != other:
        raise AssertionError(f"C and NumPy name different rows or nodes: {ours}, {other}, {sides.tolist()}")
    if ours == -1:
        same(out, same_arrays[0], (positions, shares, sides))
        same(starts, same_arrays[1], (positions, shares, sides))


def best_fit(library: Any, rng: np.random.Generator) -> None:
    """Compare rows of elements of few or many sizes, around the numbers of rooms that fill a word of bits, and of words that fill one."""
    from penstock.kernels import checked

    capacity = max(1, int(rng.choice([1, 62, 4096, 2**18, 2**20, 2**24 - 4])) + int(rng.integers(-3, 4)))
    length = int(rng.integers(0, 300))
    sizes = rng.integers(1, int(rng.choice([capacity, -(-capacity // 7), min(capacity, 3)])), length, endpoint=True)
    if length and rng.random() < 0.3:
        sizes[rng.integers(0, length)] = rng.choice([capacity, capacity, 0, capacity + 1, -1, 2**63 - 1, -(2**63)])
    ours, other = np.zeros(length, np.int64), np.zeros(length, np.int64)
    row = library.best_fit(sizes, capacity, ours)
    if row != checked.best_fit_twin(sizes, capacity, other):
        raise AssertionError(f"C and NumPy name different elements: {row}, {capacity}")
    if row < 0:
        same(ours, other, (capacity, sizes.tolist()))


CASES: list[Callable[[Any, np.random.Generator], None]] = [
    permute,
    philox_uniform,
    normalize,
    crop_image,
    write_images,
    crop_images,
    deal,
    best_fit,
    fuzz_examples.parse_examples,
    *fuzz_framing.CASES,
    *fuzz_spans.CASES,
    *fuzz_stream.CASES,
    *fuzz_tar.CASES,
    *fuzz_text_kernels.CASES,
]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
