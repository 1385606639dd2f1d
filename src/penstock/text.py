"""Functions for the tokens of language models: what attention kernels take beside packed rows (docs/language-models.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError

__all__ = ["attention_fields"]


def attention_fields(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that variable-length attention takes to packed rows; for `map`, on one row or behind `batch`.

    The fields have the names that FlashAttention and Hugging Face give them. They follow from `segment_ids`: neighbours in a row that have
    the same id are one segment. The padding of a row is a segment of its own, so that the segments cover all tokens of the batch laid flat,
    row after row. No segment goes on in the next row.

    Args:
        batch: a dict with `segment_ids`, integers [length] or [batch, length], 0 for padding, as `pack_sequences` and `read_tokens(eos=)`
            give them. From a field `positions` of the same shape come the position numbers of the tokens; without it they begin at 0 in
            each segment.

    Returns:
        A new dict of the fields of `batch` and of

        - `position_ids`: int32, as `segment_ids` in shape; in padding counted from 0.
        - `cu_seqlens`: int32 [segments + 1], where each segment begins in the flat batch, then the number of all tokens.
        - `max_seqlen`: an int, the tokens of the longest segment, padding included.
        - `loss_mask`: bool, as `segment_ids` in shape. True for a token behind another one of its segment, which predicts it; False for the
          first token of a segment and for padding.

    Raises:
        SpecError: the batch is no dict with such `segment_ids`, or `positions` has another shape.
    """
    segments = _integers(batch, "segment_ids")
    if segments.ndim not in (1, 2):
        raise _wrong(f"'segment_ids' has shape {list(segments.shape)}, not [length] or [batch, length]")
    goes_on = np.zeros(segments.shape, np.bool_)
    np.equal(segments[..., 1:], segments[..., :-1], out=goes_on[..., 1:])
    borders = np.append(np.flatnonzero(~goes_on), segments.size).astype(np.int32)
    sizes = np.diff(borders)
    position_ids = (np.arange(segments.size, dtype=np.int32) - np.repeat(borders[:-1], sizes)).reshape(segments.shape)
    is_token = segments != 0
    if "positions" in batch:
        positions = _integers(batch, "positions")
        if positions.shape != segments.shape:
            raise _wrong(f"'positions' has shape {list(positions.shape)}, and 'segment_ids' has {list(segments.shape)}")
        np.copyto(position_ids, positions, where=is_token)
    return {
        **batch,
        "position_ids": position_ids,
        "cu_seqlens": borders,
        "max_seqlen": int(sizes.max(initial=0)),
        "loss_mask": goes_on & is_token,
    }


def _integers(batch: Mapping[str, Any], name: str) -> NDArray[Any]:
    if not isinstance(batch, Mapping) or name not in batch:
        has = f"a dict of {', '.join(map(repr, batch)) or 'nothing'}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise _wrong(f"the batch is {has}, and has no {name!r}")
    values = np.asarray(batch[name])
    if values.dtype.kind not in "iu":
        raise _wrong(f"{name!r} is {values.dtype}, not integers")
    return values


def _wrong(what: str) -> SpecError:
    return SpecError(
        what,
        where="text.attention_fields()",
        fix="map it behind pack_sequences() or read_tokens(eos=...), or behind a batch() of such rows",
    )
