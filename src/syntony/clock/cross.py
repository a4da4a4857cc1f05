"""A NIC's own clock against its host's: the edge that ties hardware stamps to the host."""

from __future__ import annotations

from collections import deque

import numpy as np

from syntony.clock.window_steps import STEP_NS
from syntony.clock.windows import WINDOW_NS
from syntony.model import Edge

MIN_STAMPS = 3
"""Two points always fit a line, without an estimate of its error."""
MIN_SIGMA_NS = 1.0
"""Smallest error of a PCIe-latched pair of readings."""
MAX_RATE_PPB = 200_000
"""Two clocks of which nothing is known differ by less: 100 ppm is the worst oscillator of a NIC."""


class CrossStamps:
    """A window of simultaneous readings of a host's clock and of one NIC's clock."""

    def __init__(self, host: str, nic: str) -> None:
        self._host = host
        self.nic = nic
        self._stamps: deque[tuple[int, int, int]] = deque()

    def add(self, host_ns: int, nic_ns: int, uncertainty_ns: int) -> bool:
        """One instant in both clocks, good to ± `uncertainty_ns`; the same again is none.

        Returns:
            Whether the NIC's clock has stepped since the last reading: somebody set it, or its
            driver began it again. Earlier readings are forgotten.
        """
        if self._stamps and self._stamps[-1][0] == host_ns:
            return False
        stepped = self._off_line(host_ns, nic_ns, uncertainty_ns)
        while self._stamps and abs(host_ns - self._stamps[0][0]) > WINDOW_NS:
            self._stamps.popleft()
        if stepped:
            self.forget()
        self._stamps.append((host_ns, nic_ns, uncertainty_ns))
        return stepped

    def _off_line(self, host_ns: int, nic_ns: int, uncertainty_ns: int) -> bool:
        """Whether a reading is off the line of the earlier ones by more than their uncertainties
        and `STEP_NS`."""
        if not self._stamps:
            return False
        (first_ns, first_nic_ns, first_doubt_ns), (last_ns, last_nic_ns, last_doubt_ns) = (
            self._stamps[0],
            self._stamps[-1],
        )
        theta_ns, gone_ns = last_nic_ns - last_ns, host_ns - last_ns
        rate, rate_doubt = 0.0, MAX_RATE_PPB * 1e-9
        if first_ns != last_ns:
            span_ns = last_ns - first_ns
            rate = (theta_ns - (first_nic_ns - first_ns)) / span_ns
            rate_doubt = (first_doubt_ns + last_doubt_ns) / abs(span_ns)
        off_ns = abs(nic_ns - host_ns - theta_ns - rate * gone_ns)
        doubt_ns = uncertainty_ns + last_doubt_ns + rate_doubt * abs(gone_ns)
        return off_ns > doubt_ns + STEP_NS

    def forget(self) -> None:
        """The host's clock has stepped, or changed its rate."""
        self._stamps.clear()

    def edge(self) -> Edge | None:
        """NIC minus host by weighted least squares; None while there are too few readings.

        The uncertainty of a reading is one of its place in the bracket, the same every time, so
        averaging does not shrink it: it bounds sigma from below.
        """
        if len(self._stamps) < MIN_STAMPS:
            return None
        host_ns = np.array([stamp[0] for stamp in self._stamps], dtype=np.int64)
        theta_ns = np.array([stamp[1] - stamp[0] for stamp in self._stamps], dtype=np.int64)
        doubt_ns = np.array([max(stamp[2], MIN_SIGMA_NS) for stamp in self._stamps])
        ref_ns = (int(host_ns[0]) + int(host_ns[-1])) // 2
        since = (host_ns - ref_ns).astype(np.float64)
        if np.ptp(since) == 0:
            return None
        base_ns = int(theta_ns[0])
        slope, offset = np.polyfit(
            since, (theta_ns - base_ns).astype(np.float64), 1, w=1 / doubt_ns
        )
        sigma_ns = float(doubt_ns.min())
        return Edge(
            a=self._host,
            b=self.nic,
            ref_ns=ref_ns,
            theta_ns=base_ns + float(offset),
            drift_ppb=float(slope) * 1e9,
            sigma_ns=sigma_ns,
            drift_sigma_ppb=2 * sigma_ns / float(np.ptp(since)) * 1e9,
            rtt_floor_ns=2 * sigma_ns,
            probes=len(self._stamps),
        )
