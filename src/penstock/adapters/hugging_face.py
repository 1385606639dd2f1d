"""A feed in the Trainer of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FeedTrainerMixin"]


class _Epochs:
    """The epochs of a feed, without `set_epoch`: the Trainer counts epochs by steps, which is wrong behind a filter or for other ranks."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[Any]:
        return iter(self._feed)

    def __len__(self) -> int:
        return len(self._feed)


class FeedTrainerMixin:
    """Trains on a feed as it is: `class FeedTrainer(FeedTrainerMixin, Trainer): pass`, with the feed as `train_dataset`.

    The feed's state is in each checkpoint, so `train(resume_from_checkpoint=...)` goes on with the next batch. Give the TrainingArguments
    `remove_unused_columns=False`. On several ranks the dataset has `shard_by_rank()`, and the file of rank 0 holds for all.
    """

    args: Any
    train_dataset: Any

    def get_train_dataloader(self) -> Any:
        """Return the epochs of the feed."""
        return _Epochs(self.train_dataset)

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """Train, from the state in a checkpoint's `feed.json` where one is given."""
        if resume_from_checkpoint is True:
            from transformers.trainer_utils import get_last_checkpoint

            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
        if resume_from_checkpoint:
            self.train_dataset.load_state_dict(Path(resume_from_checkpoint, "feed.json").read_text(encoding="utf-8"))
            self.args.ignore_data_skip = True  # the feed is there already
        return super().train(resume_from_checkpoint, **options)  # type: ignore[misc]

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)  # type: ignore[misc]
        if self.is_world_process_zero():  # type: ignore[attr-defined]
            Path(output_dir, "feed.json").write_text(json.dumps(self.train_dataset.state_dict()), encoding="utf-8")
