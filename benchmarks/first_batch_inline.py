"""Print when the first batch of a plain loop was there: `first_batch_inline.py LIST`."""

import random
import sys
import time
from pathlib import Path

import numpy as np
from user_code import training_image

listing = Path(sys.argv[1])
pairs = [line.rsplit(" ", 1) for line in listing.read_text().splitlines()]
random.shuffle(pairs)
samples = [(training_image(str(listing.parent / name), False), int(label)) for name, label in pairs[:128]]
images, labels = np.stack([image for image, _ in samples]), np.array([label for _, label in samples])
print(time.monotonic_ns(), "x".join(map(str, images.shape)))
