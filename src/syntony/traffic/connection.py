"""State of one MPTCP connection: its subflows, and where its peer can be joined. Pure."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Announce, Cause, Create, Reason, Steer, Withdraw
from syntony.traffic.meter import Meter
from syntony.traffic.moving import Guard, Moving
from syntony.traffic.policy import Policy

FIRST_SUBFLOW_ID, LAST_SUBFLOW_ID = 32, 255
"""Address ids of this host's subflows, one each: the kernel keeps one address and port per id until
it is changed. Below are the ids of announced NICs: rail + 1."""


LOSSY_NS = 5 * S
"""A flow that lost segments and continued within this time is probably in a full queue: further
losses say less about its path."""
LOSSY_BACKOFF = 2
"""Such a flow must also lose two retransmissions by the timer, 200 and 400 ms apart. In a queue
that drops every third segment that happens after one loss in nine."""
LOSSY_SILENT_NS = 500 * MS
"""… and with a shortened timer (`ShortenTimeout`) this long must pass: losses of a queue within
150 ms count as one."""


ANNOUNCED_NS = 1 * S
"""An announcement that has not arrived this long after the connection was made counts as missed:
the peer's kernel repeats it only until this kernel has it, so an agent started later never gets
it."""
PARTIAL_LATE_NS = 50 * MS
"""Data acknowledged this much (and a round trip) after a probe's last reply were sent after the
probe's path was lost: a watched flow is probed at least every 50 ms."""
UNREPEATED = 6
"""Factor of the timeout if the kernel has retransmitted nothing: its timer fires 200 ms and a round
trip after the last acknowledgement (TCP_RTO_MIN), so otherwise the host itself is late."""


class SubflowState(enum.Enum):
    COMING = enum.auto()
    UP = enum.auto()


@dataclass(slots=True, eq=False)
class Slowness:
    """State of one subflow for `standby`."""

    reason: Reason | None = None
    """Why it is on standby; None if it is not."""
    since_window: int = 0
    """Number of its window in which a subflow of the connection was put on standby, or taken
    back."""
    before_bps: float = 0.0
    """Rate of the connection when it was put on standby; 0 once this is known to help."""
    excess_ns: int = 0
    """How much longer its round trip was than the fastest one's at that time."""


@dataclass(slots=True, eq=False)
class Subflow:
    flow: FourTuple
    nic: str | None
    """The local NIC; None if the address is on none that is managed."""
    state: SubflowState
    since_ns: int
    local_id: int = 0
    """Id of its local address: withdrawing it ends every subflow with this id."""
    rate_bps: int = 0
    meter: Meter = field(default_factory=Meter)
    acked: int = -1
    retransmits: int = 0
    """At the last progress."""
    retransmits_now: int = 0
    lossy_ns: int | None = None
    """When it last made progress after a loss."""
    acked_ns: int = field(init=False)
    moved_ns: int = 0
    """When any of its data were last acknowledged, as far as is known."""
    seen_ns: int = field(init=False)
    stalled: Reason | None = None
    slow: Slowness = field(default_factory=Slowness)
    requested: Create | None = None
    """The order that is creating it."""
    one_of: bool = False
    """One of several joins that were started at once: only the first that is up is kept and
    reported."""
    reported: str = ""
    """The cause that has already been reported to operators while no action is allowed."""

    def __post_init__(self) -> None:
        self.acked_ns = self.seen_ns = self.since_ns

    @property
    def pair(self) -> tuple[str, str]:
        """The local NIC ("" if it is not managed) and the remote address."""
        return self.nic or "", self.flow.remote

    @property
    def on_standby(self) -> bool:
        """Whether it carries data only when no other subflow can."""
        return self.slow.reason is not None

    def take(self, sample: FlowSample, policy: Policy, partial_ns: int | None = None) -> bool:
        """Take a sample; returns whether it shows a new stall.

        Stalled: data under way and no acknowledgement for longer than the timeout, according to
        both the kernel and this process, and the kernel has retransmitted meanwhile; without a
        retransmission, `UNREPEATED` times as long. For a flow that loses segments all the time only
        retransmissions by the timer count. Neither is required if probes on other ports between the
        same NICs were lost as well (`partial_ns`, `Health.partial_ns`), and no data of the flow
        have been acknowledged since.
        """
        self.meter.take(sample)
        elapsed_ns = sample.at_ns - self.seen_ns
        if self.acked >= 0 and elapsed_ns > 0:
            now_bps = max(0, sample.bytes_acked - self.acked) * 8 * S // elapsed_ns
            # Averaged over the last second, for any sampling interval.
            share = min(1.0, elapsed_ns / S)
            self.rate_bps += int((now_bps - self.rate_bps) * share)
        self.seen_ns = max(self.seen_ns, sample.at_ns)
        self.retransmits_now = sample.retransmits
        if sample.bytes_acked != self.acked or not sample.unacked:
            if 0 <= self.acked < sample.bytes_acked and sample.retransmits > self.retransmits:
                self.lossy_ns = sample.at_ns
            if 0 <= self.acked < sample.bytes_acked:
                self.moved_ns = sample.at_ns - sample.last_ack_ns
            self.acked, self.acked_ns = sample.bytes_acked, sample.at_ns
            self.retransmits = sample.retransmits
            self.stalled = None
            return False
        if self.stalled is not None or self.state is not SubflowState.UP:
            return False
        heard_ns = sample.at_ns - sample.last_ack_ns
        partial = (
            partial_ns is not None and heard_ns <= partial_ns + PARTIAL_LATE_NS + sample.rtt_ns
        )
        lossy = (
            self.lossy_ns is not None and sample.at_ns - self.lossy_ns < LOSSY_NS and not partial
        )
        if lossy and sample.backoff < LOSSY_BACKOFF:
            return False
        silent_ns = min(sample.last_ack_ns, sample.at_ns - self.acked_ns)
        if lossy and silent_ns < LOSSY_SILENT_NS:
            return False
        timeout_ns = max(policy.silence_ns, policy.silence_rtts * sample.rtt_ns)
        repeated = sample.retransmits > self.retransmits or sample.backoff > 0
        if silent_ns < (timeout_ns if repeated or partial else UNREPEATED * timeout_ns):
            return False
        evidence = (
            f"{sample.unacked} segments unacknowledged for {silent_ns // MS} ms, "
            f"{sample.retransmits - self.retransmits} retransmitted, backoff {sample.backoff}"
            f"{', as long as probes on other ports' if partial else ''}"
        )
        self.stalled = Reason(Cause.FABRIC, evidence, sample.at_ns, self.acked_ns)
        return True

    def excuse(self, now_ns: int) -> None:
        """This process was paused: silence counts from now."""
        self.acked_ns = now_ns
        self.stalled = None


