"""The built-in job: one rank of a collective in a loop, without any framework.

    python -m syntony.lab.jobs.builtin all-reduce RANK PORT ELEMENTS ADDRESS…

Ends when a line (or the end) arrives on standard input: every rank then ends after the same step,
because rank 0's vote to end travels with the data. With ``--alone`` rank 1 alone sends in a gather
until the line ``all`` arrives.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from syntony.errors import SyntonyError
from syntony.lab.jobs import collectives, content, records
from syntony.lab.jobs.mesh import RankMesh, connect_all
from syntony.model import S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from syntony.lab.jobs.nccl_mesh import NcclMesh

    Peers = RankMesh | NcclMesh

_GRACE_S = 5.0
"""The process ends this long after the end of standard input, even if something hangs."""


class Rank:
    """The steps of one rank. `end_requested` is read at the start of each; rank 0 ends the job.
    In a gather rank 1 sends alone until `all_requested` is set, if it is given."""

    def __init__(
        self,
        mesh: Peers,
        data: content.Content,
        end_requested: threading.Event,
        all_requested: threading.Event | None = None,
    ) -> None:
        self._mesh = mesh
        self._data = data
        self._wish = end_requested
        self._all = all_requested
        self._senders = data.ranks - 1 if all_requested is None else 1
        """In the next gather."""

    def all_reduce(self, step: int, spoil: bool) -> tuple[int, bool]:
        """Wrong elements, and whether this was the last step. `spoil` plants a wrong number."""
        rank = self._mesh.rank
        buffer = np.append(self._data.contribution(rank, step), self._vote())
        if spoil:
            buffer[len(buffer) // 2] ^= 1
        collectives.ring_all_reduce(self._mesh.exchange, buffer, rank, self._data.ranks)
        return content.count_wrong(buffer[:-1], self._data.sum(step)), bool(buffer[-1])

    def all_to_all(self, step: int, spoil: bool) -> tuple[int, bool]:
        """As `all_reduce`."""
        rank, ranks = self._mesh.rank, self._data.ranks
        vote = self._vote()  # read once: all ranks must get the same vote
        out = [np.append(self._data.send(rank, dst, step), vote) for dst in range(ranks)]
        if spoil:
            out[(rank + 1) % ranks][0] ^= 1
        into = [np.empty_like(share) for share in out]
        collectives.all_to_all(self._mesh.exchange, out, into, rank)
        bad = sum(
            content.count_wrong(share[:-1], self._data.send(src, rank, step))
            for src, share in enumerate(into)
        )
        return bad, bool(into[0][-1])

    def gather(self, step: int, spoil: bool) -> tuple[int, bool]:
        """As `all_reduce`; rank 0 alone has something to check."""
        rank, ranks, senders = self._mesh.rank, self._data.ranks, self._senders
        joined = self._all is None or self._all.is_set()
        next_senders = 0 if self._vote()[0] else ranks - 1 if joined else 1
        vote = np.array([next_senders], dtype=np.uint32)
        out = self._data.contribution(rank, step)
        if spoil:
            out[len(out) // 2] ^= 1
        into = [np.empty_like(out) for _ in range(ranks)]
        collectives.gather(self._mesh.exchange, out, into, vote, rank, senders=senders)
        checked = range(1, senders + 1) if rank == 0 else ()
        bad = sum(
            content.count_wrong(into[src], self._data.contribution(src, step)) for src in checked
        )
        self._senders = int(vote[0])
        return bad, not self._senders

    def _vote(self) -> NDArray[np.uint32]:
        ends = self._mesh.rank == 0 and self._wish.is_set()
        return np.array([ends], dtype=np.uint32)


def run(rank: Rank, collective: str, number: int, spoil_at: int | None, pause_ns: int = 0) -> int:
    """Steps until the end, `pause_ns` before each; the exit code."""
    turn = {
        "all-reduce": rank.all_reduce,
        "all-to-all": rank.all_to_all,
        "gather": rank.gather,
    }[collective]
    step = 0
    while True:
        time.sleep(pause_ns / S)
        start_ns = time.monotonic_ns()
        try:
            wrong, last = turn(step, step == spoil_at)
        except OSError as error:
            _emit(_failed(number, step, error))
            return 3
        end_ns = time.monotonic_ns()
        _emit(
            records.StepRecord(
                rank=number, step=step, start_ns=start_ns, end_ns=end_ns, wrong=wrong
            )
        )
        step += 1
        if last:
            _emit(records.RankDone(rank=number, at_ns=time.monotonic_ns(), steps=step))
            return 0


def _failed(rank: int, step: int, error: Exception) -> records.RankFailed:
    return records.RankFailed(
        rank=rank,
        at_ns=time.monotonic_ns(),
        step=step,
        error=f"{type(error).__name__}: {error}",
        connection_lost=True,
    )


def _emit(record: records.Record) -> None:
    sys.stdout.write(records.to_line(record))
    sys.stdout.flush()


def _listen(end_requested: threading.Event, all_requested: threading.Event) -> None:
    """A line requests the end; so does the end of input. The line ``all`` lets all ranks send."""
    while line := os.read(0, 64):
        said = line.split()
        if b"all" in said:
            all_requested.set()
        if set(said) - {b"all"}:
            end_requested.set()
    end_requested.set()
    time.sleep(_GRACE_S)
    os._exit(4)


def _over_nccl(mesh: RankMesh, name: str, data: content.Content, message: int) -> NcclMesh:
    from syntony.lab.jobs.nccl_mesh import NcclMesh, Transport

    longest = (data.elements + data.ranks) * np.dtype(np.uint32).itemsize
    return NcclMesh(mesh, Transport(name), data.ranks, longest, message)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("collective", choices=["all-reduce", "all-to-all", "gather"])
    parser.add_argument("rank", type=int)
    parser.add_argument("port", type=int)
    parser.add_argument("elements", type=int, help="32-bit numbers per rank and step")
    parser.add_argument("addresses", nargs="+", metavar="ADDRESS", help="of all ranks, in order")
    parser.add_argument("--net", default="", metavar="NAME", help="an NCCL transport carries it")
    parser.add_argument("--message", type=int, default=0, help="bytes of the longest one there")
    parser.add_argument("--alone", action="store_true", help="rank 1 sends alone at first")
    parser.add_argument("--spoil", type=int, metavar="STEP", help="plant a wrong number: a test")
    parser.add_argument("--pause-ns", type=int, default=0, help="before each step")
    parser.add_argument("--nice", type=int, default=0, help="this much nicer from step 0 on")
    requested = parser.parse_args()
    end_requested, all_requested = threading.Event(), threading.Event()
    threading.Thread(target=_listen, args=(end_requested, all_requested), daemon=True).start()
    data = content.Content(len(requested.addresses), requested.elements)
    try:
        sockets = connect_all(requested.rank, requested.addresses, requested.port)
        mesh: Peers = sockets
        if requested.net:
            mesh = _over_nccl(sockets, requested.net, data, requested.message)
    except (OSError, SyntonyError) as error:
        _emit(_failed(requested.rank, -1, error))
        return 3
    os.nice(requested.nice)
    with mesh:
        _emit(records.RankReady(rank=requested.rank, at_ns=time.monotonic_ns()))
        turns = Rank(mesh, data, end_requested, all_requested if requested.alone else None)
        return run(turns, requested.collective, requested.rank, requested.spoil, requested.pause_ns)


if __name__ == "__main__":
    sys.exit(main())
