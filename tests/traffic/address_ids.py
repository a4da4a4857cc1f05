"""Two hosts on kernels with MPTCP's address ids: to withdraw one ends every subflow that has it.

After net/mptcp/pm_userspace.c and pm.c (mptcp_pm_rm_addr_or_subflow), not after our own model.
"""

from __future__ import annotations

import msgspec
from tests.traffic.late_kernel import Kernel, LateWorld
from tests.traffic.network import WIRE_NS, Host, reverse

from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.failover import Event
from syntony.traffic.instructions import Create, Destroy, Instruction

Ids = tuple[int, int]
"""Local, remote."""


class IdKernel(Kernel):
    """Withdrawing tells the peer, whose kernel then ends what was made with that id."""

    def withdraw(self, token: int, local_id: int) -> None:
        super().withdraw(token, local_id)
        assert isinstance(self._world, IdWorld)
        self._world.remove(self._name, local_id)


class IdWorld(LateWorld):
    """`wrong`: healthy subflows that ended though no agent had decided it."""

    def __init__(self, seed: int, **options: object) -> None:
        self.ids: dict[tuple[str, FourTuple], Ids] = {}
        self.decided: set[FourTuple] = set()
        self.wrong: list[tuple[int, str, FourTuple]] = []
        self.clashes: list[tuple[int, str, int]] = []
        super().__init__(seed, {"a": 0, "b": 0}, kernel=IdKernel, **options)

    def tell(self, host: Host, event: Event, *, may_be_lost: bool = True) -> None:
        if isinstance(event, FlowSample):
            local_id, _ = self.ids.get((host.name, event.flow), (0, 0))
            event = msgspec.structs.replace(event, local_id=local_id)
        super().tell(host, event, may_be_lost=may_be_lost)

    def _do(self, host: Host, instruction: Instruction) -> None:
        if isinstance(instruction, Destroy):
            self.decided |= {instruction.flow, reverse(instruction.flow)}
        if isinstance(instruction, Create):
            used = {
                self.ids.get((host.name, flow), (0, 0))[0]
                for flow in host.subflows
                if flow.local != instruction.flow.local
            }
            if instruction.local_id in used:
                self.clashes.append((self.now_ns, host.name, instruction.local_id))
        super()._do(host, instruction)

    def remove(self, name: str, local_id: int) -> None:
        """RM_ADDR goes over a subflow that lives, if there is one."""
        peer = self.peer[name]

        def arrive() -> None:
            for flow in list(peer.subflows):
                if self.ids.get((peer.name, flow), (0, 0))[1] == local_id:
                    self._ended(peer, flow)

        if self.living(name):
            self.at(WIRE_NS, arrive)

    def _ended(self, host: Host, flow: FourTuple) -> None:
        if flow in self.living(host.name) and flow not in self.decided:
            self.wrong.append((self.now_ns, host.name, flow))
        dead = self.dead(flow)
        self._closed(host, flow)
        if not dead:
            self.at(WIRE_NS, lambda: self._closed(self.peer[host.name], reverse(flow)))

    def _joined(self, host: Host, flow: FourTuple, ids: Ids) -> None:
        self.ids[host.name, flow] = ids
