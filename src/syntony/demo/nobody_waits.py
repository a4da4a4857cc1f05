"""The act "nobody waits": two jobs share a fabric, contention is removed while they run."""

from __future__ import annotations

from syntony.demo.claims import DemoClaim
from syntony.demo.stage import Stage
from syntony.lab.drill import contention
from syntony.lab.drill.contention_figures import Figures, figures
from syntony.model import S

TIMES = contention.ContentionTimes(alone_ns=3 * S, before_ns=5 * S, after_ns=10 * S)
FASTER = 1.1
"""Claimed least gain where ECMP congested a link, on a busy machine of two cores. Figures of an
idle one are in docs/reference/figures.md."""
NO_WORSE = 0.9
"""Normal variation of two jobs' throughput over five seconds."""
CROWDED = 1.0
"""Minimum of shared links, on average, for there to be contention to resolve."""


def nobody_waits(stage: Stage) -> tuple[DemoClaim, ...]:
    """Nobody waits: two jobs whose flows ECMP put onto the same links; then Syntony acts."""
    stage.end_lab()
    stage.screen.say(
        "two all-reduce jobs in a lab of their own: four hosts, two rails, two spines, 40 Mb/s; "
        "a minute goes into learning where each source port leads"
    )
    options = contention.ContentionOptions(times=TIMES)
    return claims(figures(contention.drill(options, stage.screen.say)))


def claims(found: Figures) -> tuple[DemoClaim, ...]:
    """Claims on the figures of one drill. Pure."""
    before, after = found.before, found.after
    resolved = after.shared_links < CROWDED
    held_up = f" ({found.held_up})" if found.held_up else ""
    right = DemoClaim(
        text="flows are moved under two running jobs: both finish, every result right",
        measured=f"{found.moves} moves of {found.flows} flows, {found.wrong} wrong, "
        f"{found.lost} connections lost",
        held=found.finished and found.wrong == found.lost == 0,
    )
    if before.shared_links < CROWDED:
        lucky = DemoClaim(
            text="ECMP was lucky this time, hardly two flows on one link: at most one move a "
            "flow, and no job the worse for it",
            measured=f"{found.moves} moves of {found.flows} flows, {found.gain:.2f} × ECMP",
            held=found.moves <= found.flows and found.gain >= NO_WORSE,
        )
        return (right, lucky)
    return (
        right,
        DemoClaim(
            text=f"contention goes: at least {FASTER:.1f} × ECMP",
            measured=f"{found.gain:.2f} ×: {before.total_mbps:.0f} → {after.total_mbps:.0f} Mb/s; "
            f"each alone {found.alone_mbps:.0f}, the wires {found.optimum_mbps:.0f}",
            held=found.gain >= FASTER,
        ),
        DemoClaim(
            text="and so does the queue: no link between switches is shared any more",
            measured=f"{before.shared_links:.1f} → {after.shared_links:.1f} shared links, "
            f"one-way delay p99 {_ms(before.owd_p99_ms)} → {_ms(after.owd_p99_ms)}"
            + ("" if resolved else held_up),
            held=resolved,
        ),
    )


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} ms"
