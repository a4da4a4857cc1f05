"""What a window's counts say of loss, in the form the search needs: few rows, however many paths.

Only paths that lost something matter one by one. Of all others it is enough to know, per candidate,
how many there are and how many probes they carried, so a fleet of 131,072 NICs is counted path by
path but searched through a few thousand rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Crossings = NDArray[np.int32]
"""Shape (paths, width): the candidates each path crosses, each once, padded with -1."""


class LossTally(NamedTuple):
    """One window's losses. `lossy` paths are those that lost at least one probe."""

    crossings: Crossings
    """Of the lossy paths."""
    sent: Floats
    """(lossy,)."""
    lost: Floats
    """(lossy,)."""
    clean_paths: Floats
    """Per candidate: paths across it that lost nothing, (candidates,)."""
    clean_probes: Floats
    """… and the probes these carried, (candidates,)."""
    paths: int
    """That sent anything, lossy ones included."""
    total_sent: float
    total_lost: float

    @property
    def candidates(self) -> int:
        """How many candidates the tally knows."""
        return len(self.clean_paths)


def tally_losses(crossings: Crossings, sent: Ints, lost: Ints, candidates: int) -> LossTally:
    """Counts per path to a tally. Paths that sent nothing say nothing.

    Args:
        crossings: what each path crosses, (paths, width).
        sent: probes that entered each path, (paths,).
        lost: of these, how many did not come out, (paths,).
        candidates: how many there are.
    """
    used = sent > 0
    lossy = used & (lost > 0)
    clean = used & ~lossy
    across = crossings[clean]
    real = across >= 0
    flat = across[real]
    probes = np.broadcast_to(sent[clean][:, None], across.shape)[real]
    return LossTally(
        crossings=crossings[lossy],
        sent=sent[lossy].astype(np.float64),
        lost=lost[lossy].astype(np.float64),
        clean_paths=np.bincount(flat, minlength=candidates).astype(np.float64),
        clean_probes=np.bincount(flat, probes, minlength=candidates).astype(np.float64),
        paths=int(np.count_nonzero(used)),
        total_sent=float(sent[used].sum()),
        total_lost=float(lost[used].sum()),
    )


def merge(tallies: list[LossTally]) -> LossTally:
    """Tallies of different paths over the same candidates, as one."""
    width = max(tally.crossings.shape[1] for tally in tallies)
    padded = [
        np.pad(t.crossings, ((0, 0), (0, width - t.crossings.shape[1])), constant_values=-1)
        for t in tallies
    ]
    return LossTally(
        crossings=np.concatenate(padded),
        sent=np.concatenate([tally.sent for tally in tallies]),
        lost=np.concatenate([tally.lost for tally in tallies]),
        clean_paths=np.sum([tally.clean_paths for tally in tallies], axis=0),
        clean_probes=np.sum([tally.clean_probes for tally in tallies], axis=0),
        paths=sum(tally.paths for tally in tallies),
        total_sent=sum(tally.total_sent for tally in tallies),
        total_lost=sum(tally.total_lost for tally in tallies),
    )
