"""How launchers give a process its rank: environment variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class VariableNames(NamedTuple):
    """Names of one launcher's variables."""

    rank: str
    ranks: str
    local_rank: str
    """Within the host."""
    per_host: str


LAUNCHERS = (
    VariableNames("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun
    VariableNames("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    VariableNames(  # Open MPI
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    VariableNames("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
)  # fmt: skip
"""An inner launcher comes before an outer one: `srun torchrun` sets both."""
OTHERS = ("GROUP_RANK", "ROLE_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_NODE_RANK")
RANK_NAMES = frozenset({name for each in LAUNCHERS for name in (each.rank, each.local_rank)}
                       | {*OTHERS})  # fmt: skip
"""Variables that a spare does not have until it gets a rank."""


def place(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Rank and number of ranks that a launcher gave this process, if any."""
    for each in LAUNCHERS:
        if environ.get(each.rank, "").isdigit() and environ.get(each.ranks, "").isdigit():
            return int(environ[each.rank]), int(environ[each.ranks])
    return None


def per_host(environ: Mapping[str, str]) -> int:
    """Ranks on each host; 0: unknown."""
    for each in LAUNCHERS:
        if environ.get(each.per_host, "").isdigit():
            return int(environ[each.per_host])
    return 0


def variables(environ: Mapping[str, str], rank: int, ranks: int) -> dict[str, str]:
    """Variables that the job's launcher would give to the process of a rank, and PyTorch's own
    names.

    Args:
        environ: of a spare: that of another rank, without the variables that name it.
        rank: its new rank.
        ranks: number of ranks of the job.
    """
    on_host = per_host(environ)
    local = rank % on_host if on_host else rank
    found = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(ranks)}
    for each in LAUNCHERS:
        if each.ranks in environ:
            found |= {each.rank: str(rank), each.local_rank: str(local)}
    return found
