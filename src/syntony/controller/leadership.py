"""Leadership: agents obey the controller that started last with the fleet's control state.

Each start raises the epoch. Decisions carry it, and agents refuse lower epochs than they have seen.
A controller that loses its control state to another one stops (`lease`); one that cannot detect
this, for example with a copy on another machine, is refused by agents.
"""

from __future__ import annotations

import asyncio
import logging
import time

from syntony import __version__
from syntony.controller.hello_check import RefusedError
from syntony.state import ControlState
from syntony.state.epochs import raise_epoch
from syntony.wire.coding import encode
from syntony.wire.control import (
    MAX_EPOCH,
    ControllerStatus,
    EpochRaised,
    GatewayStatus,
    Issuer,
    TakeoverCommand,
)
from syntony.wire.gateways import Welcome
from syntony.wire.messages import (
    DECISIONS,
    ControllerMessage,
    Decision,
    Hello,
)

_log = logging.getLogger(__name__)


class Leadership:
    """Decides whether this controller may lead, and stamps its decisions.

    One per controller, used on its event loop.

    Args:
        state: control state, which assigns epochs.
    """

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self.name = ""
        """Name in this controller's certificate."""
        self._since_ns = time.monotonic_ns()
        self.seen = 0
        """The highest epoch that an agent has reported."""

    @property
    def epoch(self) -> int:
        return self._state.epoch

    def status(self, agents: int, gateways: tuple[GatewayStatus, ...] = ()) -> ControllerStatus:
        """The controller in charge, and since when."""
        return ControllerStatus(
            name=self.name,
            version=__version__,
            epoch=self.epoch,
            seen_epoch=self.seen,
            durable=self._state.durable,
            up_ns=time.monotonic_ns() - self._since_ns,
            agents=agents,
            gateways=gateways,
        )

    def check(self, hello: Hello) -> None:
        """Raises `RefusedError`: the agent has obeyed a later controller than this one."""
        self._compare(f"host {hello.host!r}", hello.epoch)

    def follow(self, gateway: str, epoch: int) -> Welcome:
        """Accept a gateway that has followed `epoch`. Raises `RefusedError`: that is a later
        one."""
        self._compare(gateway, epoch)
        return Welcome(leader=self.name, epoch=self.epoch, probed=True)

    def _compare(self, who: str, epoch: int) -> None:
        self.seen = max(self.seen, min(epoch, MAX_EPOCH))
        if epoch > self.epoch:
            raise RefusedError(
                f"{who} has obeyed a controller of epoch {epoch}, this one has {self.epoch}: "
                "another controller took over, or this one's control state is from a backup; if "
                f"so: syntony controller takeover --above {epoch}"
            )

    def seal(self, message: ControllerMessage, stored: int = 0) -> bytes:
        """The form in which messages are sent to agents; a decision contains the number of stored
        batches."""
        if not isinstance(message, DECISIONS):
            return encode(message)
        inner = encode(message)
        return encode(Decision(issuer=self.name, epoch=self.epoch, message=inner, stored=stored))

    async def take_over(self, command: TakeoverCommand, issuer: Issuer, at_ns: int) -> EpochRaised:
        """Raise the epoch above one that agents have seen. Raises `UsageError`, `StateError`."""
        epoch = await asyncio.to_thread(
            lambda: raise_epoch(
                self._state, command.above, issuer=issuer, at_ns=at_ns, comment=command.comment
            )
        )
        _log.warning("epoch raised epoch=%d by=%s", epoch, issuer.who)
        return EpochRaised(epoch=epoch)
