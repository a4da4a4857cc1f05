"""Messages about jobs' flows and their moves between paths; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from syntony.wire.bounds import MAX_COUNT, MAX_VIEWS, Count, Port, Signed, Text, Word
from syntony.wire.query import Query

MAX_HOPS = 255
"""IP's own limit."""
MAX_DELAYS = 65_536
"""Most probe flows of a host in one report."""

# --- agent to controller ---


EXPIRED = "expired "
"""Begin of the result of an order that reached its agent after it had expired."""
REDRAWN = "redrawn-"
"""Begin of the name of a plain connection on a detour by other ports between its own NICs."""


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """One subflow of a managed connection, or one plain TCP connection, as one of its two ends sees
    it."""

    job: Word
    connection: Word
    """MPTCP token on that host, hexadecimal; of plain TCP ``tcp-``, or `REDRAWN`, and both ports;
    of queue pairs ``rdma-`` and the process."""
    nic: Word
    local: Word
    local_port: Port
    remote: Word
    remote_port: Port
    dialled: bool
    """This end made the connection, so only it can give the flow another source port."""
    movable: bool
    """… and may do so: the agent acts, and the job is among those that may be moved."""
    moving: bool
    tx_bps: Count
    """Acknowledged by the peer, over the last window of half a second or so."""
    rx_bps: Count
    windows: Count
    """Whole windows measured since the subflow began."""
    paceable: bool = False
    """Its host can pace what this end sends."""
    pace_bps: Count = 0
    """Rate to which it is paced, frames on the wire; 0: not paced."""
    hops: Annotated[tuple[Word, ...], Meta(max_length=MAX_HOPS)]
    """Addresses of the hops of what this end sends, empty text for a silent hop; empty: not known
    (yet)."""
    process: Count = 0
    """PID on that host of a process that sends by queue pairs: the flow is all of them between the
    two addresses, and its ports are 0. 0: the flow is a socket's."""
    left: bool = False
    """None of its queue pairs carries data now."""
    moved_to: tuple[Word, Word] | None = None
    """Local and remote address of the rail of this process that it sends by instead, by order: its
    rate is in that one's."""
    rtt_ns: Count = 0
    """The kernel's smoothed round trip; 0: not known."""
    retransmits: Count = 0
    """Segments sent again since it began."""
    dscp: Annotated[int, Meta(ge=-1, le=63)] = -1
    """Of what this end sends, 0 to 63; -1: not known."""
    window_limited_ns: Annotated[int, Meta(ge=-1, le=MAX_COUNT)] = -1
    """Its data waited for the peer to open its window since it began; -1: not known."""


class ProbeDelay(msgspec.Struct, frozen=True, kw_only=True):
    """One second of one probe flow, in the direction in which its own host sends."""

    nic: Word
    """Of the reporting host."""
    dst: Word
    """``host/nic``."""
    sport: Port
    at_ns: Signed
    """End of the second, fleet time."""
    least_ns: Signed
    p50_ns: Signed
    p99_ns: Signed


class MoveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a `Move`; reported repeatedly until newer ones replace it."""

    move_id: Word
    result: Text
    """``moved``, ``reverted``, or why it was not carried out."""
    tried: bool = True
    """False: nothing was done; a later attempt may succeed."""


class FlowsReport(msgspec.Struct, frozen=True, kw_only=True, tag="flows"):
    """The agent's managed subflows now; newest only, never spooled. Sent also when there are none:
    it says that this agent listens to this controller."""

    at_ns: Signed
    """Fleet time."""
    flows: Annotated[tuple[FlowView, ...], Meta(max_length=MAX_VIEWS)]
    outcomes: Annotated[tuple[MoveOutcome, ...], Meta(max_length=MAX_VIEWS)]
    delays: Annotated[tuple[ProbeDelay, ...], Meta(max_length=MAX_DELAYS)]
    """Of the newest second, to peers that managed flows go to."""
    join_port: Port
    """TCP port where peers of this agent are joined: candidates' ways are to it."""
    left_out: Count = 0
    """Subflows beyond `bounds.MAX_VIEWS`."""
    redrawn: Annotated[tuple[FlowView, ...], Meta(max_length=MAX_VIEWS)] = ()
    """Plain TCP on a detour by other ports between its own NICs. It is only recorded."""
    late_paces: Count = 0
    """`Paces` that arrived after they had expired and were refused, since the agent started."""


