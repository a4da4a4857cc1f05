"""Finds out why a job is slow: bundles of recorded telemetry, and rules that name the cause.
Everything here is pure: no clock, file or socket; `syntony why` and the controller call it."""

from syntony.workload.bundle import Bundle, Gap, Manifest
from syntony.workload.diagnose import Diagnosis, diagnose
from syntony.workload.verdict import Alternative, BlastRadius, Evidence, FaultClass, Verdict

__all__ = [
    "Alternative",
    "BlastRadius",
    "Bundle",
    "Diagnosis",
    "Evidence",
    "FaultClass",
    "Gap",
    "Manifest",
    "Verdict",
    "diagnose",
]
