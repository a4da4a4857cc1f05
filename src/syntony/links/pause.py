"""Pause, congestion marks and stalls of one port over a window: which side to look at.

A pause frame *received* means that the network (or the peer beyond it) cannot take more: look
there. One *sent* means that this host cannot: look at PCIe, memory, CPU. The two are confused so
often that the verdict is spelt out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from syntony.links.counters import Blame

_PAUSE = re.compile(r"ethtool:(rx|tx)_prio(\d)_pause(_duration)?")
_WORTH_TELLING = 0.001
"""Share of the window spent paused below which nobody waits for it."""
_FRAMES_PER_S = 10.0
"""Where durations are not counted: fewer pause frames than this are ordinary flow control."""


class Verdict(NamedTuple):
    """One direction of blame."""

    blame: Blame
    summary: str
    evidence: tuple[str, ...]
    """Counters and their increases, as ``name +n``."""


def verdicts(increases: Mapping[str, int | None], window_ns: int) -> tuple[Verdict, ...]:
    """What the increases of one port's counters (by key) over a window say; none is the rule."""
    known = {key: value for key, value in increases.items() if value}
    found = [
        _paused(known, "rx", window_ns),
        _paused(known, "tx", window_ns),
        _one(known, Blame.HOST, "congestion control ignores notifications here: enable it (rp)",
             "ib/hw_counters:rp_cnp_ignored"),
        _one(known, Blame.HOST, "the application posts receives too late, or too few",
             "ib/hw_counters:out_of_buffer"),
        _one(known, Blame.HOST, "the port's receive buffer overflows: the host takes too slowly",
             "ethtool:rx_discards_phy", "net/statistics:rx_missed_errors"),
        _one(known, Blame.NETWORK, "packets were lost, reordered or corrupted on the way here",
             "ib/hw_counters:out_of_sequence", "ib/hw_counters:packet_seq_err",
             "ib/hw_counters:rx_icrc_encapsulated"),
    ]  # fmt: skip
    return tuple(verdict for verdict in found if verdict)


def _paused(known: Mapping[str, int], way: str, window_ns: int) -> Verdict | None:
    frames: dict[int, int] = {}
    paused_us: dict[int, int] = {}
    for key, value in known.items():
        match = _PAUSE.fullmatch(key)
        if match and match[1] == way:
            (paused_us if match[3] else frames)[int(match[2])] = value
    share = max(paused_us.values(), default=0) * 1e3 / window_ns
    rate = max(frames.values(), default=0) * 1e9 / window_ns
    if share < _WORTH_TELLING and (paused_us or rate < _FRAMES_PER_S):
        return None
    how = f"{share:.1%} of the time" if paused_us else f"{rate:.0f} times a second"
    evidence = tuple(
        f"{key.partition(':')[2]} +{value}"
        for key, value in sorted(known.items())
        if (match := _PAUSE.fullmatch(key)) and match[1] == way
    )
    if way == "rx":
        return Verdict(
            Blame.NETWORK, f"the network pauses this port {how}: look at its receivers", evidence
        )
    return Verdict(
        Blame.HOST, f"this host pauses the network {how}: look at PCIe and CPU", evidence
    )


def _one(known: Mapping[str, int], blame: Blame, summary: str, *keys: str) -> Verdict | None:
    evidence = tuple(f"{key.partition(':')[2]} +{known[key]}" for key in keys if key in known)
    return Verdict(blame, summary, evidence) if evidence else None
