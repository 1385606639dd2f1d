"""Images of 192 x 192 to float32 CHW crops of 176, one worker: CPU an image of JPEG records and of decoded ones, beside TurboLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drive
import rounds
from data import Size, jpeg_list
from user_code import MEAN, STD

_BATCH_SIZE, _STORED, _CROP = 64, 192, 176


def _folder(root: Path, size: Size) -> Path:
    return root / "decoded" / str(size.num_jpegs)


def _prepare(size: Size, root: Path) -> None:
    import penstock as ps
    from penstock.packing.reencode import EncodeJpeg

    listing, folder = jpeg_list(root, size.num_jpegs), _folder(root, size)
    small = ps.read_list(listing, root=listing.parent).map(ps.image.decode("data")).map(ps.image.resize("data", _STORED))
    small = small.map(ps.image.center_crop("data", _STORED))
    jpegs = small.map(EncodeJpeg("data"))
    ps.pack(small, folder / "decoded", format="decoded", executor="threads")
    ps.pack(jpegs, folder / "jpeg", executor="threads")
    if not (folder / "jpegs.tar").exists():
        ps.pack(jpegs.map(_only_data), folder / "tar", format="tar", executor="threads", num_shards=1)
        (folder / "tar" / "data-000000.tar").rename(folder / "jpegs.tar")


def _only_data(element: dict[str, Any]) -> dict[str, Any]:
    return {"data": element["data"]}


def _cpu(epoch: Callable[[], Any], run: rounds.Run) -> dict[str, Any]:
    found = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)
    return {**found, "cpu_us": found["cpu_s"] / found["count"] * 1e6}


def _penstock(name: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        ds = ps.read_packed(_folder(run.root, run.size) / name).shuffle(seed=7)
        ds = ds.map(ps.image.decode("data")) if name == "jpeg" else ds
        ds = ds.map(ps.image.random_resized_crop("data", _CROP), seed=1).map(ps.image.random_flip("data"), seed=2)
        ds = ds.map(ps.image.normalize("data", MEAN, STD)).batch(_BATCH_SIZE, drop_remainder=True)
        return _cpu(lambda: ds.feed(num_workers=1, executor="threads"), run)

    return measure


def _turboloader(name: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        try:
            import turboloader
        except ImportError:
            raise rounds.Missing("turboloader is not installed") from None
        path = _folder(run.root, run.size) / name
        if name.endswith(".tbl") and not path.exists():
            turboloader.preprocess_to_tbl(str(path.with_suffix(".tar")), str(path), image_size=_STORED)
        loader = turboloader.DataLoader(
            str(path), batch_size=_BATCH_SIZE, image_size=_CROP, num_workers=1, output_format="pytorch", shuffle=True, train_aug=True,
            drop_last=True, transform=turboloader.ImageNetNormalize(),
        )  # fmt: skip

        def epoch() -> Iterator[Any]:
            for images, _ in loader:
                yield {"data": images}

        return _cpu(epoch, run)

    return measure


CLAIM = rounds.Claim(
    name="decoded",
    title=f"images of {_STORED} x {_STORED} to float32 CHW crops of {_CROP}, one worker: CPU time an image",
    unit="us",
    metric="cpu_us",
    prepare=_prepare,
    reference="jpeg",
    also=("rate",),
    targets=(rounds.Target(contestant="decoded", metric="ratio", sense="<=", bound=0.45),),  # 100 us where JPEG records take 222
)

if __name__ == "__main__":
    ways = {name: _penstock(name) for name in ("jpeg", "decoded")}
    rounds.main(CLAIM, {**ways, "turboloader": _turboloader("jpegs.tar"), "turboloader_raw": _turboloader("jpegs.tbl")})
