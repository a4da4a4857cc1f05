"""The faults that a lab can inject, one class for each kind. Each can be undone."""

from syntony.lab.faults.base import FaultOrder, LabFault, Site, TargetKind
from syntony.lab.faults.catalog import KINDS, parse_order
from syntony.lab.faults.registry import Registry

__all__ = ["KINDS", "FaultOrder", "LabFault", "Registry", "Site", "TargetKind", "parse_order"]
