"""Print when Penstock's first batch was there: `first_batch_penstock.py LIST`."""

import sys
import time
from pathlib import Path

from user_code import MEAN, STD

import penstock as ps

listing = Path(sys.argv[1])
dataset = (
    ps.read_list(listing, root=listing.parent)
    .shuffle(seed=7)
    .map(ps.image.decode("data"))
    .map(ps.image.random_resized_crop("data", 224, antialias=False), seed=1)
    .map(ps.image.random_flip("data"), seed=2)
    .map(ps.image.normalize("data", MEAN, STD, layout="CHW"))
    .batch(128, drop_remainder=True)
)
with dataset.feed() as feed:
    batch = next(feed)
    print(time.monotonic_ns(), "x".join(map(str, batch["data"].shape)))
