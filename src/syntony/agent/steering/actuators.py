"""Carries instructions out. Decisions know paths; how a path is moved is known only here."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Protocol

from syntony.io.mptcp_pm import PathManager
from syntony.traffic.instructions import Announce, Create, Destroy, Retire, Steer, Withdraw

_log = logging.getLogger(__name__)


class PathActuator(Protocol):
    """One way of moving flows from path to path."""

    def do(self, instruction: Steer) -> None:
        """Carry it out before returning. Raises `OSError`: refused."""
        ...

    def close(self) -> None: ...


class MptcpActuator:
    """Subflows made and ended through the kernel's userspace path manager."""

    def __init__(self) -> None:
        self._kernel = PathManager()

    def do(self, instruction: Steer) -> None:
        match instruction:
            case Create(token=token, flow=flow, local_id=local_id):
                self._kernel.create(token, flow, local_id)
            case Destroy(token=token, flow=flow):
                _unless_gone(lambda: self._kernel.destroy(token, flow))
            case Retire(token=token, flow=flow, retired=retired):
                _unless_gone(lambda: self._kernel.set_backup(token, flow, backup=retired))
            case Announce(token=token, address=address, port=port, local_id=local_id):
                self._kernel.announce(token, address, port, local_id)
            case Withdraw():
                self._withdraw(instruction)

    def _withdraw(self, instruction: Withdraw) -> None:
        """Ending a subflow makes the kernel forget that its address was announced, whatever the
        port (mptcp_userspace_pm_delete_local_addr, Linux 6.18), and it withdraws only what it
        remembers: then it is announced and withdrawn in one breath."""
        token, local_id = instruction.token, instruction.local_id
        try:
            self._kernel.withdraw(token, local_id)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._kernel.announce(token, instruction.address, instruction.port, local_id)
            self._kernel.withdraw(token, local_id)

    def close(self) -> None:
        self._kernel.close()


def _unless_gone(do: Callable[[], None]) -> None:
    """What is to be ended may have ended by itself."""
    try:
        do()
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
