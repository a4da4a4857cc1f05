"""The share of a flow's round trips that belongs to one direction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ASYMMETRIC = 0.5
"""Of a round trip: what the directions of probes must differ by to divide it."""
FITS = 1.5
"""Of a round trip: what probes may need in both directions together; it follows them smoothed."""


class Second(NamedTuple):
    """Known values of one second of a flow."""

    at_ns: int
    rtt_ns: int
    """The kernel's smoothed value, which follows the segments' round trips."""
    there_ns: int | None
    """Measured one-way delay from NIC to NIC; None: not measured."""
    back_ns: int | None
    clk_err_ns: float
    """1-sigma of the measured value."""


def with_probes(
    second: Second, there_ns: float | None, back_ns: float | None, clk_err_ns: float
) -> Second:
    """A second in which none of the flow's segments was measured, with what probes of the flow's
    class needed between the same NICs, where these say clearly in which direction packets wait.
    Others do not say that the flow's own packets do not wait.

    Args:
        second: of the flow.
        there_ns: of probes in the flow's direction; None: not measured.
        back_ns: likewise, the other way.
        clk_err_ns: 1-sigma of both.
    """
    if _measured(second) or there_ns is None or back_ns is None:
        return second
    fits = min(there_ns, back_ns) >= 0 and there_ns + back_ns <= FITS * second.rtt_ns
    if not fits or abs(there_ns - back_ns) < ASYMMETRIC * second.rtt_ns:
        return second
    return second._replace(there_ns=round(there_ns), back_ns=round(back_ns), clk_err_ns=clk_err_ns)


def one_way(seconds: Sequence[Second]) -> tuple[float, float]:
    """The share of the first second's round trip that belongs to its direction, and the clocks'
    1-sigma of its inputs, both in ns.

    It is the segments' delay there and back from NIC to NIC, as far as that was measured, plus half
    of the rest, which cannot be attributed to a direction: waiting in hosts. Both directions
    together are the round trip. If one direction was measured, hosts are assumed to need what they
    needed when both were; if none was, the directions are assumed to differ as in the newest second
    with a measurement.

    Args:
        seconds: of one flow, newest first, at least one: as far back as they are comparable.
    """
    now = seconds[0]
    newest = next((each for each in seconds if _measured(each)), now)
    whole = next((each for each in seconds if len(_measured(each)) == 2), None)
    there_ns, back_ns = newest.there_ns, newest.back_ns
    if whole is not None:
        rest_ns = max(0, whole.rtt_ns - sum(_measured(whole)))
        there_ns, back_ns = (
            newest.rtt_ns - rest_ns - (other or 0) if one is None else one
            for one, other in ((there_ns, back_ns), (back_ns, there_ns))
        )
    elif there_ns is None or back_ns is None:  # there is no evidence that they differ
        there_ns = back_ns = 0
    found_ns = (now.rtt_ns + there_ns - back_ns) / 2
    least_ns, most_ns = now.there_ns or 0, now.rtt_ns - (now.back_ns or 0)
    error_ns = max(each.clk_err_ns for each in (now, newest, whole or now))
    return max(least_ns, min(most_ns, found_ns)), error_ns


def _measured(second: Second) -> list[int]:
    return [each for each in (second.there_ns, second.back_ns) if each is not None]
