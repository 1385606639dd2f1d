"""The classic programs of TensorFlow's and Keras's input pipelines, run as a user would, with what they print."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from programs import output_of, python

CLASSIC = Path(__file__).parents[2] / "examples" / "classic"
PAGE = (CLASSIC.parents[1] / "docs" / "classic.md").read_text(encoding="utf-8")
EXPECTED = {
    "fifo_by_hand.py",
    "four_reads.py",
    "exercise.py",
    "queue_runner.py",
    "two_layer_net.py",
    "nets.py",
    "file_list_reader.py",
    "generator_enqueuer.py",
    "pool_split.py",
}


def run_to_the_end(example: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-W", "error", CLASSIC / example, *arguments)


def run(example: str, *arguments: object) -> list[str]:
    return output_of("-W", "error", CLASSIC / example, *arguments).splitlines()


def test_every_program_is_run_here_says_what_it_shows_and_stays_short() -> None:
    assert {path.name for path in CLASSIC.glob("*.py")} == EXPECTED
    for name in EXPECTED:
        lines = (CLASSIC / name).read_text().splitlines()
        assert len(lines) < 80
        assert lines[0].startswith('"""')
        assert name == "nets.py" or "Shows: " in "\n".join(lines[:8])


def test_a_queue_by_hand_ends_with_an_error_where_the_original_hung() -> None:
    lines = run("fifo_by_hand.py")
    assert lines[:6] == [
        "3 of 3 elements are in the queue",
        "took 0.1, put back 1.1",
        "took 0.2, put back 1.2",
        "took 0.3, put back 1.3",
        "took 1.1, put back 2.1",
        "in the end: 1.2, 1.3, 2.1",
    ]
    assert lines[6].startswith(
        "the read of the empty queue: QueueStarved: only the thread that reads FIFOQueue 'by_hand' (made at fifo_by_hand.py:14) has ever"
    )


def test_the_second_program_as_it_was_ends_with_an_error_at_its_fourth_read() -> None:
    done = run_to_the_end("four_reads.py")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "y = 1.1, elements left: 2",
        "y = 1.2, elements left: 1",
        "y = 1.3, elements left: 0",
    ]
    starved, where, fix = done.stderr.splitlines()[-3:]
    assert starved == (
        "penstock.errors.QueueStarved: only the thread that reads FIFOQueue 'q' (made at four_reads.py:13) has ever added to it, "
        "so dequeue() at four_reads.py:16 would wait for ever: add from another thread, or close() it before the last read"
    )
    assert where == "  where: FIFOQueue 'q', 0 of 3 elements in it"
    assert fix == "  fix:   with dequeue(timeout_s=...) it waits all the same, and raises QueueTimeout"


def test_the_exercise_as_it_was_tells_what_was_so_when_it_looked() -> None:
    (line,) = run("exercise.py")
    told = re.fullmatch(r"behind the tenth read: (\d) ended, (\d) begun, (\d) left", line)
    assert told is not None
    # The first is usual. In the others the producer's thread got to work between the ninth read and the print.
    assert tuple(map(int, told.groups())) in [(1, 2, 2), (2, 2, 2), (2, 3, 2), (2, 3, 3)]
    assert "$ python examples/classic/exercise.py\nbehind the tenth read: 1 ended, 2 begun, 2 left\n" in PAGE


def test_the_producer_of_six_values_has_begun_three_times_by_the_tenth_read() -> None:
    assert run("queue_runner.py") == [
        "read: 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.1, 0.2, 0.3, 0.4",
        "the producer ran 2 times to its end, and has begun to run 3 times",
        "ended: 0 threads are alive, the queue is closed: True",
    ]


