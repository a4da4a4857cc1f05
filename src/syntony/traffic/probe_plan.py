"""The remote NICs in a host's probe plan, with all their addresses and their hosts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from syntony.traffic.pairs import Pair, WatchedFlow


class PlannedNics:
    """The NICs of one plan.

    Args:
        flows: with the current names of local NICs.
    """

    def __init__(self, flows: Iterable[WatchedFlow] = ()) -> None:
        self.flows = {flow.flow_id: flow for flow in flows}
        self._of: dict[str, WatchedFlow] = {}
        """Probed address → any flow to it."""
        self._probed: dict[str, str] = {}
        """Address of a remote NIC that is not probed → the one that is."""
        self._hosts: dict[str, dict[str, int]] = defaultdict(dict)
        """Host → addresses of its NICs → rail."""
        for flow in self.flows.values():
            self._of.setdefault(flow.remote, flow)
            self._probed |= dict.fromkeys(flow.others, flow.remote)
            self._hosts[flow.host] |= dict.fromkeys((flow.remote, *flow.others), flow.remote_rail)

    def renamed(self, old: str, new: str) -> PlannedNics:
        """The same plan with one local NIC renamed."""
        return PlannedNics(
            flow._replace(nic=new) if flow.nic == old else flow for flow in self.flows.values()
        )

    def shortest(self, rtts: Mapping[int, int]) -> dict[Pair, int]:
        """The shortest round trip of each pair's flows, in ns."""
        found: dict[Pair, int] = {}
        for flow_id, rtt_ns in rtts.items():
            flow = self.flows.get(flow_id)
            if flow is not None:
                pair = flow.nic, flow.remote
                found[pair] = min(rtt_ns, found.get(pair, rtt_ns))
        return found

    def probed(self, remote: str) -> str:
        """The probed address of the remote NIC that has this address."""
        return self._probed.get(remote, remote)

    def aliases(self, remotes: Collection[str]) -> set[str]:
        """These probed addresses, and all others of the same NICs."""
        return {*remotes, *(other for other, each in self._probed.items() if each in remotes)}

    def known(self, remote: str) -> WatchedFlow | None:
        """A flow to the remote NIC with this address; None if it is not planned."""
        return self._of.get(self.probed(remote))

    def addresses_of(self, remote: str) -> dict[str, int]:
        """All addresses of the host with this one → rail; empty if it is not planned."""
        known = self.known(remote)
        return dict(self._hosts[known.host]) if known is not None else {}
