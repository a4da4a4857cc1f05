"""What can break in a lab: one class per kind of fault, each with an undo."""

from syntony.lab.faults.base import Fault, Order, Site, TargetKind
from syntony.lab.faults.catalog import KINDS, parse_order
from syntony.lab.faults.registry import Registry

__all__ = ["KINDS", "Fault", "Order", "Registry", "Site", "TargetKind", "parse_order"]
