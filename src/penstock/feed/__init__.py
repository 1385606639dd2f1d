"""A running dataset: what is compiled before it runs, what runs it, and the feed that the training loop iterates."""

from penstock.feed.feed import Feed

__all__ = ["Feed"]
