"""Programs as others write them, with torch and gloo, under the hook and without: the same results,
no verdict without a fault, and the rank at fault is named. By the agent's rows, without a lab."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.workload import stored_rows as store
from tests.workload.live.test_hooked_training import PATIENCE_S, add

from syntony.agent.operations import JobTelemetry
from syntony.errors import MissingError
from syntony.io.job_hook import hooked_path
from syntony.lab.jobs.torch_build import find_torch
from syntony.model import S
from syntony.workload import diagnose
from syntony.workload.recorded import recorded

pytestmark = pytest.mark.slow
PROGRAMS, RANKS = Path(__file__).with_name("programs.py"), 4
WINDOW_NS = 60 * S
HANGS = "hang", ("rank 2",)


class Watched:
    """One run, and what is said of it while it lasts."""

    def __init__(  # noqa: PLR0917 - as in a sentence
        self, place: Path, what: str, fault: str = "", start: str = "", program: Path = PROGRAMS,
        ranks: int = RANKS,
    ) -> None:  # fmt: skip
        try:
            self._python = find_torch()
        except MissingError as error:
            pytest.skip(f"{error}: programs that are watched are NOT tested")
        self._argv = [self._python, "-u", str(program), what, fault]
        self._start, self._place, self._ranks = start, place, ranks
        self.rows = dict[str, Any]()
        """Table → columns, what the agent's rows said."""
        self.said = set[tuple[str, tuple[str, ...]]]()
        """Classes and subjects of verdicts, and of waits."""
        self.places = set[str]()
        """Where Python is, by the records of waits."""
        self.results = list[str]()

    def run(self, *, hooked: bool = True, until: tuple[str, tuple[str, ...]] | None = None) -> None:
        """Until it ends, or until that is said of it."""
        jobs = JobTelemetry("h0", self._place)
        jobs.socket.start()
        out = self._place / "out"
        began_ns, end_s = time.monotonic_ns(), time.monotonic() + PATIENCE_S
        with ExitStack() as stack, out.open("w") as said:
            stack.callback(jobs.close)
            processes = self._processes(stack, said, hooked=hooked)
            while any(each.poll() is None for each in processes) and until not in self.said:
                assert time.monotonic() < end_s, self.said
                add(self.rows, jobs)
                self._judge(began_ns)
                time.sleep(0.3)
            while until is None and jobs.socket.processes:
                assert time.monotonic() < end_s
            add(self.rows, jobs)
        self.results = sorted(each for each in out.read_text().splitlines() if "result" in each)

    def _processes(
        self, stack: ExitStack, said: Any, *, hooked: bool
    ) -> list[subprocess.Popen[bytes]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = os.environ | {
            "WORLD_SIZE": str(self._ranks), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "PLACE": str(self._place),
        }  # fmt: skip
        if hooked:
            common |= {"SYNTONY_AGENT": str(self._place / "agent"), "SYNTONY_JOB": "night",
                       "PYTHONPATH": hooked_path({})}  # fmt: skip
        launched: list[dict[str, str]] = [{"RANK": str(rank)} for rank in range(self._ranks)]
        launched = [{}] if self._start else launched
        argv = [*self._argv, self._start] if self._start else self._argv
        processes = []
        for environ in launched:
            process = subprocess.Popen(
                argv, env=common | environ, stdout=said, stderr=subprocess.DEVNULL
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        return processes

    def _judge(self, began_ns: int) -> None:
        now_ns = time.monotonic_ns()
        rows = {name: {column: [*values] for column, values in some.items()}
                for name, some in self.rows.items()}  # fmt: skip
        found = recorded("night", rows, max(began_ns, now_ns - WINDOW_NS), now_ns, now_ns)
        if found.tables:
            result = diagnose(store.bundle(found))
            shown = (*result.verdicts, *result.waits)
            self.said |= {(str(each.fault), each.subjects) for each in shown}
            self.places |= {each.text for wait in result.waits for each in wait.evidence
                            if each.signal == "frame"}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "start"),
    [
        ("actors", ""), ("server", ""), ("evaluates", ""), ("shards", ""), ("forms", ""),
        ("loads", "spawn"), ("loads", "fork"),
    ],
)  # fmt: skip
def test_nothing_is_said_of_a_program_without_a_fault(
    tmp_path: Path, what: str, start: str
) -> None:
    plain, hooked = Watched(tmp_path, what), Watched(tmp_path, what, start=start)
    plain.run(hooked=False)
    hooked.run()
    assert len(hooked.results) == RANKS
    assert hooked.results == plain.results
    assert {each for each in hooked.said if each[0] == "hang"} == set()


@pytest.mark.parametrize(("what", "fault"), [("server", "loops"), ("evaluates", "stuck")])
def test_a_wait_that_may_be_none_is_told_with_its_rank_and_where_that_is(
    tmp_path: Path, what: str, fault: str
) -> None:
    """A rank in a loop; and one for which others wait in backward passes, which are not open
    operations."""
    watched = Watched(tmp_path, what, fault)
    watched.run(until=("undetermined", ("rank 2",)))
    assert HANGS not in watched.said
    assert any("rank 2 is at programs.py:" in each for each in watched.places), watched.places


@pytest.mark.parametrize("what", ["actors", "server", "shards", "forms"])
def test_the_rank_that_does_not_come_is_named(tmp_path: Path, what: str) -> None:
    """In backward passes of `DistributedDataParallel` it cannot be."""
    watched = Watched(tmp_path, what, "stuck")
    watched.run(until=HANGS)
    assert HANGS in watched.said
