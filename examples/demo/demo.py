"""Trains the same model twice on real photographs, without workers and through Penstock, and compares.

`make demo` runs it; `.venv/bin/python examples/demo/demo.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
import photographs
from model import PatchNet
from penstock._system.memory import available_cpus
from penstock._system.text import size_words
from penstock.cli.screen import Screen, percent, seconds
from penstock.errors import PenstockError
from penstock.observe.diagnose import judge
from timeline import draw, require_matplotlib
from trial import Batch, InLine, ThroughPenstock, Trial, digest_of, run_trial

_SIDE = 96
_MEAN, _STD = (0.45, 0.43, 0.40), (0.25, 0.25, 0.25)
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run, and where to leave it."""

    out: Path
    photos: Path | None
    num_train: int
    num_test: int
    epochs: int
    batch_size: int
    num_workers: int
    device_steps: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo with these arguments; return 0, 1 after an error, 130 after Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        return run(settings_from(arguments))
    except KeyboardInterrupt:
        print("\ndemo: stopped by Ctrl-C", file=sys.stderr)
        return 130
    except (PenstockError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="examples/demo/demo.py",
        description="Train a small model on crops of real photographs, first without workers, then through Penstock; compare and explain.",
    )
    parser.add_argument("--out", default="demo-out", metavar="DIR", help="where the crops and the picture go (default: %(default)s)")
    parser.add_argument("--photos", metavar="DIR", help="cut the crops from your own photographs in DIR, one class per file")
    parser.add_argument("--images", type=_positive, metavar="N", help="training crops (default: 3000, with --quick 400)")
    parser.add_argument("--epochs", type=_positive, metavar="E", help="passes over the training crops (default: 4, with --quick 1)")
    parser.add_argument("--batch", type=_positive, default=64, metavar="B", help="elements per step (default: %(default)s)")
    parser.add_argument("--workers", type=_positive, metavar="N", help="threads of Penstock (default: one per CPU)")
    parser.add_argument("--quick", action="store_true", help="a small run of a few seconds")
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return number


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that these command-line arguments ask for."""
    num_train = arguments.images or (400 if arguments.quick else 3000)
    return Settings(
        out=Path(arguments.out),
        photos=None if arguments.photos is None else Path(arguments.photos),
        num_train=num_train,
        num_test=max(20, num_train // 8),
        epochs=arguments.epochs or (1 if arguments.quick else 4),
        batch_size=min(arguments.batch, num_train),
        num_workers=arguments.workers or available_cpus(),
        device_steps=40 if arguments.quick else 120,
    )


def run(settings: Settings) -> int:
    """Run the demo and print what it finds. Returns 0, or 1 when the two ways of reading did not train the same weights."""
    screen = Screen(sys.stdout)
    require_matplotlib()
    crops = _prepare(settings, screen)
    plan = _elements(crops.train_list, crops.root)
    _warm_up(crops, plan)
    same, slow = _train_both(settings, screen, crops, plan)
    in_line, through, step_s = _feed_device(settings, screen, plan, slow)
    picture = settings.out / "demo.png"
    draw(
        picture,
        [in_line.lane("The baseline without workers"), through.lane(f"Through Penstock, {_threads(settings.num_workers)}")],
        title=f"The same batches for a stand-in device of {step_s * 1000:.0f} ms per step, before and after",
        window_s=max(40 * step_s, 1.0),
    )
    screen.fact("timeline", f"{settings.out / 'timeline.json'}: open it in Perfetto (ui.perfetto.dev) or chrome://tracing")
    screen.fact("curves", f"of the batches that stood ready: tensorboard --logdir {settings.out / 'tensorboard'}")
    screen.heading(f"Picture: {picture}")
    if not same:
        print(
            "demo: the two ways of reading did not give the same batches and weights, which must never happen."
            "\n  where: see the lines 'batches' and 'weights' above"
            "\n  fix:   please report this with the output above and your versions of NumPy and OpenCV",
            file=sys.stderr,
        )
    return 0 if same else 1


def _prepare(settings: Settings, screen: Screen) -> photographs.Crops:
    found = photographs.find_photos() if settings.photos is None else photographs.photos_in(settings.photos)
    screen.line(f"penstock {ps.__version__} demo: the same training, by a baseline without workers and by Penstock")
    start_s = time.perf_counter()
    crops = photographs.cut_crops(found, settings.out, num_train=settings.num_train, num_test=settings.num_test)
    made = "from an earlier run" if crops.reused else f"cut in {seconds(time.perf_counter() - start_s)}"
    screen.line()
    screen.fact("photographs", f"{len(crops.names)}: {', '.join(crops.names)}")
    screen.fact(
        "crops",
        f"{crops.num_train:,} to train on and {crops.num_test:,} held out, from a part of each photograph that training never sees;"
        f" the class is the photograph",
    )
    screen.fact("files", f"JPEG {photographs.CROP_WIDTH}x{photographs.CROP_HEIGHT}, {size_words(crops.num_bytes)} in {crops.root} ({made})")
    screen.fact("machine", f"{available_cpus()} CPUs, {_gpu_words()}; Penstock uses {_threads(settings.num_workers)}")
    return crops


def _elements(list_file: Path, root: Path) -> Any:
    """Return the training elements as people would write them: shuffle, decode, random crop, flip, normalise."""
    return (
        ps.read_list(str(list_file), root=str(root))
        .shuffle(seed=_SEED)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", _SIDE, scale=(0.35, 1.0)), seed=_SEED)
        .map(ps.image.random_flip("data"), seed=_SEED)
        .map(ps.image.normalize("data", mean=_MEAN, std=_STD, layout="CHW"))
    )


def _warm_up(crops: photographs.Crops, plan: Any) -> None:
    """Read every file and load every library once, so that the loop that happens to run first does not pay for it."""
    for path in sorted((crops.root / "train").iterdir()):
        path.read_bytes()
    PatchNet(2, num_steps=1).train(plan[0]["data"][None], np.zeros(1, np.int64))


@dataclass(frozen=True, slots=True)
class _Training:
    """A model in training, and the SHA-256 of every batch that it was given."""

    model: PatchNet
    digests: list[str]

    def step(self, batch: Batch) -> None:
        self.digests.append(digest_of(batch))
        self.model.train(batch["data"], batch["label"])


def _train_both(settings: Settings, screen: Screen, crops: photographs.Crops, plan: Any) -> tuple[bool, Trial]:
    """Train without workers and through Penstock; print and compare. Returns whether both were the same, and the baseline's trial."""
    batch_size = settings.batch_size
    num_batches = settings.num_train * settings.epochs // batch_size
    passes = "1 pass" if settings.epochs == 1 else f"{settings.epochs} passes"
    elements = plan.repeat(settings.epochs)
    screen.heading(f"1. Train a small model in NumPy: {num_batches} steps of {batch_size} random crops, {passes} over the files")
    in_line, through = (_Training(PatchNet(len(crops.names), num_steps=num_batches), []) for _ in range(2))
    slow = run_trial(InLine(elements, batch_size), in_line.step, what="training, baseline", num_steps=num_batches)
    batches = ThroughPenstock(elements.batch(batch_size, drop_remainder=True), settings.num_workers)
    fast = run_trial(batches, through.step, what="training, Penstock", num_steps=num_batches)
    _show(screen, slow, fast, "training")
    same = _compare(screen, in_line, through)
    accuracy = _accuracy(through.model, crops, settings)
    screen.fact("accuracy", f"{percent(accuracy)} on the held-out crops ({percent(1 / len(crops.names))} would be guessing)")
    return same, slow