class RemoteAddress:
    """An address of the peer to which a subflow can be joined."""

    __slots__ = ("address", "port", "rail", "withdrawn")

    def __init__(self, address: str, port: int, rail: int) -> None:
        self.address = address
        self.port = port
        self.rail = rail
        self.withdrawn: Reason | None = None


TAKEN = 8
"""Taken ports in a row that count as one failed join: with half of all ports taken that happens
once in 256 times."""


TOGETHER_PARTIAL = 4
"""Parallel joins on a partially reachable pair: three ports of four may cross the faulty part, in
either direction, so one after the other would take four rounds, at times ten."""
AT_ONCE, AT_ONCE_PARTIAL = 3, 24
"""Failed joins, each from another port, before the next one waits: 24 ports all cross the faulty
part in one of a thousand cases."""


class FailedAttempts:
    """Failed attempts in a row to make a subflow over one pair, or to carry out one order."""

    __slots__ = ("began_ns", "count", "next_ns", "taken")

    def __init__(self) -> None:
        self.count = 0
        self.next_ns = 0
        self.began_ns = 0
        """When the one that failed last began, as far as that is known."""
        self.taken = 0
        """Ports drawn that were taken."""

    @property
    def reported(self) -> bool:
        """Whether this failure is logged for operators: the first, second, fourth… in a row are."""
        return self.count & (self.count - 1) == 0

    def port_taken(self, now_ns: int, policy: Policy) -> None:
        """The port was taken: another one may be tried at once, up to `TAKEN` times."""
        self.taken += 1
        if self.taken % TAKEN == 0:
            self.failed(now_ns, policy)

    def failed(
        self, now_ns: int, policy: Policy, at_once: int = AT_ONCE, began_ns: int | None = None
    ) -> None:
        """Count a failed join: after several in a row the next waits, longer each time.

        Args:
            began_ns: when it was begun; None: now.
        """
        wait_ns = policy.join_ns << min(self.count - at_once, 32) if self.count >= at_once else 0
        self.count += 1
        self.began_ns = now_ns if began_ns is None else began_ns
        self.next_ns = now_ns + min(wait_ns, policy.join_max_ns)

    def free_from_ns(self, revived_ns: int) -> int:
        """When the next attempt may be made over a path that recovered at an instant: a join that
        was begun before, and whose packets were lost, is no reason to wait."""
        return self.next_ns if self.began_ns >= revived_ns else 0

    def succeeded(self) -> None:
        self.count = 0

    def restart(self) -> None:
        """The cause of the failures is gone."""
        self.count = self.next_ns = 0


