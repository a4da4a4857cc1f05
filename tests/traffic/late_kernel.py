"""What Linux keeps of one MPTCP connection's local addresses (after net/mptcp/pm_userspace.c), and
two hosts on it whose agents may be away for a while: for connections that are learnt recently."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from tests.traffic.network import APP_PORT, WIRE_NS, Host, World, reverse

from syntony.agent.steering.actuators import MptcpActuator
from syntony.io.mptcp_pm import LocalAddress
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.failover import Event
from syntony.traffic.instructions import (
    Announce,
    Cause,
    Create,
    Destroy,
    Instruction,
    KernelRefusal,
    Reason,
    Withdraw,
)

End = tuple[str, int]


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


class Kernel:
    """Of one host, for its one connection."""

    def __init__(self, world: LateWorld, name: str) -> None:
        self._world = world
        self._name = name
        self.entries: dict[int, End] = {}
        self.announced: set[End] = set()
        """Where joins are accepted."""
        self._pending: set[FourTuple] = set()
        self.broken = 0
        """So many announcements more are refused, whatever they say."""

    def _enter(self, local_id: int, end: End) -> None:
        """mptcp_userspace_pm_append_new_local_addr."""
        if self.entries.get(local_id) == end:
            return
        if local_id in self.entries or end in self.entries.values():
            refuse(errno.EINVAL)
        self.entries[local_id] = end

    def announce(self, token: int, address: str, port: int, local_id: int) -> None:
        assert token == 7
        if self.broken:
            self.broken -= 1
            refuse(errno.ENOTCONN)
        self._enter(local_id, (address, port))
        self.announced.add((address, port))
        self._world.say(self._name, events.AddressAnnounced(
            at_ns=0, token=7, remote_id=local_id, address=address, port=port
        ))  # fmt: skip

    def withdraw(self, token: int, local_id: int) -> None:
        assert token == 7
        if local_id not in self.entries:
            refuse(errno.EINVAL)
        self.announced.discard(self.entries.pop(local_id))
        self._world.say(self._name, events.AddressWithdrawn(
            at_ns=0, token=7, remote_id=local_id
        ))  # fmt: skip

    def addresses(self, token: int) -> list[LocalAddress]:
        assert token == 7
        return [LocalAddress(local_id, *end) for local_id, end in self.entries.items()]

    def create(self, token: int, flow: FourTuple, local_id: int) -> None:
        assert token == 7
        self._enter(local_id, flow[:2])
        self._pending.add(flow)
        self._world.syn(self._name, flow, local_id)

    def destroy(self, token: int, flow: FourTuple) -> None:
        assert token == 7
        if flow not in self._world.hosts[self._name].subflows and flow not in self._pending:
            refuse(errno.ESRCH)
        self.forget(flow.local)
        self._world.end(self._name, flow)

    def forget(self, address: str) -> None:
        """mptcp_userspace_pm_delete_local_addr: the first entry of the address, any port."""
        for local_id, end in self.entries.items():
            if end[0] == address:
                del self.entries[local_id]
                return

    def answered(self, flow: FourTuple) -> None:
        """A join was refused, or is up."""
        self._pending.discard(flow)

    def joined_at(self, end: End) -> int:
        """A peer's SYN: mptcp_userspace_pm_get_local_id comes before the check of the port."""
        for local_id, known in self.entries.items():
            if known == end:
                return local_id
        local_id = next(k for k in range(1, 256) if k not in self.entries)
        self.entries[local_id] = end
        return local_id

    def set_backup(self, *_: object, backup: bool) -> None:
        del backup

    def close(self) -> None: ...


