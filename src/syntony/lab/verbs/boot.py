"""Waits for a lab's machines to boot."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from syntony.errors import MissingError
from syntony.lab import state
from syntony.lab.client import Lab


def wait_for_machines(lab: Lab, say: Callable[[str], None]) -> None:
    """Wait until every machine answers. Raises `MissingError`: one does not; with its last
    output."""
    hosts = lab.status().hosts
    say(f"{len(hosts)} machines boot")
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(_wait_for, lab, say), hosts))


def _wait_for(lab: Lab, say: Callable[[str], None], host: str) -> None:
    done = subprocess.run(lab.enter_argv(host, ["true"]), capture_output=True, check=False)
    if done.returncode:
        log = lab.directory / state.LOGS / f"machine-{host}.log"
        said = log.read_text(errors="replace").strip().splitlines()
        raise MissingError(f"{host} did not boot: {said[-1] if said else done.stderr.decode()}")
    say(f"{host} is ready")
