"""Detection: decode, IoU crop, flip, colour jitter, letterbox to 640 x 640, boxes with it; beside a DataLoader with two ways to write that.

torchvision v2 does not load beside the CPU build of PyTorch that the benchmarks use. In its place stand its steps by hand, with simplejpeg,
OpenCV and NumPy, and Albumentations.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import drive
import numpy as np
import pairs
import rounds
from data import Size, jpeg_list, read_listing

_BATCH_SIZE, _SIDE, _FILL = 16, 640, 114
_LEAST_IOUS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
Sample = tuple[str, Any, Any]


def _files(size: Size, root: Path) -> tuple[Path, Path]:
    """Return the folder of the JPEG files of W1 and a COCO file with one to eight boxes for each."""
    listing = jpeg_list(root, size.num_jpegs)
    coco = listing.with_name(f"boxes-{size.num_jpegs}.json")
    if not coco.exists():
        import simplejpeg

        rng, images, annotations = np.random.default_rng(5), [], []
        for number, (path, _) in enumerate(read_listing(listing)):
            height, width, *_ = simplejpeg.decode_jpeg_header(Path(path).read_bytes())
            images.append({"id": number, "file_name": str(Path(path).relative_to(listing.parent)), "height": height, "width": width})
            for _ in range(rng.integers(1, 9)):
                wide, high = (rng.uniform(0.1, 0.6, 2) * (width, height)).tolist()
                box = [*(rng.random(2) * (width - wide, height - high)).tolist(), wide, high]
                annotations.append({"id": len(annotations), "image_id": number, "category_id": int(rng.integers(20)), "bbox": box})
        categories = [{"id": number, "name": str(number)} for number in range(20)]
        coco.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return listing.parent, coco


def _penstock(run: rounds.Run) -> Callable[[], Any]:
    import penstock as ps

    objects = {"boxes": ps.image.Boxes(per_box=("labels", "areas", "iscrowd"))}
    dataset = (
        ps.read_coco(*_files(run.size, run.root))
        .shuffle(seed=7)
        .map(ps.image.decode("image"))
        .map(ps.image.random_iou_crop("image", fields=objects), seed=1)
        .map(ps.image.random_flip("image", fields=objects), seed=2)
        .map(ps.image.color_jitter("image", 0.4, 0.4, 0.4, 0.1), seed=3)
        .map(ps.image.resize("image", _SIDE, max_size=_SIDE, fields=objects))
        .map(ps.image.pad_to("image", _SIDE, fill=_FILL, fields=objects))
        .ragged_batch(_BATCH_SIZE, ragged=("boxes", "labels", "areas", "iscrowd"), drop_remainder=True)
    )
    return lambda: (batch["image"] for batch in dataset)


def _crop(image: Any, boxes: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Cut as torchvision's RandomIoUCrop does."""
    least, (height, width) = random.choice(_LEAST_IOUS), image.shape[:2]
    for _ in range(40 if least < 1 else 0):
        wide, high = int(width * random.uniform(0.3, 1)), int(height * random.uniform(0.3, 1))
        if not 0.5 <= wide / high <= 2:
            continue
        left, top = int((width - wide) * random.random()), int((height - high) * random.random())
        x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
        inside = (left < x) & (x < left + wide) & (top < y) & (y < top + high)
        if not inside.any():
            continue
        kept, window = boxes[inside], np.array((left, top, left + wide, top + high), np.float32)
        sides = (np.minimum(kept[:, 2:], window[2:]) - np.maximum(kept[:, :2], window[:2])).clip(0)
        shared, areas = sides.prod(1), (kept[:, 2:] - kept[:, :2]).prod(1)
        if (shared / (areas + wide * high - shared)).max() >= least:
            moved = (kept - window[[0, 1, 0, 1]]).clip(0, (wide, high, wide, high))
            return image[top : top + high, left : left + wide], moved, labels[inside]
    return image, boxes, labels


def _jittered(image: Any) -> Any:
    """Change the colours as torchvision's ColorJitter(0.4, 0.4, 0.4, 0.1) does, with OpenCV."""
    import cv2

    for kind in random.sample(range(4), 4):
        factor = random.uniform(0.6, 1.4)
        if kind == 0:
            image = cv2.convertScaleAbs(image, alpha=factor)
        elif kind == 1:
            mean = cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0]
            image = cv2.convertScaleAbs(image, alpha=factor, beta=(1 - factor) * mean)
        elif kind == 2:
            grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
            image = cv2.addWeighted(image, factor, grey, 1 - factor, 0)
        else:
            hsv = cv2.cvtColor(image.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2HSV)
            hsv[..., 0] += random.uniform(-36, 36) % 360
            image = cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), alpha=255)
    return image


