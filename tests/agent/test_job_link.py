"""Processes of jobs at the agent's socket: those that behave, and those that do not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.live import eventually

from syntony.agent.job_admission import MAX_PER_PROCESS, AdmissionRefusal
from syntony.agent.job_link import JobLink
from syntony.errors import MissingError
from syntony.traffic.instructions import Cause, Notice, Reason
from syntony.wire.failover import ProcessView

PEER = Path(__file__).with_name("job_peer.py")
PATIENCE_S = 300.0
REASON = Reason(Cause.PATH, "test", 1, 0)
COSTS = 4
"""Descriptors for one peer: its connection, its process, and here our pipes to it."""


class _Counted(JobLink):
    """Counts how often its thread wakes."""

    rounds = 0

    def _serve(self, *words: object) -> None:
        self.rounds += 1
        super()._serve(*words)  # type: ignore[arg-type]


@pytest.fixture
def link(tmp_path: Path) -> Iterator[_Counted]:
    made = _Counted(tmp_path / "agent")
    made.start()
    yield made
    made.close()
    assert made.fault is None


def start(link: JobLink, mode: str, **environ: str) -> subprocess.Popen[str]:
    given = {"SYNTONY_AGENT": str(link._path), "SYNTONY_JOB": "night"} | environ
    return subprocess.Popen(
        [sys.executable, str(PEER), mode],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | given,
        start_new_session=True,
    )  # fmt: skip


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


@contextmanager
def peer(link: JobLink, mode: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has done what its mode says, and is still there."""
    with start(link, mode, **environ) as process:
        try:
            assert line_of(process) == "ready"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children, too


def of(link: JobLink, process: subprocess.Popen[str]) -> ProcessView:
    """What is known of a process that is connected, or soon is."""
    eventually(lambda: process.pid in {each.pid for each in link.report()}, "connected")
    return next(each for each in link.report() if each.pid == process.pid)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def unharmed(link: _Counted) -> Iterator[None]:
    """Before and after, another process is heard; in the end nothing is left of anybody."""
    with peer(link, "tell") as good:
        assert of(link, good).flows[0].number == 17
        before = descriptors() - COSTS
        yield
        assert of(link, good).flows[0].number == 17
        with peer(link, "tell") as late:
            assert of(link, late).flows[0].number == 17
    eventually(lambda: not link.report(), "all gone")
    eventually(lambda: descriptors() == before, "all descriptors closed")


def test_a_process_tells_how_its_flows_do(link: _Counted) -> None:
    with peer(link, "tell") as process:
        reported = of(link, process)
        assert (reported.job, reported.uid, reported.malformed, reported.left_out) == (
            "night",
            os.getuid(),
            0,
            0,
        )
        assert reported.program.startswith("python")
        (flow,) = reported.flows
        assert (flow.mechanism, flow.number, flow.nic) == ("rdma", 17, "mlx5_0")
        assert (flow.local, flow.remote) == ("10.0.0.1:49152", "10.0.0.2:4791")
        assert (flow.bytes_done, flow.bytes_outstanding, flow.outstanding) == (1 << 20, 4096, 3)
        assert (flow.errors, flow.last_error, flow.failed) == (2, 12, False)
        assert flow.idle_ns > 0
    eventually(lambda: not link.report(), "gone")
    assert link.refused() == {}


