"""Lists of jobs in processes, threads or in line: the classic Pool split as one call. Knows no dataset."""

from __future__ import annotations

from penstock.jobs.donelist import NOT_KEPT, NotKept
from penstock.jobs.results import Skipped
from penstock.jobs.run import JobsProgress, parallel_jobs

__all__ = ["NOT_KEPT", "JobsProgress", "NotKept", "Skipped", "parallel_jobs"]
