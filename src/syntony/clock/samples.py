"""Stamps of one pair of clocks over one window, and the two clouds of points they make."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.purity import purity_classes

Instants = NDArray[np.int64]
Floats = NDArray[np.float64]

MIN_PROBES = 4
"""Per direction: fewer cannot tell a slope from a queue."""


class PairSamples(NamedTuple):
    """Stamps of one pair over one window, as int64 ns arrays; ``a`` is the prober.

    Forward probes left a at `fwd_tx` (a's clock) and reached b at `fwd_rx` (b's clock), both of
    shape (n,); reverse ones left b at `rev_tx` (b's clock) and reached a at `rev_rx` (a's), (m,).
    Probes sent back to back share a number in `fwd_pair` (n,) or `rev_pair` (m,); None where
    probes were sent one by one.
    """

    fwd_tx: Instants
    fwd_rx: Instants
    rev_tx: Instants
    rev_rx: Instants
    fwd_pair: Instants | None = None
    rev_pair: Instants | None = None
    fwd_path: Instants | None = None
    rev_path: Instants | None = None
    """Which path each probe took, where several are put together."""

    def usable(self) -> bool:
        """Whether both directions have enough probes, not all at one instant."""
        return (
            min(len(self.fwd_tx), len(self.rev_rx)) >= MIN_PROBES
            and bool(np.ptp(self.fwd_tx) > 0)
            and bool(np.ptp(self.rev_rx) > 0)
        )


class Clouds(NamedTuple):
    """Both directions in one frame: ``y = theta(t) ± delay``, forward first.

    Arrays of shape (n + m,): `t` is time on a's clock since `ref_ns`, `y` the apparent offset of b
    less `base_ns`, `side` +1 for forward and -1 for reverse, `purity` the class of each probe's
    pair. A point's height ``side·(y - slope·t)`` is its delay up to a constant of its direction.
    """

    ref_ns: int
    base_ns: int
    span_ns: float
    t: Floats
    y: Floats
    side: Floats
    purity: NDArray[np.intp]
    forward: int
    """n: number of points in the forward direction."""

    @classmethod
    def of(cls, samples: PairSamples) -> Clouds:
        """`samples` must be usable."""
        at_a = np.concatenate((samples.fwd_tx, samples.rev_rx))
        first_ns, last_ns = int(at_a.min()), int(at_a.max())
        ref_ns = (first_ns + last_ns) // 2
        base_ns = int(samples.fwd_rx[0]) - int(samples.fwd_tx[0])
        apparent = np.concatenate(
            (samples.fwd_rx - samples.fwd_tx, samples.rev_tx - samples.rev_rx)
        )
        forward = len(samples.fwd_tx)
        return cls(
            ref_ns=ref_ns,
            base_ns=base_ns,
            span_ns=float(last_ns - first_ns),
            t=(at_a - ref_ns).astype(np.float64),
            y=(apparent - base_ns).astype(np.float64),
            side=np.where(np.arange(len(at_a)) < forward, 1.0, -1.0),
            purity=np.concatenate(
                (
                    purity_classes(samples.fwd_tx, samples.fwd_rx, samples.fwd_pair),
                    purity_classes(samples.rev_tx, samples.rev_rx, samples.rev_pair),
                )
            ),
            forward=forward,
        )

    def heights(self, slope: float) -> Floats:
        """Delays, up to a constant per direction, for a relation of this slope; (n + m,)."""
        return np.asarray(self.side * (self.y - slope * self.t), dtype=np.float64)

    def only(self, keep: NDArray[np.bool_]) -> Clouds:
        """The chosen points, mask of shape (n + m,)."""
        return self._replace(
            t=self.t[keep],
            y=self.y[keep],
            side=self.side[keep],
            purity=self.purity[keep],
            forward=int(np.count_nonzero(keep[: self.forward])),
        )

    def since(self, from_ns: float) -> Clouds:
        """The points after an instant of a's clock; some must be."""
        late = self.only(self.t > from_ns - self.ref_ns)
        first_ns, last_ns = float(late.t.min()), float(late.t.max())
        middle_ns = round((first_ns + last_ns) / 2)
        return late._replace(
            ref_ns=self.ref_ns + middle_ns, span_ns=last_ns - first_ns, t=late.t - middle_ns
        )
