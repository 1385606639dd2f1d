"""What `penstock doctor` does: it reports on every feed of a script, and describes the environment."""

from __future__ import annotations

from penstock.doctor.environment import Environment, environment
from penstock.doctor.report import FeedReport, FeedWatch, Report

__all__ = ["Environment", "FeedReport", "FeedWatch", "Report", "environment"]
