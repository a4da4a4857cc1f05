"""Makes the host's clocks follow fleet time, if `[discipline]` enables it. Off by default."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from syntony.agent.config import DisciplineConfig
from syntony.clock.served import TimelinePiece
from syntony.clock.servo import Servo
from syntony.errors import MissingError
from syntony.io.adjust import Adjustable, ChronySocket, SystemClock, TapedClock
from syntony.io.clocks import ClockSource, SyntheticClock
from syntony.model import ClockState, Timeline

_log = logging.getLogger(__name__)


class ClockAdjustment(NamedTuple):
    """The adjustment just made to a clock."""

    rate_ppb: float
    coarse: bool
    """Whether it is larger than changes of a quartz oscillator, or a step."""


class Discipline:
    """The steered clocks of one host, and the servo of each. Raises `MissingError`: this process
    may not set one of the configured clocks."""

    def __init__(
        self, config: DisciplineConfig, clock: ClockSource, phc_paths: Mapping[str, str]
    ) -> None:
        self._node = clock.node
        self._chrony = ChronySocket(config.chrony_sock) if config.chrony_sock else None
        self._steered: dict[str, tuple[Adjustable, Servo]] = {}
        if config.host_clock:
            host = TapedClock(clock) if isinstance(clock, SyntheticClock) else SystemClock()
            self._steered[clock.node] = (host, Servo(config.max_ppb, config.step_ns))
        if config.nic_clocks:
            for node, path in phc_paths.items():
                servo = Servo(config.max_ppb, config.step_ns)
                self._steered[node] = (SystemClock(path), servo)

    def feed_chrony(self, piece: TimelinePiece | None, local_ns: int) -> None:
        """Once a second: send chronyd a sample of the host's clock."""
        if self._chrony is None or piece is None or piece.state is not ClockState.SYNCHRONIZED:
            return
        at_ns = local_ns // 1000 * 1000
        self._chrony.send(at_ns, piece.shift_ns(at_ns))

    def steer(self, line: Timeline, local_ns: int) -> ClockAdjustment | None:
        """Adjust the clock of `line` if it is steered and an adjustment is due."""
        found = self._steered.get(line.node)
        if found is None:
            return None
        clock, servo = found
        try:
            before_ppb = clock.rate_ppb()
            adjustment = servo.update(line, local_ns, before_ppb)
            if adjustment is None:
                return None
            clock.adjust(adjustment.rate_ppb, adjustment.step_ns)
        except MissingError as error:
            _log.error("clock not adjusted node=%s reason=%s", line.node, error)
            return None
        change = ClockAdjustment(adjustment.rate_ppb - before_ppb, adjustment.coarse)
        if change.coarse:
            _log.warning(
                "clock steered node=%s rate_ppb=%.0f change_ppb=%.0f step_ns=%d",
                *(line.node, adjustment.rate_ppb, change.rate_ppb, adjustment.step_ns),
            )
        return change

    def close(self) -> None:
        """Stop steering. Clocks keep the last correction."""
        if self._chrony is not None:
            self._chrony.close()
        for clock, _ in self._steered.values():
            if isinstance(clock, SystemClock):
                clock.close()
