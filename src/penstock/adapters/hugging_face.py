"""A feed in the Trainer of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.adapters.ranks import valid_rows
from penstock.feed import Feed


class _Epochs:
    """The epochs of a feed, without `set_epoch`: the Trainer counts epochs by steps, which is wrong behind a filter or for other ranks."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[Any]:
        return iter(self._feed)

    def __len__(self) -> int:
        return len(self._feed)


class _Evaluation(_Epochs):
    """The batches of an evaluation without the padded rows of `even="mask"`, and what ranks gather of their results.

    Accelerate gathers equally many rows from each rank, and cuts off the last ones. Here ranks may have different numbers of rows. A batch
    that is padding alone goes through the model all the same, for the ranks make their steps together, and its results are left out.
    """

    def __init__(self, feed: Any, accelerator: Any) -> None:
        super().__init__(feed)
        self._accelerator, self._counts, self._num_rows = accelerator, [0], 0
        self.num_examples = 0

    def __iter__(self) -> Iterator[Any]:
        import torch
        from transformers.trainer_pt_utils import find_batch_size

        self.num_examples = 0
        self._feed.set_epoch(0)  # the same in each evaluation, also after a resume
        for batch in self._feed:
            rows = valid_rows(batch) if isinstance(batch, Mapping) and "valid" in batch else batch
            self._num_rows = find_batch_size(rows) or 0
            self._counts = self._accelerator.gather(torch.tensor([self._num_rows], device=self._accelerator.device)).tolist()
            self.num_examples += sum(self._counts)
            yield rows if self._num_rows else {key: value for key, value in batch.items() if key != "valid"}

    def gathered(self, results: Any) -> Any:
        """Return the rows of all ranks, of tensors whose first dimension is that of the batch."""
        from accelerate.utils import recursively_apply

        return recursively_apply(self._gathered, results)

    def _gathered(self, rows: Any) -> Any:
        import torch

        if rows.ndim == 1 and len(rows) != self._num_rows:  # the loss of a batch, as often as the largest batch has rows
            rows = rows[:1].repeat(max(1, self._num_rows))
        every = self._accelerator.gather(self._accelerator.pad_across_processes(rows, dim=0))
        parts = every.chunk(len(self._counts))
        return torch.cat([part[:count] for part, count in zip(parts, self._counts, strict=True)])


class FeedTrainerMixin:
    """Trains and evaluates on feeds as they are: `class FeedTrainer(FeedTrainerMixin, Trainer): pass`.

    Give feeds as `train_dataset`, `eval_dataset` (or a dict of them), and to `evaluate` and `predict`. With `shard_by_rank(even="mask")`
    each sample counts once in losses, predictions and metrics.

    The training feed's state is in each checkpoint, so `train(resume_from_checkpoint=...)` goes on with the next batch. Give the
    TrainingArguments `remove_unused_columns=False`. On several ranks the dataset has `shard_by_rank()`, and the file of rank 0 holds for
    all.
    """

    args: Any
    accelerator: Any
    train_dataset: Any
    eval_dataset: Any
    gather_function: Any

    def get_train_dataloader(self) -> Any:
        """Return the epochs of the feed."""
        return _Epochs(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the epochs of a feed; other datasets are those of the Trainer."""
        wanted = self.eval_dataset if eval_dataset is None else eval_dataset
        feed = self.eval_dataset[wanted] if isinstance(wanted, str) else wanted
        return _Evaluation(feed, self.accelerator) if isinstance(feed, Feed) else super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the epochs of a feed; other datasets are those of the Trainer."""
        if isinstance(test_dataset, Feed):
            return _Evaluation(test_dataset, self.accelerator)
        return super().get_test_dataloader(test_dataset)  # type: ignore[misc]

    def evaluation_loop(self, dataloader: Any, *others: Any, **options: Any) -> Any:
        """Evaluate, with a feed's own way to gather results and to count samples."""
        evaluate = super().evaluation_loop  # type: ignore[misc]
        if not isinstance(dataloader, _Evaluation):
            return evaluate(dataloader, *others, **options)
        self.gather_function = dataloader.gathered
        return evaluate(dataloader, *others, **options)._replace(num_samples=dataloader.num_examples)

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