class LateWorld(World):
    """Agents see nothing while they are away, and everything at once afterwards; one that is
    restarted has never seen anything. Jobs are found when their server accepts."""

    def __init__(
        self,
        seed: int,
        found_ns: dict[str, int],
        kernel: Callable[[LateWorld, str], Kernel] = Kernel,
        **options: object,
    ) -> None:
        self.kernels = {name: kernel(self, name) for name in "ab"}
        self._actuators = {
            name: MptcpActuator(kernel) for name, kernel in self.kernels.items()
        }  # fmt: skip
        self._found_ns = found_ns
        self._unread: dict[str, list[Event]] = {}
        super().__init__(seed, **options)  # type: ignore[arg-type]

    def awake(self, name: str) -> bool:
        return name not in self._unread

    def away(self, name: str) -> None:
        self._unread.setdefault(name, [])

    def restart(self, name: str) -> None:
        self._unread.pop(name, None)
        super().restart(name)

    def back(self, name: str) -> None:
        self._all_ns = self.now_ns
        host = self.hosts[name]
        host.machine.steering.events_read_ns = self.now_ns  # nothing is given up before all is read
        for event in self._unread.pop(name, ()):
            now = msgspec.structs.replace(event, at_ns=self.now_ns)
            self.tell(host, now, may_be_lost=False)
        host.machine.steering.events_read_ns = None

    def tell(self, host: Host, event: Event, *, may_be_lost: bool = True) -> None:
        if isinstance(event, events.JobFound) and self.now_ns < self._found_ns[host.name]:
            found = msgspec.structs.replace(event, at_ns=self._found_ns[host.name])
            self.at(self._found_ns[host.name] - self.now_ns, partial(self._find, host, found))
        elif host.name in self._unread:
            self._unread[host.name].append(event)
        else:
            super().tell(host, event, may_be_lost=may_be_lost)

    def _find(self, host: Host, found: events.JobFound) -> None:
        self.tell(host, found, may_be_lost=False)

    def do(self, host: Host, instructions: Sequence[Instruction]) -> None:
        assert host.name not in self._unread or not instructions
        super().do(host, instructions)

    def _do(self, host: Host, instruction: Instruction) -> None:
        if not isinstance(instruction, Create | Destroy | Announce | Withdraw):
            super()._do(host, instruction)
            return
        try:
            self._actuators[host.name].do(instruction)
        except OSError as error:
            refused = KernelRefusal(
                at_ns=self.now_ns, instruction=instruction, errno=error.errno or 0,
                text=str(error.strerror),
            )  # fmt: skip
            self.tell(host, refused, may_be_lost=False)

    # --- the wire ---

    def say(self, name: str, event: events.AddressEvent) -> None:
        peer = self.peer[name]
        if self.living(name):
            self.at(WIRE_NS, lambda: self.tell(
                peer, msgspec.structs.replace(event, at_ns=self.now_ns)
            ))  # fmt: skip

    def syn(self, name: str, flow: FourTuple, local_id: int) -> None:
        self.at(WIRE_NS, lambda: self._syn(self.hosts[name], flow, local_id))

    def _syn(self, host: Host, flow: FourTuple, local_id: int) -> None:
        peer = self.peer[host.name]
        if self.dead(flow) or flow in host.cancelled:
            return
        self.kernels[host.name].answered(flow)
        kernel = self.kernels[peer.name]
        remote_id = kernel.joined_at((flow.remote, flow.remote_port))
        if flow.remote_port != APP_PORT and (flow.remote, flow.remote_port) not in kernel.announced:
            self.tell(host, events.SubflowDown(
                at_ns=self.now_ns, token=7, flow=flow, error=errno.ECONNREFUSED
            ))  # fmt: skip
            return
        ends = ((host, flow, local_id, remote_id), (peer, reverse(flow), remote_id, local_id))
        for end, mine, near, far in ends:
            end.subflows[mine] = self.now_ns
            self._joined(end, mine, (near, far))
            self.tell(end, events.SubflowUp(
                at_ns=self.now_ns, token=7, flow=mine, local_id=near, remote_id=far
            ))  # fmt: skip

    def _joined(self, host: Host, flow: FourTuple, ids: tuple[int, int]) -> None:
        """A subflow is up, under ids of its local and its remote address."""

    def end(self, name: str, flow: FourTuple) -> None:
        reason = Reason(Cause.JOIN, "", self.now_ns, self.now_ns)
        super()._do(self.hosts[name], Destroy(token=7, job="", flow=flow, reason=reason))
