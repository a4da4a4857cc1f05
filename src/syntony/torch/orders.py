"""Types of a coordinator: settings, workers, and orders. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syntony.torch.checkpoint import CheckpointFile
from syntony.torch.hangs import NO_PROGRESS, RankProgress
from syntony.torch.recovery import START, RankReport

MS, S = 1_000_000, 1_000_000_000
PRESERVED = 75
"""Exit code of ranks whose state was kept (EX_TEMPFAIL: the job can be resumed later)."""


class Settings(NamedTuple):
    """The operator's settings."""

    spares: int
    stopped_ns: int = 1 * S
    """A worker that is stopped (SIGSTOP) for this long is lost, unless half of all were stopped
    together."""
    max_replacements: int = 64
    checkpoint: str = ""
    """Where to save the job's state if no spare is left; empty: nowhere."""
    hung_ns: int = 0
    """A rank that has not called a collective in which others wait for this long is lost; 0: never,
    it is only reported."""
    slow_ns: int = 0
    """A rank that all others wait for in each step is replaced after this time; 0: never, it is
    only reported."""
    min_ranks: int = 0
    """A checkpoint with more ranks may be resumed with this number; 0: only with the same
    number."""


class Send(NamedTuple):
    """Order: a message to a worker, or to its keeper, and records of boundaries by rank."""

    worker: str
    to_keeper: bool
    message: dict[str, Any]
    record: tuple[int, int] | None = None
    """(rank, boundary) of the record that goes with it."""


class Spawn(NamedTuple):
    """Order: start another spare."""


class Log(NamedTuple):
    """Order: append to the audit trail."""

    event: dict[str, Any]


class Origin(NamedTuple):
    """The checkpoint from which a job resumes."""

    path: str
    boundary: int
    world: int


class Preserve(NamedTuple):
    """Order: complete the checkpoint of this boundary, whose state workers have written."""

    boundary: int
    states: dict[str, CheckpointFile]
    """By file name."""


class Forget(NamedTuple):
    """Order: delete records of this rank's boundaries before this one."""

    rank: int
    before: int


Order = Send | Spawn | Log | Forget | Preserve


@dataclass(slots=True)
class Worker:
    """One process that holds a rank or waits for one."""

    name: str
    rank: int | None = None
    boundary: int = START
    waiting: bool = False
    """Whether it is a spare that is ready for a rank."""
    joining: bool = False
    """Whether it has a rank but does not take part in a generation yet."""
    finished: bool = False
    """Whether its program has ended; it waits for the others."""
    stopped_ns: int | None = None
    """Since when it has been stopped."""
    last_received_ns: int = 0
    host: str = ""
    """Identifies its host."""
    progress: RankProgress = NO_PROGRESS


@dataclass(slots=True)
class Forming:
    """A generation that is being formed."""

    lost: dict[int, str]
    """Ranks to be replaced, with the reason."""
    began_ns: int
    reports: dict[int, RankReport] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    formed: set[int] = field(default_factory=set)
    boundary: int | None = None
    """Once planned."""
    left: frozenset[str] = frozenset()
    """Hosts that ranks leave on purpose: spares of other hosts are preferred."""
    shortage: str = ""
    """Why no spare comes: the job's state is kept, and the job ends."""
    unwritten: dict[str, bool] = field(default_factory=dict)
    """Files of state still to be written, and whether with an undo copy."""
    written: dict[str, CheckpointFile] = field(default_factory=dict)
    provider: int = 0
    hosted: bool = False
