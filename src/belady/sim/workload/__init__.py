"""Sources of requests: recorded traces and synthetic agents. Open loops know all arrivals, closed ones react."""

from belady.sim.workload.base import Call, Source, WorkloadError
from belady.sim.workload.build import WorkloadConfig, build

__all__ = ["Call", "Source", "WorkloadConfig", "WorkloadError", "build"]
