"""Fleet time for programs, and the pure room that finds it.

    from syntony import clock

    reading = clock.now()              # earliest_ns, latest_ns, fleet_ns, status, bound_ns
    clock.to_fleet(local_ns)           # of a past CLOCK_REALTIME stamp
    clock.offset("h0", "h1")           # clock of h1 minus clock of h0
    clock.wait_until_bound(1_000)      # at start-up: until the bound is 1 µs

The modules below this package are pure: pair estimator → network solve → timeline → served time.
The functions above read shared memory; they live in `syntony.io.fleet_clock` and are loaded at
their first use (docs/decisions/0045).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony.io.fleet_clock import (
        FleetClock,
        Offset,
        Reading,
        local_ns,
        now,
        offset,
        to_fleet,
        wait_until_bound,
    )

__all__ = [
    "FleetClock",
    "Offset",
    "Reading",
    "local_ns",
    "now",
    "offset",
    "to_fleet",
    "wait_until_bound",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import syntony.io.fleet_clock

    found = globals()[name] = getattr(syntony.io.fleet_clock, name)
    return found
