"""A window's losses counted path by path and searched at once.

The controller counts as seconds come in (`syntony.fabric.crossed`). This is the plain way, which
grades it, and by which windows that were made up are searched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syntony.fabric.tally import (
    Clean,
    Crossings,
    Floats,
    Index,
    Ints,
    PartlyLearnt,
    Times,
)


class LossTally(NamedTuple):
    """One window's losses. `lossy` paths are those that lost at least one probe."""

    crossings: Crossings
    """Of the lossy paths."""
    times: Times
    """Of the lossy paths."""
    sent: Floats
    """(lossy,)."""
    lost: Floats
    """(lossy,)."""
    clean_paths: Floats
    """Per candidate: paths across it that lost nothing, (candidates,)."""
    clean_probes: Floats
    """… and the probes these carried, each as many times as it crossed, (candidates,)."""
    paths: int
    """That sent anything, lossy ones included."""
    total_sent: float
    total_lost: float
    partly: PartlyLearnt
    """Of the lossy paths."""
    partly_clean_paths: Floats
    """Per candidate: paths that may cross it and lost nothing, (candidates,)."""
    partly_clean_probes: Floats
    """… and the probes these carried, (candidates,)."""

    @property
    def candidates(self) -> int:
        """How many candidates the tally knows."""
        return len(self.clean_paths)

    def clean_of(self, candidates: Index) -> Clean:
        """As `Tally`."""
        return Clean(
            self.clean_paths[candidates],
            self.clean_probes[candidates],
            self.partly_clean_paths[candidates],
            self.partly_clean_probes[candidates],
        )


def tally_losses(
    crossings: Crossings,
    sent: Ints,
    lost: Ints,
    candidates: int,
    partly: PartlyLearnt | None = None,
    *,
    times: Times | None = None,
) -> LossTally:
    """Counts per path to a tally. Paths that sent nothing say nothing.

    Args:
        crossings: what each path crosses, (paths, width).
        sent: probes that entered each path, (paths,).
        lost: of these, how many did not come out, (paths,).
        candidates: how many there are.
        partly: what paths may cross beside that; None: nothing.
        times: how many times each path crosses each, (paths, width); None: once.
    """
    partly = partly or PartlyLearnt.nothing(len(crossings))
    times = np.ones(crossings.shape, dtype=np.int8) if times is None else times
    used = sent > 0
    lossy = used & (lost > 0)
    clean = used & ~lossy
    across = crossings[clean]
    real = across >= 0
    flat = across[real]
    probes = (sent[clean][:, None] * times[clean])[real]
    path, member = partly.chosen(clean).pairs(across)
    return LossTally(
        crossings=crossings[lossy],
        times=times[lossy],
        sent=sent[lossy].astype(np.float64),
        lost=lost[lossy].astype(np.float64),
        clean_paths=np.bincount(flat, minlength=candidates).astype(np.float64),
        clean_probes=np.bincount(flat, probes, minlength=candidates).astype(np.float64),
        paths=int(np.count_nonzero(used)),
        total_sent=float(sent[used].sum()),
        total_lost=float(lost[used].sum()),
        partly=partly.chosen(lossy),
        partly_clean_paths=np.bincount(member, minlength=candidates).astype(np.float64),
        partly_clean_probes=np.bincount(
            member, weights=sent[clean][path], minlength=candidates
        ).astype(np.float64),
    )


def merge(tallies: list[LossTally]) -> LossTally:
    """Tallies of different paths over the same candidates, as one."""
    width = max(tally.crossings.shape[1] for tally in tallies)
    pads = [((0, 0), (0, width - tally.crossings.shape[1])) for tally in tallies]
    return LossTally(
        crossings=np.concatenate(
            [
                np.pad(t.crossings, pad, constant_values=-1)
                for t, pad in zip(tallies, pads, strict=True)
            ]
        ),
        times=np.concatenate([np.pad(t.times, pad) for t, pad in zip(tallies, pads, strict=True)]),
        sent=np.concatenate([tally.sent for tally in tallies]),
        lost=np.concatenate([tally.lost for tally in tallies]),
        clean_paths=np.sum([tally.clean_paths for tally in tallies], axis=0),
        clean_probes=np.sum([tally.clean_probes for tally in tallies], axis=0),
        paths=sum(tally.paths for tally in tallies),
        total_sent=sum(tally.total_sent for tally in tallies),
        total_lost=sum(tally.total_lost for tally in tallies),
        partly=_merged([tally.partly for tally in tallies]),
        partly_clean_paths=np.sum([tally.partly_clean_paths for tally in tallies], axis=0),
        partly_clean_probes=np.sum([tally.partly_clean_probes for tally in tallies], axis=0),
    )


def _merged(parts: list[PartlyLearnt]) -> PartlyLearnt:
    members: list[list[int]] = []
    combos = []
    for part in parts:
        combos.append(np.where(part.combo >= 0, part.combo + len(members), -1))
        members += [[n for n in row if n >= 0] for row in part.members.tolist()]
    return PartlyLearnt.of(np.concatenate(combos), members)
