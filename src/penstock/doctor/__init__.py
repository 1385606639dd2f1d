"""What `penstock doctor` does: it profiles the operators of every feed of a script, and describes the environment."""

from __future__ import annotations

from penstock.doctor.environment import Environment, environment
from penstock.doctor.profile import Profiler
from penstock.doctor.report import Report, draw, report_of

__all__ = ["Environment", "Profiler", "Report", "draw", "environment", "report_of"]