def _compare(screen: Screen, in_line: _Training, through: _Training) -> bool:
    """Print whether both ways gave the same batches and weights, byte for byte, and return it."""
    equal = sum(one == other for one, other in zip(in_line.digests, through.digests, strict=False))
    total = max(len(in_line.digests), len(through.digests))
    same_batches = in_line.digests == through.digests
    ours, theirs = through.model.digest(), in_line.model.digest()
    screen.fact("batches", f"{'identical' if same_batches else 'DIFFERENT'}: {equal} of {total} are equal in every byte (SHA-256)")
    if ours == theirs:
        screen.fact("weights", f"identical after the last step, bit for bit (SHA-256 {ours[:12]}...)")
    else:
        screen.fact("weights", f"DIFFERENT after the last step: {theirs[:12]}... of the baseline, {ours[:12]}... through Penstock")
    return same_batches and ours == theirs


def _accuracy(model: PatchNet, crops: photographs.Crops, settings: Settings) -> float:
    held_out = (
        ps.read_list(str(crops.test_list), root=str(crops.root))
        .map(ps.image.decode("data"))
        .map(ps.image.resize("data", _SIDE))
        .map(ps.image.center_crop("data", _SIDE))
        .map(ps.image.normalize("data", mean=_MEAN, std=_STD, layout="CHW"))
        .batch(settings.batch_size)
    )
    with held_out.feed(executor="threads", num_workers=settings.num_workers) as feed:
        right = sum(int((model.predict(batch["data"]) == batch["label"]).sum()) for batch in feed)
    return right / crops.num_test


