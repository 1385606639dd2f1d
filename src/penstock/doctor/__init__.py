"""What `penstock doctor` does: it profiles the operators of every feed of a script, and describes the environment."""

from __future__ import annotations

from penstock.doctor.environment import Environment, environment
from penstock.doctor.picture import draw
from penstock.doctor.profile import Profiler
from penstock.doctor.report import Report, report_of

__all__ = ["Environment", "Profiler", "Report", "draw", "environment", "report_of"]
