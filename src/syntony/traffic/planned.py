"""Who is probed, as the plan says: remote NICs, all of their addresses, the hosts they are of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from syntony.traffic.pairs import Pair, WatchedFlow


class Planned:
    """One plan.

    Args:
        flows: with our NICs as they are called now.
    """

    def __init__(self, flows: Iterable[WatchedFlow] = ()) -> None:
        self.flows = {flow.flow_id: flow for flow in flows}
        self._of: dict[str, WatchedFlow] = {}
        """Probed address to any flow that goes there."""
        self._probed: dict[str, str] = {}
        """Address of a remote NIC that is not probed, to the one that is."""
        self._hosts: dict[str, dict[str, int]] = defaultdict(dict)
        """Host to its NICs' addresses and their rails."""
        for flow in self.flows.values():
            self._of.setdefault(flow.remote, flow)
            self._probed |= dict.fromkeys(flow.others, flow.remote)
            self._hosts[flow.host] |= dict.fromkeys((flow.remote, *flow.others), flow.remote_rail)

    def renamed(self, old: str, new: str) -> Planned:
        """The same with one of our NICs called otherwise."""
        return Planned(
            flow._replace(nic=new) if flow.nic == old else flow for flow in self.flows.values()
        )

    def shortest(self, rtts: Mapping[int, int]) -> dict[Pair, int]:
        """The least of each pair's figures, of those of its flows."""
        found: dict[Pair, int] = {}
        for flow_id, rtt_ns in rtts.items():
            flow = self.flows.get(flow_id)
            if flow is not None:
                pair = flow.nic, flow.remote
                found[pair] = min(rtt_ns, found.get(pair, rtt_ns))
        return found

    def probed(self, remote: str) -> str:
        """The address of a remote NIC that is probed, for any that it has."""
        return self._probed.get(remote, remote)

    def aliases(self, remotes: Collection[str]) -> set[str]:
        """These probed addresses, and all others of the same NICs."""
        return {*remotes, *(other for other, each in self._probed.items() if each in remotes)}

    def known(self, remote: str) -> WatchedFlow | None:
        """Who has a remote address, if it is of the plan."""
        return self._of.get(self.probed(remote))

    def addresses_of(self, remote: str) -> dict[str, int]:
        """Every address of the host that has this one, to its rail; none if not planned."""
        known = self.known(remote)
        return dict(self._hosts[known.host]) if known is not None else {}
