"""Basic types that all rooms share: hosts, NICs, paths, clocks, identifiers, time and units.
Pure."""

from syntony.model.clocks import ClockState, Edge, SyntheticClockSpec, Timeline
from syntony.model.names import NicRef
from syntony.model.units import DAY_NS, HOUR_NS, MS, US, S, format_bps, format_ns, parse_duration_ns
from syntony.model.utc import Utc, UtcReading

__all__ = [
    "DAY_NS",
    "HOUR_NS",
    "MS",
    "US",
    "ClockState",
    "Edge",
    "NicRef",
    "S",
    "SyntheticClockSpec",
    "Timeline",
    "Utc",
    "UtcReading",
    "format_bps",
    "format_ns",
    "parse_duration_ns",
]