# --- controller to agent ---


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Take one subflow to another path, by another source port; or queue pairs of one rail to
    another rail of their process."""

    move_id: str
    """Unique in the fleet and for ever."""
    connection: str
    """MPTCP token on the agent's host, hexadecimal; of queue pairs as in `FlowView`."""
    local: str
    local_port: int
    remote: str
    remote_port: int
    port: int
    """Source port of the new subflow; 0: of queue pairs."""
    expires_ns: int
    """Fleet time from which on it must not be obeyed any more."""
    evidence: str
    process: int = 0
    """As in `FlowView`."""
    instead: tuple[str, str] | None = None
    """Of queue pairs: addresses of the rail to send by; their own: they may return."""


class Moves(msgspec.Struct, frozen=True, kw_only=True, tag="moves"):
    """Orders to one agent, and what is known of earlier ones."""

    moves: tuple[Move, ...]
    helped: tuple[str, ...] = ()
    """Moves that helped: they stay, even without a controller."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Rate limit of one subflow, or of one process's queue pairs between two addresses."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    bps: int
    """Frames on the wire."""
    process: int = 0
    """As in `FlowView`."""


class Paces(msgspec.Struct, frozen=True, kw_only=True, tag="paces"):
    """All rate limits of the agent's host; other flows are not limited. Sent repeatedly."""

    paces: tuple[Pace, ...]
    expires_ns: int
    """Fleet time at which the limits end unless they are renewed."""


# --- questions and commands from the command line ---


class TrafficQuery(Query["Traffic"], frozen=True, kw_only=True, tag="traffic"):
    """Jobs' flows, the links that they load, and whether they may be moved."""

    job: str = ""


class MovesQuery(Query["MoveList"], frozen=True, kw_only=True, tag="moves"):
    """The newest moves of flows, newest last."""

    job: str = ""
    limit: int = 200


class PlacementCommand(Query["Traffic"], frozen=True, kw_only=True, tag="placement"):
    """Set the mode of placement or pacing from now on, over restarts."""

    what: str = "placement"
    """Or ``pacing``."""
    mode: str
    by: str
    why: str = ""


# --- answers ---


class PlacedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One flow of a managed job."""

    flow: str
    job: str
    src: str
    """NIC, ``host/nic``, of the end that made the connection."""
    dst: str
    sport: int
    dport: int
    path: str
    """Switches it crosses, where it sends much; empty: not known (yet)."""
    tx_bps: int
    rx_bps: int
    paths: int
    """It could have so many, the present one included; 0: not known yet, or it sends little."""
    movable: bool
    moving: bool
    owd_p50_ns: int | None
    """One-way delay of probes that take the same links, over the newest second known, the worse of
    the directions in which the flow sends much."""
    owd_p99_ns: int | None
    owd_at_ns: int
    """End of that second, fleet time; 0: there is none."""
    priority: str = "standard"
    """Class of its job."""
    tx_pace_bps: int = 0
    """Rate to which `src` is paced, frames on the wire; 0: not paced."""
    rx_pace_bps: int = 0
    """Rate to which `dst` is paced."""


class LinkLoadView(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link that flows cross."""

    link: str
    bps: int
    """The sum of managed flows' rates."""
    capacity_bps: int
    """0: not known."""
    flows: int
    queue_ns: int | None = None
    """How long probes that cross it wait, over a second that is not older than five."""
    paced_bps: int = 0
    """What its flows may send together; 0: it is not shared out."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True, tag="traffic"):
    mode: str
    """``off``, ``observe``, ``act``."""
    deciding: bool
    why: str
    """Why it does not decide, if so."""
    now_ns: int
    """Fleet time."""
    flows: tuple[PlacedFlow, ...]
    links: tuple[LinkLoadView, ...]
    pacing: str = "off"
    """``off``, ``observe``, ``act``."""


class MoveView(msgspec.Struct, frozen=True, kw_only=True):
    """One move, ordered or only proposed."""

    move_id: str
    ts_ns: int
    """Fleet time of the order."""
    flow: str
    job: str
    src: str
    dst: str
    old: str
    new: str
    cause: str
    evidence: str
    result: str
    """``ordered``, ``moved`` (on trial), ``helped``, ``undone``, ``would move``, or why not."""
    took_ns: int
    """From the order until the agent's report that it was done; 0: not known."""


class MoveList(msgspec.Struct, frozen=True, kw_only=True, tag="moves"):
    moves: tuple[MoveView, ...]
