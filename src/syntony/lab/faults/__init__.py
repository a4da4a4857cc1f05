"""The faults that a lab can inject, one class for each kind. Each can be undone."""

from syntony.lab.faults.base import FaultContext, FaultOrder, LabFault, TargetKind
from syntony.lab.faults.catalog import KINDS, parse_order
from syntony.lab.faults.registry import Registry

__all__ = [
    "KINDS",
    "FaultContext",
    "FaultOrder",
    "LabFault",
    "Registry",
    "TargetKind",
    "parse_order",
]
