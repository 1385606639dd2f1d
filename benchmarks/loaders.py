"""`ps.from_dataloader` beside the loader that it is given: ten datasets in the style of public training scripts."""

from __future__ import annotations

import functools
import io
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size, jpeg_list, read_listing
from user_code import training_image

_WORKERS = 2


class Mapped:
    """A map-style dataset of one function: module level, so that loaders can send it to their workers."""

    def __init__(self, count: int, get: Callable[[int], Any]) -> None:
        self.count, self.get = count, get

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.get(index)


def _classified(paths: Any, index: int) -> Any:
    path, label = paths[index % len(paths)]
    return training_image(path, False), label


def _contrastive(paths: Any, index: int) -> Any:
    path, _ = paths[index % len(paths)]
    return training_image(path, True), training_image(path, True)


def _torch_transforms(paths: Any, index: int) -> Any:
    import simplejpeg
    import torch

    path, label = paths[index % len(paths)]
    pixels = torch.from_numpy(simplejpeg.decode_jpeg(Path(path).read_bytes())).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(pixels, (128, 128), mode="bilinear", antialias=True)[0]
    return (small / 255 - 0.5) / 0.25, label


def _segmented(paths: Any, index: int) -> Any:
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    image = simplejpeg.decode_jpeg(Path(paths[index % len(paths)][0]).read_bytes())
    mask = (image[..., 0] > 127).astype(np.uint8)
    turn = cv2.getRotationMatrix2D((200, 150), index % 30 - 15, 1.0)
    warped = cv2.warpAffine(image, turn, (256, 256)), cv2.warpAffine(mask, turn, (256, 256), flags=cv2.INTER_NEAREST)
    return warped[0], warped[1].astype(np.int64)


def _clip(paths: Any, index: int) -> Any:
    return np.stack([training_image(paths[(index + n) % len(paths)][0], True) for n in range(4)])


def _png(blobs: Any, index: int) -> Any:
    import cv2

    return cv2.imdecode(blobs[index % len(blobs)], cv2.IMREAD_COLOR), index % 10


def _compressed(blobs: Any, index: int) -> Any:
    return np.frombuffer(zlib.decompress(blobs[index % len(blobs)]), np.float32).reshape(64, 256).copy()


def _saved(files: Any, index: int) -> Any:
    return {"features": np.load(files[index % len(files)]), "label": index % 7}


def _spectrum(waves: Any, index: int) -> Any:
    import torch

    wave = torch.from_numpy(waves[index % len(waves)])
    return torch.stft(wave, 512, 160, window=torch.hann_window(512), return_complex=True).abs().log1p()


def _tokens(tokens: Any, index: int) -> Any:
    row = tokens[index * 1024 : index * 1024 + 1025].astype(np.int64)
    return {"input_ids": row[:-1], "labels": row[1:]}


def _datasets(run: rounds.Run) -> dict[str, tuple[Mapped, int]]:
    """Return each dataset and its batch size."""
    import cv2

    folder, full = run.root / "loaders", run.size.name == "full"
    paths = read_listing(jpeg_list(run.root, min(512, run.size.num_jpegs)))
    rng = np.random.default_rng(0)
    pngs = [cv2.imencode(".png", rng.integers(0, 255, (96, 96, 3), dtype=np.uint8))[1] for _ in range(64)]
    packed = [zlib.compress(np.round(rng.normal(size=(64, 256))).astype(np.float32).tobytes(), 1) for _ in range(64)]
    waves = rng.normal(size=(32, 64_000)).astype(np.float32)
    many = 1024 if full else 32
    return {
        "classification": (Mapped(many, functools.partial(_classified, paths)), 32),
        "contrastive": (Mapped(many // 2, functools.partial(_contrastive, paths)), 32),
        "torch_transforms": (Mapped(many // 2, functools.partial(_torch_transforms, paths)), 32),
        "segmentation": (Mapped(many, functools.partial(_segmented, paths)), 16),
        "clips": (Mapped(many // 4, functools.partial(_clip, paths)), 8),
        "png": (Mapped(8 * many, functools.partial(_png, pngs)), 64),
        "compressed": (Mapped(8 * many, functools.partial(_compressed, packed)), 64),
        "npy_files": (Mapped(4 * many, functools.partial(_saved, sorted(folder.glob("*.npy")))), 64),
        "audio": (Mapped(many, functools.partial(_spectrum, waves)), 16),
        "tokens": (Mapped(16 * many, functools.partial(_tokens, np.arange(16 * many * 1024 + 1, dtype=np.uint16))), 32),
    }


def _epochs(run: rounds.Run, epoch: Any, count: int) -> dict[str, Any]:
    """Return elements/s of whole epochs, the first one left out."""
    for _ in epoch:
        pass
    begin, done = time.perf_counter(), 0
    while not done or time.perf_counter() - begin < run.size.min_seconds:
        for _ in epoch:
            pass
        done += 1
    return {"rate": done * count / (time.perf_counter() - begin)}


def _loader(data: Any, batch_size: int) -> Any:
    torch = rounds.torch()
    torch.set_num_threads(1)
    return torch.utils.data.DataLoader(data, batch_size, shuffle=True, num_workers=_WORKERS, persistent_workers=True, drop_last=True)


def _theirs(name: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        rounds.torch()
        data, batch_size = _datasets(run)[name]
        return _epochs(run, _loader(data, batch_size), len(data))

    return measure


def _ours(name: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        rounds.torch()
        import penstock as ps

        data, batch_size = _datasets(run)[name]
        with ps.from_dataloader(_loader(data, batch_size)).feed() as feed:
            return _epochs(run, feed, len(data))

    return measure


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, min(512, size.num_jpegs))
    folder = root / "loaders"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(64):
        file = io.BytesIO()
        np.save(file, np.random.default_rng(number).normal(size=(128, 128)).astype(np.float32))
        (folder / f"{number:02}.npy").write_bytes(file.getvalue())


NAMES = (
    "classification", "contrastive", "torch_transforms", "segmentation", "clips", "png", "compressed", "npy_files", "audio", "tokens",
)  # fmt: skip

CLAIM = rounds.Claim(
    name="loaders",
    title=f"from_dataloader beside its DataLoader of {_WORKERS} workers: elements/s of ten datasets",
    unit="elements/s",
    reference=f"torch_{NAMES[0]}_loader",
    references={f"torch_{name}_feed": f"torch_{name}_loader" for name in NAMES},
    prepare=_prepare,
    targets=tuple(rounds.Target(contestant=f"torch_{name}_feed", metric="ratio", sense=">=", bound=1.0) for name in NAMES),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {f"torch_{name}_{who}": make(name) for name in NAMES for who, make in (("loader", _theirs), ("feed", _ours))})
