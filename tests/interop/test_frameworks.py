"""The pages and the example programs of PyTorch, JAX, Keras and TensorFlow, run as they stand, and the program for GPUs at toy size."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

MISSING = [
    name for name in ("torch", "jax", "keras", "albumentations", "orbax") if importlib.util.find_spec(name) is None
]  # imported in programs alone
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
BLOCKS = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
RUN_HERE = "; tests/interop runs it"
END = "<end of snippet>"


def run(folder: Path, *command: str, **environment: str) -> str:
    own = {"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=folder, timeout=110, check=False, env={**os.environ, **own}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def has_torchvision(folder: Path) -> bool:
    """Tell whether torchvision can be imported: a build for CUDA beside PyTorch for the CPU cannot."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, check=False, env=environment).returncode == 0


PAGES = ["pytorch", "jax", "tensorflow", "augmentations", "augmentations, torchvision", "index, torchvision", "why", "language-models"]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_a_snippet_prints_is_what_it_prints(page: str, tmp_path: Path) -> None:
    page, _, with_torchvision = page.partition(", ")
    if with_torchvision and not has_torchvision(tmp_path):
        pytest.skip("torchvision is not installed, or not for this PyTorch")
    blocks = BLOCKS.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    blocks = [(code, said) for code, said in blocks if not code.startswith("# no-run:") or code.splitlines()[0].endswith(RUN_HERE)]
    blocks = [block for block in blocks if with_torchvision or "it needs torchvision" not in block[0]]
    assert any(RUN_HERE in code for code, _ in blocks)
    program = "".join(f"{code}\nprint({END!r}, flush=True)\n" for code, _ in blocks)
    if page == "tensorflow":
        program = "import tensorflow as tf\n" + program
    if page == "why":
        program = "import absl.flags\nabsl.flags.FLAGS(['why'])\n" + program  # as absl.app.run does, for Grain
    printed = run(tmp_path, "-c", program).split(END + "\n")
    for (code, said), text in zip(blocks, printed, strict=False):
        pattern = said.replace("[", "[[]").replace("...", "*")
        assert not said or fnmatchcase(text, pattern), f"{code}\nprints\n{text}\nnot\n{said}"


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"jax_regression", "keras_fit", "torch_gpt", "torch_images", "torch_ranks"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(64):
        pixels = rng.integers(0, 128, (40, 48, 3), dtype=np.uint8)
        pixels[..., number % 3] += np.uint8(40 * (number % 4))
        folder = tmp_path / "images" / f"class{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels))
    return tmp_path / "images"


def test_the_image_classifier_killed_and_resumed_has_the_losses_of_a_run_that_was_not(images: Path, tmp_path: Path) -> None:
    program = str(EXAMPLES / "torch_images.py")
    whole = run(tmp_path, program, str(images), "--checkpoint", "whole.pt").splitlines()
    assert [line.partition(":")[0] for line in whole] == [f"step {number}" for number in range(1, 13)]
    command = [sys.executable, "-u", program, str(images), "--checkpoint", "killed.pt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().rstrip() for _ in range(6)] == whole[:6]
        process.kill()
    rest = run(tmp_path, program, str(images), "--checkpoint", "killed.pt").splitlines()
    assert rest == whole[len(whole) - len(rest) :]
    assert len(rest) <= 6, "it went on from its checkpoint"


def test_the_gpt_learns_from_packed_rows(tmp_path: Path) -> None:
    *losses, padding = run(tmp_path, str(EXAMPLES / "torch_gpt.py"), "--steps", "40").splitlines()
    figures = [float(line.rpartition(" ")[2]) for line in losses]
    assert figures[-1] < 0.9 * figures[0]
    assert float(padding.split()[0]) < 5


def test_the_jax_program_resumes_with_the_same_losses_on_several_devices(tmp_path: Path) -> None:
    out = run(tmp_path, str(EXAMPLES / "jax_regression.py"), XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert out.startswith("4 device(s), 40 steps: loss ")
    assert "resumed: the same losses: True" in out


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_keras_learns(backend: str, tmp_path: Path) -> None:
    out = run(tmp_path, str(EXAMPLES / "keras_fit.py"), KERAS_BACKEND=backend)
    assert re.fullmatch(rf"{backend}: 75 steps, accuracy (0\.[5-9]\d|1\.00), 120 predictions\n", out), out


def test_two_ranks_and_then_one_see_each_element_once(tmp_path: Path) -> None:
    out = run(tmp_path, str(EXAMPLES / "torch_ranks.py"))
    assert out.splitlines() == [
        "two ranks saw 40 elements in 5 steps, one of them the other 27",
        "each element once, in the global order: True",
    ]


def proof(folder: Path, *parts: str) -> dict[str, Any]:
    """Run parts of the program for GPUs at toy size."""
    program, result = str(ROOT / "benchmarks" / "gpu" / "proof.py"), folder / "gpu.json"
    run(folder, program, "--cpu", "--only", *parts, "--data", str(folder), "--out", str(result))
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    assert list(found["parts"]) == list(parts)
    assert {target["part"] for target in found["targets"]} == set(parts)
    assert {target["met"] for target in found["targets"]} == {None}, "a toy proves nothing"
    return found["parts"]


def test_the_program_for_gpus_measures_at_toy_size_without_one(tmp_path: Path) -> None:
    net, deep, alone = proof(tmp_path, "a", "b", "c").values()
    assert set(net) == {"ceiling", "inline", "queue", "staged", "direct", "processes"}
    assert set(deep) == {"ceiling", "feed", "threads 2", "processes 2", "dataloader 2", "ceiling again"}
    assert all(way["of_ceiling"] > 0 for way in [*net.values(), *deep.values()])
    assert alone["threads 1"]["times_one"] == alone["processes 1"]["times_one"] == 1
    assert {"next on the device", "38.5 MB, processes 2", "jax"} < set(alone)


def test_the_checks_of_values_for_gpus_are_right_without_one(tmp_path: Path) -> None:
    (values,) = proof(tmp_path, "d").values()
    assert values.pop("all") == {"wrong": 0}
    assert {"late_kernels", "kept_batches", "worker_processes", "padded", "resumed", "closed_early"} < set(values)
    assert all(check["right"] for check in values.values()), values