class MptcpConnection:
    """One MPTCP connection, identified by its local token."""

    def __init__(self, token: int, now_ns: int, *, accepted: bool) -> None:
        self.token = token
        self.accepted = accepted
        self.job: str | None = None
        """None: not known yet; empty: not managed."""
        self.subflows: dict[FourTuple, Subflow] = {}
        self.remotes: dict[int, RemoteAddress] = {}
        """By the peer's address id; below 0: from the plan, not known to be announced."""
        self.announced: dict[str, int] = {}
        """Local addresses announced to the peer: NIC → address id."""
        self.attempts: dict[tuple[str, str], FailedAttempts] = {}
        self.refused: dict[str, FailedAttempts] = {}
        """Orders that the kernel refused, by their object."""
        self.lost: dict[tuple[str, str], Reason] = {}
        """Pairs that were left, and why."""
        self.stalls: dict[tuple[str, str], HoldDown] = {}
        """Pairs on which a subflow stalled; held down from the second time on."""
        self.slow: dict[tuple[str, str], HoldDown] = {}
        """Pairs whose subflow was put on standby, with the time for which it stays as it is."""
        self.streams: dict[tuple[str, str], HoldDown] = {}
        """… and for which it is not tried again with a job that seems to stream."""
        self.local = ""
        """Address of its first subflow; all others have the same family."""
        self.local_port = 0
        self.announced_ns = now_ns
        self.announced_by_ns = now_ns + ANNOUNCED_NS
        """By then the peer has announced its addresses, or this agent has missed it."""
        self.alone_ns: int | None = None
        """Since when it has no living subflow, or only some that may be dying."""
        self.short_since_ns: int | None = None
        """Since when a rail has had no living path."""
        self.degraded: Reason | None = None
        """Set once that has lasted for `DEGRADED_NS`."""
        self.called = False
        """Whether every address was announced to the peer since then."""
        self.ended: deque[FourTuple] = deque(maxlen=64)
        """Subflows that were ended: the kernel lists them until a last acknowledgement."""
        self.seen_ns = now_ns
        self.guessed = False
        """Whether `accepted` is a guess, because the connection is older than this process."""
        self.inherited = False
        """Found in the kernel's listing: a previous agent may have put subflows on standby."""
        self.moving: dict[tuple[str, str], Moving] = {}
        """Moves under way, at most one for each pair."""
        self.guards: dict[FourTuple, Guard] = {}
        """Moved subflows that are not yet known to be better, by present 4-tuple."""
        self.placed: dict[tuple[str, str], int] = {}
        """Pair → source port that the controller last chose for it: a good one for a new subflow of
        failover on this pair."""
        self._next_id = FIRST_SUBFLOW_ID

    def new_id(self) -> int:
        """An address id for a new subflow, not one in use."""
        used = {subflow.local_id for subflow in self.subflows.values()}
        while True:
            found, self._next_id = self._next_id, self._next_id + 1
            if self._next_id > LAST_SUBFLOW_ID:
                self._next_id = FIRST_SUBFLOW_ID
            if found not in used:
                return found

    def up(self) -> list[Subflow]:
        """Subflows that can carry data."""
        return [each for each in self.subflows.values() if each.state is SubflowState.UP]

    def uses(self, pair: tuple[str, str]) -> bool:
        """Whether a subflow is between a NIC and a remote address, or about to be."""
        return any(each.pair == pair for each in self.subflows.values())

    def carries(self, pair: tuple[str, str]) -> bool:
        """Whether a subflow of this pair is up and not stalled."""
        return any(each.pair == pair and each.stalled is None for each in self.up())

    def tries(self, nic: str, remote: str) -> FailedAttempts:
        """Failed joins of one pair."""
        return self.attempts.setdefault((nic, remote), FailedAttempts())

    def refusals(self, order: Steer) -> FailedAttempts:
        """Refusals of orders of this kind and object."""
        about = order.address if isinstance(order, Announce | Withdraw) else order.flow
        return self.refused.setdefault(f"{type(order).__name__} {about}", FailedAttempts())

    def forget_remote(self, address: str) -> None:
        """Drop one of the peer's addresses."""
        self.remotes = {at: its for at, its in self.remotes.items() if its.address != address}

    def joined(self, address: str, remote_id: int) -> None:
        """Take the peer's id of an address that was joined without an announcement."""
        for known_as, remote in list(self.remotes.items()):
            if known_as < 0 and remote.address == address and remote_id not in self.remotes:
                self.remotes[remote_id] = self.remotes.pop(known_as)

    def free_from_ns(self, nic: str, remote: str) -> int:
        """When the next subflow over a pair may be tried."""
        stall = self.stalls.get((nic, remote))
        held_ns = stall.until_ns if stall is not None and stall.repeated else 0
        return max(self.tries(nic, remote).next_ns, held_ns)

    def slow_until_ns(self, pair: tuple[str, str]) -> int:
        """Until when a pair's subflow stays as it is, on standby or not."""
        hold = self.slow.get(pair)
        return hold.until_ns if hold is not None else 0

    def withdrawn(self, remote: str) -> Reason | None:
        """Why an address was withdrawn by the peer; None if it was not."""
        for known in self.remotes.values():
            if known.address == remote and known.withdrawn is not None:
                return known.withdrawn
        return None
