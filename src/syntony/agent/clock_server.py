"""Serves fleet time to every process of the host by updating the clock pages."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from syntony.agent.config import ClockConfig
from syntony.clock.served import ServedTimeline, TimelinePiece
from syntony.clock.steps import Moment, StepDetector
from syntony.errors import MissingError
from syntony.io.clock_page import (
    BOUND_FILES,
    PAGE,
    ClockBound,
    ClockBoundWriter,
    ClockPageWriter,
    PredecessorState,
)
from syntony.io.clocks import ClockSource, SyntheticClock
from syntony.io.moments import coarse_monotonic_ns, read_moment, realtime_ns
from syntony.io.peers_file import FleetTimelines, write_peers
from syntony.model import ClockState, S, Timeline

_log = logging.getLogger(__name__)

VOID_NS = 10 * S
"""A page not updated for this long has lost its writer: an agent restarts within two seconds."""
REFRESH_NS = 1 * S
"""Interval of writing ClockBound's segments; in between, their bound grows at max_drift."""
SYNTHETIC_RATE_PPB = 250_000.0
"""Maximum rate of a synthetic clock relative to CLOCK_REALTIME: the lab draws ±40 ppm, a servo adds
its limit."""
MAX_ROUND_TRIP_NS = 1 * S
"""A probe that is answered at all is answered within this time."""
SET_WINDOW_NS = 1 * S
"""A notification that the clock was set refers to a step detected at most this long before."""
MARGIN_NS = 100
"""Maximum difference between a later reading of CLOCK_REALTIME and the agent's, including
rounding."""


