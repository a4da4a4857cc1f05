"""Why a job is slow: bundles of recorded telemetry, and rules that name the cause. Pure."""

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
