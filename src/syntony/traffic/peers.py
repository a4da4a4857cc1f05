"""Addresses at which a connection's peer can be joined: announced, or known from the plan. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from syntony.model.paths import ip_version
from syntony.traffic.connection import MptcpConnection, RemoteAddress, Subflow
from syntony.traffic.health import Health
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import Policy


class JoinPair(NamedTuple):
    """A pair over which a subflow can be made."""

    nic: str
    local: str
    remote: RemoteAddress

    @property
    def pair(self) -> tuple[str, str]:
        return self.nic, self.remote.address


class Peers:
    """Addresses of peers, for any connection. Keeps no state."""

    def __init__(self, policy: Policy, health: Health) -> None:
        self._policy = policy
        self._health = health

    def unannounced(self, conn: MptcpConnection, family: int) -> dict[str, tuple[int, int]]:
        """Planned addresses of the peer whose announcement was not received → rail and port to
        join at."""
        reported = {remote.address for remote in conn.remotes.values()}
        return {
            address: (rail, join_port(self._policy, address) or flow.remote_port)
            for flow in conn.subflows
            for address, rail in self._health.plan.addresses_of(flow.remote).items()
            if address not in reported and rail >= 0 and ip_version(address) == family
        }

    def assume(
        self,
        conn: MptcpConnection,
        family: int,
        may: Callable[[str, int], bool] = lambda _address, _rail: True,
    ) -> None:
        """Treat planned addresses of the peer as announced."""
        for address, (rail, port) in self.unannounced(conn, family).items():
            if may(address, rail):
                conn.remotes[-rail - 1] = RemoteAddress(address, port, rail)

    def is_across(self, conn: MptcpConnection, subflow: Subflow) -> bool:
        rails = {nic.name: nic.rail for nic in self._health.nics()}
        far = next((r.rail for r in conn.remotes.values() if r.address == subflow.flow.remote), -1)
        return far >= 0 and rails.get(subflow.nic or "", far) != far

    def withdrawn_retry_ns(self, way: JoinPair) -> int:
        """When to retry an address that the peer has withdrawn, in case a new announcement was
        missed. Sooner if probes to it are answered."""
        withdrawn = way.remote.withdrawn
        if withdrawn is None:
            return 0
        alive = self._health.reaches(*way.pair) and not self._health.unanswered(*way.pair)
        after_ns = self._policy.join_max_ns if alive else self._policy.hold_down_max_ns
        return withdrawn.at_ns + after_ns

    def join_pairs(
        self, conn: MptcpConnection, family: int, *, across: bool = False
    ) -> Iterator[JoinPair]:
        """Pairs of NICs on one rail, or across rails."""
        for nic in self._health.nics():
            local = of_family(nic, family)
            if local is None:
                continue
            for remote in conn.remotes.values():
                fits = remote.rail >= 0 and ip_version(remote.address) == family
                if fits and (remote.rail != nic.rail) is across:
                    yield JoinPair(nic.name, local, remote)


def join_port(policy: Policy, address: str) -> int:
    """The port to announce; 0 means the connection's own. IPv6 addresses are announced without a
    port, because both and TCP's timestamps do not fit into one header."""
    return 0 if ip_version(address) == 6 else policy.port


def remote_at(conn: MptcpConnection, address: str) -> RemoteAddress | None:
    """How to join the peer at an address: as announced, or as it was reached before."""
    for remote in conn.remotes.values():
        if remote.address == address and remote.withdrawn is None:
            return remote
    for flow in conn.subflows:
        if flow.remote == address and not conn.accepted:
            return RemoteAddress(address, flow.remote_port, -1)
    return None


def of_family(nic: LocalNic, family: int) -> str | None:
    return next((each for each in nic.addresses if ip_version(each) == family), None)