def _by_hand(sample: Sample) -> tuple[Any, Any, Any]:
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    path, boxes, labels = sample
    image, boxes, labels = _crop(simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB"), boxes, labels)
    if random.random() < 0.5:
        image, boxes = cv2.flip(image, 1), boxes[:, [2, 1, 0, 3]] * (-1, 1, -1, 1) + (image.shape[1], 0, image.shape[1], 0)
    image = _jittered(image)
    scale = _SIDE / max(image.shape[:2])
    image = cv2.resize(image, (round(image.shape[1] * scale), round(image.shape[0] * scale)))
    top, left = (_SIDE - image.shape[0]) // 2, (_SIDE - image.shape[1]) // 2
    made = np.full((_SIDE, _SIDE, 3), _FILL, np.uint8)
    made[top : top + image.shape[0], left : left + image.shape[1]] = image
    return made, boxes * scale + (left, top, left, top), labels


class _Albumentations:
    """The nearest steps of Albumentations, which has no IoU crop: its crop keeps some of each box."""

    def __init__(self) -> None:
        try:
            import albumentations as module
        except ImportError:
            raise rounds.Missing("albumentations is not installed") from None
        self._compose = module.Compose(
            [
                module.BBoxSafeRandomCrop(erosion_rate=0.3, p=0.86),
                module.HorizontalFlip(p=0.5),
                module.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1),
                module.LongestMaxSize(_SIDE),
                module.PadIfNeeded(_SIDE, _SIDE, fill=_FILL),
            ],
            bbox_params=module.BboxParams(format="pascal_voc", label_fields=["labels"]),
        )

    def __call__(self, sample: Sample) -> tuple[Any, Any, Any]:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)
        path, boxes, labels = sample
        made = self._compose(image=simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB"), bboxes=boxes, labels=labels)
        return made["image"], made["bboxes"], made["labels"]


class _Samples:
    """The files and boxes as a map-style dataset for PyTorch."""

    def __init__(self, run: rounds.Run, change: Callable[[Sample], Any]) -> None:
        folder, coco = _files(run.size, run.root)
        content, self._change = json.loads(coco.read_text()), change
        found: dict[int, list[Any]] = {image["id"]: [] for image in content["images"]}
        for one in content["annotations"]:
            left, top, wide, high = one["bbox"]
            found[one["image_id"]].append((left, top, left + wide, top + high, one["category_id"]))
        rows = {number: np.array(boxes, np.float32) for number, boxes in found.items()}
        self._samples = [(str(folder / one["file_name"]), rows[one["id"]][:, :4], rows[one["id"]][:, 4]) for one in content["images"]]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._change(self._samples[index])


def _collated(samples: list[Any]) -> tuple[Any, list[Any]]:
    from torch.utils.data import default_collate

    return default_collate([image for image, *_ in samples]), [rest for _, *rest in samples]


def _dataloader(run: rounds.Run, change: Callable[[Sample], Any]) -> Callable[[], Iterator[Any]]:
    loader = rounds.torch().utils.data.DataLoader(
        _Samples(run, change),
        batch_size=_BATCH_SIZE,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        persistent_workers=True,
        prefetch_factor=4,
        collate_fn=_collated,
    )
    return lambda: (images for images, _ in loader)


def _work(worker: int, num_workers: int, run: rounds.Run) -> pairs.Work:
    samples = _Samples(run, _by_hand)
    order = itertools.cycle(range(worker, len(samples), num_workers))

    def portion() -> int:
        for index in itertools.islice(order, _BATCH_SIZE):
            samples[index]
        return _BATCH_SIZE

    return portion


def _limit(run: rounds.Run) -> dict[str, Any]:
    return pairs.limit(_work, (run,), run.size.num_jpegs // (2 * _BATCH_SIZE), run.size.min_seconds)


CONTESTANTS: dict[str, Callable[[rounds.Run], Callable[[], Any]]] = {
    "penstock": _penstock,
    "dataloader_by_hand": lambda run: _dataloader(run, _by_hand),
    "albumentations_dataloader": lambda run: _dataloader(run, _Albumentations()),
}
CLAIM = rounds.Claim(
    name="detection",
    title="JPEG files and COCO boxes: IoU crop, flip, colour jitter, letterbox to 640, batches of 16, two workers",
    unit="images/s",
    prepare=lambda size, root: _files(size, root) and None,
    targets=tuple(
        rounds.Target(contestant="penstock", metric=f"times_{name}", sense=">=", bound=2.0)
        for name, package in (("dataloader_by_hand", "torch"), ("albumentations_dataloader", "albumentations"))
        if find_spec(package) is not None
    ),
    memory_round=True,
)

if __name__ == "__main__":
    own = {name: lambda run, make=make: drive.epochs(make(run), _BATCH_SIZE, run.size.min_seconds) for name, make in CONTESTANTS.items()}
    rounds.main(CLAIM, {"limit": _limit, **own})
