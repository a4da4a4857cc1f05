"""Carries out instructions. Decisions refer to paths; how a flow is moved to a path is known only
here."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol, TypeVar

from syntony.io.mptcp_pm import LocalAddress, PathManager
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Announce, Create, Destroy, Retire, Steer, Withdraw

_I_contra = TypeVar("_I_contra", contravariant=True)


class PathActuator(Protocol[_I_contra]):
    """One way of moving flows from path to path, by the instructions of one mechanism: MPTCP's,
    which name subflows, or notices, which name paths (decision 0197)."""

    def do(self, instruction: _I_contra) -> None:
        """Carry it out before returning. Raises `OSError`: the kernel refused."""
        ...

    def close(self) -> None: ...


class Kernel(Protocol):
    """The part of `PathManager` that is needed here."""

    def create(self, token: int, flow: FourTuple, local_id: int) -> None: ...
    def destroy(self, token: int, flow: FourTuple) -> None: ...
    def announce(self, token: int, address: str, port: int, local_id: int) -> None: ...
    def withdraw(self, token: int, local_id: int) -> None: ...
    def addresses(self, token: int) -> list[LocalAddress]: ...
    def set_backup(self, token: int, flow: FourTuple, *, backup: bool) -> None: ...
    def close(self) -> None: ...


class MptcpActuator:
    """Creates and ends subflows through the kernel's userspace path manager."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or PathManager()

    def do(self, instruction: Steer) -> None:
        match instruction:
            case Create():
                self._create(instruction)
            case Destroy(token=token, flow=flow):
                _unless_gone(lambda: self._kernel.destroy(token, flow))
            case Retire(token=token, flow=flow, retired=retired):
                _unless_gone(lambda: self._kernel.set_backup(token, flow, backup=retired))
            case Announce():
                self._announce(instruction)
            case Withdraw():
                self._withdraw(instruction)

    def _create(self, order: Create) -> None:
        """A failed join leaves its address and port behind under its id, until all ids and many
        ports are taken."""
        try:
            self._kernel.create(order.token, order.flow, order.local_id)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._make_room(order.token, order.local_id, order.flow[:2])
            self._kernel.create(order.token, order.flow, order.local_id)

    def _announce(self, order: Announce) -> int:
        """Announce an address; returns its id: the requested one, unless a subflow uses the address
        under the kernel's own id."""
        local_id = order.local_id
        try:
            self._kernel.announce(order.token, order.address, order.port, local_id)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            end = order.address, order.port
            local_id = self._make_room(order.token, local_id, end, keep=order.joined)
            self._kernel.announce(order.token, *end, local_id)
        return local_id

    def _make_room(
        self, token: int, local_id: int, end: tuple[str, int], *, keep: bool = False
    ) -> int:
        """Make the kernel drop what it holds under an id, or at an address and port.

        If a peer joins an address before it is announced, the kernel enters that address under an
        id of its own choice (mptcp_userspace_pm_get_local_id). From then on it refuses the address
        under any other id, and any other address under that one.

        Args:
            token: of the connection.
            local_id: the requested one.
            end: address and port for this id.
            keep: a subflow uses the address, and would end if it were dropped.

        Returns:
            The id to use.
        """
        for known in self._kernel.addresses(token):
            same = (known.address, known.port) == end
            if same and keep:
                return known.local_id
            if same or known.local_id == local_id:
                self._kernel.withdraw(token, known.local_id)
        return local_id

    def _withdraw(self, order: Withdraw) -> None:
        """Withdraw an address. When a subflow ends, the kernel forgets that its address was
        announced, whatever the port (mptcp_userspace_pm_delete_local_addr, Linux 6.18), and it
        withdraws only addresses that it remembers. The address is then announced and withdrawn at
        once."""
        try:
            self._kernel.withdraw(order.token, order.local_id)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            announce = Announce(
                token=order.token, address=order.address, port=order.port, local_id=order.local_id
            )
            self._kernel.withdraw(order.token, self._announce(announce))

    def close(self) -> None:
        self._kernel.close()


def _unless_gone(do: Callable[[], None]) -> None:
    """Ignore that a subflow to be ended has already ended."""
    try:
        do()
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