FRAMEWORKS = [
    "numpy",
    pytest.param(
        "torch", marks=pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: only NumPy is tried")
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_net_ends_the_same_without_and_with_a_queue(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # PyTorch makes this folder, beside all others unless it is told where
    lines = run("two_layer_net.py", "--steps", 40, "--framework", framework)
    results = [re.fullmatch(pattern, line) for pattern, line in zip(OF_THE_NET, lines, strict=False)]
    assert all(results), lines
    accuracies = {float(result[1]) for result in results[:2] if result is not None}
    assert len(accuracies) == 1
    assert accuracies.pop() > 0.7  # it learns: by chance it would be 0.5
    assert len(lines) == 3 or on_a_stand_in(lines[3:])
    assert framework == "torch" or len(lines) == 7


NAMED = r"(?:without a queue|through a queue)"
FASTER = r"through a queue it takes \d+\.\d\d of the time; "
OF_THE_NET = [
    *[NAMED + r" +\d+\.\d\d s, +\d+\.\d % of it waiting for batches, accuracy (0\.\d{4}|1\.0000)"] * 2,
    FASTER + "same accuracy: True",
]
OF_THE_STAND_IN = [
    r"a stand-in for a GPU: a step takes \d+\.\d\d ms and no CPU, making a batch twice as long",
    *[NAMED + r" +\d+\.\d\d s, device busy for \d+ % of it"] * 2,
    FASTER + "same batches: True",
]


def on_a_stand_in(lines: list[str]) -> bool:
    return len(lines) == 4 and all(map(re.fullmatch, OF_THE_STAND_IN, lines))


def test_the_page_shows_what_the_net_prints_in_a_run_of_its_own() -> None:
    lines = PAGE.partition("$ python examples/classic/two_layer_net.py --steps 500\n")[2].partition("```")[0].splitlines()
    assert all(map(re.fullmatch, OF_THE_NET, lines[:3])), lines
    assert on_a_stand_in(lines[3:])


def test_the_reader_of_a_list_gives_each_image_once_an_epoch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        pixels = np.full((24 + number % 3, 32, 3), (200, 100, 50), np.uint8) - rng.integers(0, 3, (1, 1, 3), dtype=np.uint8)
        (tmp_path / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels))
    (tmp_path / "train.txt").write_text("".join(f"{number}.jpg {number % 4}\n" for number in range(40)))
    spec, *steps, end = run("file_list_reader.py", tmp_path / "train.txt", "--epochs", 2)
    assert spec == "{'image': float32[16, 224, 224, 3], 'label': float32[16, 4]}"
    assert [re.sub(r"mean -?\d+\.\d", "mean", line) for line in steps] == [
        f"step {step}: images ({16 if step % 3 else 8}, 224, 224, 3), mean" for step in range(1, 7)
    ]
    means = [float(line.rsplit(" ", 1)[1]) for line in steps]
    centre = np.mean([200, 100, 50]) - np.mean([123.68, 116.779, 103.938])
    assert means == pytest.approx([centre - 1] * 6, abs=2)
    assert end == "images per class: 0: 20, 1: 20, 2: 20, 3: 20"


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_an_error_of_a_generator_is_raised_behind_the_batches_before_it(processes: bool) -> None:
    assert run("generator_enqueuer.py", *(["--processes"] if processes else [])) == [
        "1152 samples came before: ValueError: sample 1157 cannot be read",
        "running: False",
    ]


def test_a_list_of_jobs_is_done_once_and_in_order(tmp_path: Path) -> None:
    counts, last, again = run("pool_split.py", tmp_path / "done.jsonl")
    assert counts == "103 results, in order: True"
    assert last.startswith("the last one: (102, ")
    assert again == "read from the done-list: True"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments"),
    [("fifo_by_hand.py", ()), ("queue_runner.py", ()), ("generator_enqueuer.py", ("--processes",)), ("pool_split.py", ("done.jsonl",))],
)
def test_the_page_shows_what_a_program_prints(
    program: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = " ".join(["$ python", f"examples/classic/{program}", *arguments])
    assert "\n".join([call, *run(program, *arguments)]) + "\n" in PAGE