class ClockServer:
    """One host clock's served timeline and the pages that contain it. Not thread-safe.

    Without a writable directory it continues until `open` succeeds: probing does not depend on it.
    """

    def __init__(self, config: ClockConfig, clock: ClockSource) -> None:
        self._clock = clock
        self._synthetic = isinstance(clock, SyntheticClock)
        self._directory = Path(config.dir)
        self._page: ClockPageWriter | None = None
        self._bounds: list[ClockBoundWriter] = []
        self._timelines: tuple[Timeline, ...] = ()
        self._inherited = False
        """Whether a predecessor left its page, and with it its timelines."""
        self.fault: MissingError | None = None
        """Why a file could not be written; `open` tries again."""
        self.disruptions = 0
        """Steps of the local clock detected since this began."""
        self.slews = 0
        """Changes of its rate detected."""
        self._torn_ns: int | None = None
        self._disrupted_ns: int | None = None
        self._step = 0
        self._bounds_due_ns = 0
        self._watch = StepDetector()
        self._served = ServedTimeline(step_ns=config.step_ns or math.inf, epoch=clock.now_ns())
        self._config = config
        with suppress(MissingError):
            self.open()

    def tick(self, *, was_set: bool = False) -> int | None:
        """Detect steps and slews and update the pages; call it several times a second.

        Args:
            was_set: the kernel reports that the clock was set.

        Returns:
            If the clock was disrupted or its rate changed, a local instant: earlier measurements
                are invalid for the clock as it is now.
        """
        now = self._look(was_set=was_set)
        self._publish(self._served.tick(now.local_ns), now)
        torn_ns, self._torn_ns = self._torn_ns, None
        return torn_ns

    @property
    def epoch(self) -> int:
        """Identifies the clock's last disruption or change of rate."""
        return self._served.epoch

    def take(self, timelines: Sequence[Timeline], step: int = 0) -> None:
        """Take the controller's timelines of this host's clocks and its peers'; `step` identifies
        the fleet timeline's last step."""
        line = next((line for line in timelines if line.node == self._clock.node), None)
        if line is None:
            return
        now = self._look()
        before = self._served.newest
        stepped = step not in {0, self._step}
        self._step = step or self._step
        piece = self._served.take(line, now.local_ns, stepped=stepped)
        if piece is not None:
            self._watch.settle()
        if piece is not None and (before is None or before.state is not piece.state):
            _log.info(
                "fleet time state=%s bound_ns=%.0f", piece.state, piece.bound_ns(now.local_ns)
            )
        self._publish(piece, now)
        self._timelines = tuple(timelines)
        try:
            self._write_peers(timelines)
        except MissingError as error:
            self.fault = error

    def adjusted(self, rate_ppb: float, *, coarse: bool) -> None:
        """The agent itself has just made the clock run faster by `rate_ppb`, or jump."""
        if coarse:
            now = read_moment(self._clock)
            self._watch = StepDetector()
            self._watch.look(now)
            self._disrupt(now.local_ns, 0, now)
            return
        now = self._look()
        self._watch.changed()
        self._publish(self._served.adjusted(now.local_ns, rate_ppb), now)

    def served(self) -> TimelinePiece | None:
        return self._served.newest

    def _look(self, *, was_set: bool = False) -> Moment:
        """Read the clocks; nothing is published before the reading was checked for a step."""
        now, last = read_moment(self._clock), self._watch.last
        if was_set and self._disrupted_ns is not None:
            was_set = now.mono_ns - self._disrupted_ns > SET_WINDOW_NS
        found = self._watch.look(now, was_set=was_set)
        if found is not None:
            _log.warning("local clock disrupted reason=%r step_ns=%d", found.reason, found.step_ns)
            self.disruptions += 1
            self._disrupted_ns = now.mono_ns
            self._disrupt(found.from_ns, found.step_ns, now)
        elif self._watch.left_pace:
            self._leave_pace(now)
        if last is not None and self._watch.off_ns > 0:
            for piece in self._served.widen(last.local_ns, self._watch.off_ns):
                self._publish(piece, now)
        slew = self._watch.slew()
        if slew is not None and self._served.following:
            self._publish(self._served.follow(slew, now.local_ns), now)
        return now

    def _disrupt(self, from_ns: int, step_ns: int, now: Moment) -> None:
        self._publish(self._served.disrupt(from_ns, self._new_epoch(now)), now)
        # Probes in flight at a step backwards were sent at readings that are in the future.
        self._torn_ns = now.local_ns + min(max(0, -step_ns), MAX_ROUND_TRIP_NS)

    def _leave_pace(self, now: Moment) -> None:
        slew = self._watch.slew()
        if slew is not None:
            _log.info("local clock slewed phase_ns=%.0f by_ppb=%.0f", slew.phase_ns, slew.rate_ppb)
        self.slews += 1
        self._served.leave_pace(self._new_epoch(now))
        self._torn_ns = now.local_ns

    def _new_epoch(self, now: Moment) -> int:
        return max(now.local_ns, self._served.epoch + 1)

    @property
    def step(self) -> int:
        """Number of the fleet timeline's last step that the controller reported."""
        return self._step

    @property
    def synchronized(self) -> bool:
        """Whether the host has valid fleet time."""
        piece = self._served.newest
        return piece is not None and piece.state is ClockState.SYNCHRONIZED

    def close(self) -> None:
        """Close the files. The pages stay, for readers and for the next agent."""
        for page in (self._page, *self._bounds):
            if page is not None:
                page.close()

    def open(self) -> None:
        """Open the pages that are not open yet. Raises `MissingError`: fleet time is not served to
        the host's processes, or not to all of them."""
        if self._page is None:
            self._page = ClockPageWriter(self._directory / PAGE, synthetic=self._synthetic)
            left = self._page.predecessor_state()
            self._inherited = left is not None
            if left is not None and self._served.newest is None:
                self._go_on(left, self._config)
        if self._timelines or not self._inherited:
            self._write_peers(self._timelines)
        if self._config.clockbound_dir and not self._bounds:
            place = Path(self._config.clockbound_dir)
            self._bounds = [
                ClockBoundWriter(place / name, version) for name, version in BOUND_FILES.items()
            ]
        self.fault = None

    def _write_peers(self, timelines: Sequence[Timeline]) -> None:
        if self._page is None:
            return
        spec = self._clock.spec if isinstance(self._clock, SyntheticClock) else None
        write_peers(
            self._directory,
            FleetTimelines(host=self._clock.node, synthetic_clock=spec, timelines=tuple(timelines)),
        )

    def _go_on(self, left: PredecessorState, config: ClockConfig) -> None:
        """Continue from the previous agent's page, unless the clock has stepped since."""
        now = read_moment(self._clock)
        boot_ns = now.boot_ns - now.mono_ns + left.seen.mono_ns
        seen = left.seen._replace(boot_ns=boot_ns, marker=now.marker)
        self._watch.resume(seen, left.pace)
        self._served = ServedTimeline(
            left.piece, step_ns=config.step_ns or math.inf, epoch=left.epoch
        )

    def _publish(self, piece: TimelinePiece | None, now: Moment) -> None:
        if self._page is None:
            return
        self._page.write(
            piece,
            now,
            self._watch.expected,
            epoch=self._served.epoch,
            void_after_ns=time.monotonic_ns() + VOID_NS,
        )
        if self._bounds and (piece is not None or now.mono_ns >= self._bounds_due_ns):
            self._bounds_due_ns = now.mono_ns + REFRESH_NS
            bound = self._clock_bound()
            for segment in self._bounds:
                segment.write(bound)

    def _clock_bound(self) -> ClockBound:
        """Bounds of CLOCK_REALTIME, which may be undisciplined: its distance from fleet time is
        part of the bound, and grows at the clock's drift."""
        as_of_ns = coarse_monotonic_ns()
        before_ns = realtime_ns()
        local_ns = self._clock.now_ns()
        after_ns = realtime_ns()
        piece = self._served.at(local_ns) or self._served.newest
        state = ClockState.UNKNOWN if piece is None else piece.state
        void_ns = as_of_ns + VOID_NS
        if piece is None or math.isinf(piece.bound_ns(local_ns)):
            return ClockBound(as_of_ns, void_ns, 0, 0, state, self.disruptions)
        fleet_ns = piece.to_fleet_ns(local_ns)
        off_ns = max(abs(fleet_ns - before_ns), abs(fleet_ns - after_ns))
        bound_ns = piece.bound_ns(local_ns)
        growth_ppb = max(0.0, piece.bound_ns(local_ns + VOID_NS) - bound_ns) / VOID_NS * 1e9
        drift_ppb = abs(piece.line.drift_ppb) + piece.slew_ppb * (piece.residual_ns != 0)
        if self._synthetic:
            drift_ppb += SYNTHETIC_RATE_PPB
        return ClockBound(
            as_of_ns=as_of_ns,
            void_after_ns=void_ns,
            bound_ns=off_ns + math.ceil(bound_ns) + MARGIN_NS,
            max_drift_ppb=math.ceil(drift_ppb + growth_ppb),
            state=state,
            disruptions=self.disruptions,
        )