def _feed_device(settings: Settings, screen: Screen, plan: Any, trained: Trial) -> tuple[Trial, Trial, float]:
    """Feed a device that sleeps: through Penstock the CPUs can just keep up with it, without workers they cannot."""
    batch_size = settings.batch_size
    read_s = (trained.total_s - trained.busy_s) / len(trained.steps)
    # 1.35 times what the CPUs need for a batch when all of them read: hand-over, noise and hyper-threads take their part.
    step_s = max(2, math.ceil(1000 * 1.35 * read_s / min(settings.num_workers, available_cpus()))) / 1000
    elements = plan.repeat(math.ceil(settings.device_steps * batch_size / settings.num_train)).take(settings.device_steps * batch_size)
    screen.heading(
        f"2. Feed a stand-in for an accelerator: {settings.device_steps} steps that sleep for {step_s * 1000:.0f} ms and use no CPU,"
        f" because {'this demo does not use the GPU' if _has_gpu() else 'this machine has no GPU'}"
    )

    def step(_: Batch) -> None:
        time.sleep(step_s)

    slow = run_trial(InLine(elements, batch_size), step, what="device, baseline", num_steps=settings.device_steps)
    fast = run_trial(
        ThroughPenstock(elements.batch(batch_size, drop_remainder=True), settings.num_workers, settings.out),
        step,
        what="device, Penstock",
        num_steps=settings.device_steps,
    )
    _show(screen, slow, fast, "device busy")
    return slow, fast, step_s


def _show(screen: Screen, slow: Trial, fast: Trial, who: str) -> None:
    """Print both times as bars (dark: steps, pale: waiting) and what limited each loop."""
    for name, trial in (("baseline", slow), ("Penstock", fast)):
        busy_s, total_s = trial.busy_s, trial.total_s
        text = f"{total_s:5.1f} s, {who} {percent(busy_s / total_s)}, waiting {percent(1 - busy_s / total_s)}"
        screen.bar(name, text, busy_s / slow.total_s, (total_s - busy_s) / slow.total_s)
    screen.fact("speed-up", f"{slow.total_s / fast.total_s:.2f} times as fast with Penstock")
    screen.fact(
        "first batch",
        f"after {seconds(fast.first_batch_s)} with Penstock (baseline: {seconds(slow.first_batch_s)});"
        f" from then on {who} {percent(fast.busy_share_after_first)} of the time",
    )
    screen.fact("why, baseline", judge(slow.snapshot).headline)
    screen.fact("why, Penstock", judge(fast.snapshot).headline)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _has_gpu() -> bool:
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/kfd", "/dev/dxg"))


def _gpu_words() -> str:
    return "a GPU (not used here)" if _has_gpu() else "no GPU"


if __name__ == "__main__":
    sys.exit(main())
