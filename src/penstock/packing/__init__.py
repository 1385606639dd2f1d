"""One-off preparation of a dataset: packed once, read many times."""

from __future__ import annotations

from penstock.packing.manifest import Manifest, features_of, read_manifest, read_packed
from penstock.packing.options import PackOptions
from penstock.packing.packer import estimate, pack
from penstock.packing.split import Estimate

__all__ = ["Estimate", "Manifest", "PackOptions", "estimate", "features_of", "pack", "read_manifest", "read_packed"]