def test_the_socket_is_for_every_user_and_only_while_it_is_served(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agent"
    link = JobLink(path)
    previous = os.umask(0o077)
    try:
        link.start()
        assert path.stat().st_mode & 0o777 == 0o666
        link.start()  # again, as a part does that has failed
        with peer(link, "tell") as process:
            of(link, process)
            link.close()
            assert not link.report()
    finally:
        os.umask(previous)
    assert not path.exists()
    link.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.write_text("precious")
    with pytest.raises(MissingError, match="is not a socket; remove it"):
        JobLink(path).start()
    assert path.read_text() == "precious"
    long = tmp_path / ("x" * 120) / "agent"
    with pytest.raises(MissingError, match="no socket"):
        JobLink(long).start()


@pytest.mark.parametrize("by_symlink", [False, True])
def test_another_socket_in_place_of_ours_is_noticed(tmp_path: Path, by_symlink: bool) -> None:
    """Jobs would talk to a stranger, while the agent was content."""
    path, other = tmp_path / "agent", tmp_path / "stranger"
    link = JobLink(path)
    link.start()
    assert link.fault is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.bind(str(other))
        path.rename(tmp_path / "before")  # its inode stays taken
        if by_symlink:
            path.symlink_to(other)
        else:
            other.rename(path)
        assert "the socket was re" in str(link.fault)
        if not by_symlink:
            with pytest.raises(MissingError, match="another process listens there"):
                link.start()
            assert path.is_socket()
            stranger.close()
        link.start()  # as the part does that has failed
        assert path.is_socket()
        assert not path.is_symlink()
        assert link.fault is None
    link.close()


def test_a_second_agent_does_not_take_the_socket_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    first, second = JobLink(path), JobLink(path)
    first.start()
    for _ in range(2):  # as a part does that has failed
        with pytest.raises(MissingError, match="another process listens there, perhaps another"):
            second.start()
    assert first.fault is None
    with peer(first, "tell") as process:
        of(first, process)
    first.close()
    second.start()
    second.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    second.start()  # the file of one that was killed
    second.close()
    assert not path.exists()


def test_a_directory_in_which_every_user_may_write_is_not_used(tmp_path: Path) -> None:
    """A symbolic link could be there by the time that the socket's mode is set."""
    tmp_path.chmod(0o777)
    with pytest.raises(MissingError, match="every user may replace the socket there; chmod o-w"):
        JobLink(tmp_path / "agent").start()
    tmp_path.chmod(0o1777)  # nobody removes files of others
    link = JobLink(tmp_path / "agent")
    link.start()
    link.close()


def test_a_process_without_a_job_is_not_let_in(link: _Counted) -> None:
    costs = []
    for job in ("", "two words", "../x"):
        with start(link, "tell", SYNTONY_JOB=job) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "refused Permission denied\n"
            process.kill()
        costs.append(descriptors())
    assert costs[0] == costs[2]
    assert link.refused() == {AdmissionRefusal.NO_JOB: 3}
    assert not link.report()


def test_notices_reach_every_process_also_those_that_connect_later(link: _Counted) -> None:
    dead = Notice(path=("10.0.0.1", "10.0.0.2"), usable=False, reason=REASON, expires_ns=9)
    other = Notice(path=("10.0.0.1", "10.0.0.9"), usable=False, reason=REASON)
    with peer(link, "hear") as first:
        of(link, first)
        link.do(dead)
        link.do(other)
        link.do(Notice(path=other.path, usable=True, reason=REASON))
        link.stop(stopped=False)  # it was not stopped: no news
        said = [line_of(first) for _ in range(3)]
        assert said == [
            "notice 1 0a000001 0a000002",
            "notice 1 0a000001 0a000009",
            "notice 2 0a000001 0a000009",
        ]
        with peer(link, "hear") as second:
            assert line_of(second) == "notice 1 0a000001 0a000002"
            link.stop(stopped=True)
            assert line_of(second) == "notice 3 00000000 00000000"
        with peer(link, "hear") as third:
            assert line_of(third) == "notice 3 00000000 00000000"
        link.stop(stopped=False)
        assert [line_of(first) for _ in range(2)] == [
            "notice 3 00000000 00000000",
            "notice 4 00000000 00000000",
        ]


def test_a_report_names_the_paths_in_use(link: _Counted) -> None:
    with peer(link, "tell") as process:
        of(link, process)
        assert link.paths == {("10.0.0.1", "10.0.0.2")}
    eventually(lambda: not link.report(), "gone")
    assert link.paths == frozenset()


# --- hostile ones ---


def test_one_that_says_nothing_costs_nothing(link: _Counted) -> None:
    with unharmed(link), peer(link, "silent") as process:
        assert of(link, process).flows == ()


def test_one_with_a_name_that_terminals_obey_has_a_printable_one(link: _Counted) -> None:
    with unharmed(link), peer(link, "named") as process:
        assert of(link, process).program == "?[2J?x"


def test_one_that_talks_is_not_listened_to(link: _Counted) -> None:
    with unharmed(link):
        before = descriptors()
        with peer(link, "talk") as process:
            of(link, process)
            assert descriptors() == before + COSTS  # none that it sent
            rounds = link.rounds
            for _ in range(100):
                link.report()
                time.sleep(0.001)
            assert link.rounds - rounds <= 1
            assert process.pid in {each.pid for each in link.report()}


def test_one_that_shrinks_its_page_cannot(link: _Counted) -> None:
    with unharmed(link), peer(link, "shrink") as process:
        assert of(link, process).flows == ()


@pytest.mark.parametrize("seed", range(3))
def test_one_that_scribbles_is_read_within_bounds(link: _Counted, seed: int) -> None:
    with unharmed(link), peer(link, "scribble", PEER_SEED=str(seed)) as process:
        of(link, process)
        for _ in range(300):
            reported = of(link, process)
            assert len(reported.flows) + reported.malformed <= 512
        assert sum(link.malformed.values()) + link.torn > 0


def test_one_that_dies_in_the_middle_of_a_record(link: _Counted) -> None:
    with unharmed(link):
        with peer(link, "half") as process:
            reported = of(link, process)
            assert (reported.flows, reported.malformed) == ((), 1)
        eventually(lambda: len(link.report()) == 1, "gone")


def test_a_child_that_keeps_the_socket_does_not_keep_the_process(link: _Counted) -> None:
    with unharmed(link), peer(link, "fork") as process:
        of(link, process)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == -9
        eventually(lambda: len(link.report()) == 1, "gone")
        os.killpg(process.pid, 0)  # the child is there
    eventually(lambda: not left(process.pid), "the child gone as well")


def left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_that_holds_many_connections_has_few(link: _Counted) -> None:
    with unharmed(link), peer(link, "many", PEER_COUNT="400") as process:
        of(link, process)
        eventually(lambda: sum(link.refused().values()) == 400 - MAX_PER_PROCESS, "all refused")
        assert set(link.refused()) == {AdmissionRefusal.PROCESS_FULL, AdmissionRefusal.TOO_OFTEN}
        mine = [each for each in link.report() if each.pid == process.pid]
        assert len(mine) == MAX_PER_PROCESS
        # The allowance of its user is used up; it comes back.
        eventually(lambda: link._admission._allowances == {} or _spare(link) > 8, "refilled")


def _spare(link: JobLink) -> int:
    now_ns = time.monotonic_ns()
    with link._lock:
        link._admission._spend(-1, now_ns)  # somebody else's: refills all
        return link._admission._allowances[os.getuid()].left


def test_one_that_comes_and_goes_leaves_nothing(link: _Counted) -> None:
    with peer(link, "come_and_go", PEER_COUNT="100"):
        eventually(lambda: not link.report(), "gone")
    eventually(lambda: link.connected + sum(link.refused().values()) == 100, "all seen")
    with unharmed(link):
        pass


def test_each_process_is_ordered_its_own_rates_and_freed_of_those_before(link: _Counted) -> None:
    one, two = ("10.0.0.1", "10.0.0.2"), ("10.0.1.1", "10.0.1.2")
    with peer(link, "hear") as first, peer(link, "hear") as second:
        assert (of(link, first).pid, of(link, second).pid) == (first.pid, second.pid)
        link.pace({(first.pid, *one): 7_000, (second.pid, *two): 9_000, (1, *one): 5}, 1 << 62)
        assert line_of(first) == "notice 5 0a000001 0a000002 7000"
        assert line_of(second) == "notice 5 0a000101 0a000102 9000"
        link.pace({(second.pid, *two): 9_000}, 1 << 62)
        assert line_of(first) == "notice 5 0a000001 0a000002 0"
        assert line_of(second) == "notice 5 0a000101 0a000102 9000"
        link.stop(stopped=True)
        link.pace({(first.pid, *one): 7_000}, 1 << 62)
        link.stop(stopped=False)
        for each in (first, second):
            assert line_of(each) == "notice 3 00000000 00000000"
            assert line_of(each) == "notice 4 00000000 00000000"
