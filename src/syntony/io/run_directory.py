"""Where programs of this host find what its agent serves: the clock page, the socket for jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_DIR = "/run/syntony"
DIR_VARIABLE = "SYNTONY_CLOCK_DIR"
"""Environment variable that says where it is, if not there; set inside a lab's hosts."""
SOCKET_NAME = "agent"
QUEUE_PAIR_SOCKET = f"{SOCKET_NAME}-qp"
"""At which jobs' processes hand over the figures of their RDMA queue pairs."""
OPERATIONS_SOCKET = f"{SOCKET_NAME}-ops"
"""At which they hand over what collectives and steps they do."""
NCCL_SOCKET = f"{SOCKET_NAME}-nccl"
"""At which NCCL's profiler plug-in hands over its page of operations."""
TAKEOVER_SOCKET = f"{SOCKET_NAME}-takeovers"
"""At which coordinators of protected jobs tell of replaced ranks."""
REACTOR_SOCKET = "reactor"
"""At which a host's reactor answers the rest of its agent."""
SOCKET_VARIABLE = "SYNTONY_AGENT"
"""Environment variable by which a job's process knows the socket."""


def run_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """What agents call ``[clock] dir``."""
    return Path(environ.get(DIR_VARIABLE) or DEFAULT_DIR)


def agent_socket(environ: Mapping[str, str] = os.environ) -> str:
    """Where processes of jobs connect to the agent."""
    return environ.get(SOCKET_VARIABLE) or str(run_directory(environ) / SOCKET_NAME)
