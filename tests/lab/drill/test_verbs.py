"""Drills over verbs: which NCCL they compare with, what they refuse, whose clock they count by."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from syntony.cli.drill import command
from syntony.errors import RemoteError, UsageError
from syntony.lab.drill import contention, fleet, incast, verbs
from syntony.lab.jobs import nccl_mesh, programs
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.records import RankDone, RankReady, Record, StepRecord, on_arrival_clock
from syntony.model import S
from syntony.wire.traffic import Traffic


@pytest.fixture
def seen_by_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although tests write to /tmp."""
    monkeypatch.setattr(verbs, "_HIDDEN", ("/nowhere",))


def library(directory: Path, source: str) -> Path:
    made = directory / verbs.LIBRARY
    made.parent.mkdir(parents=True)
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made)]
    subprocess.run(words, input=source.encode(), check=True)
    return made


@pytest.mark.usefixtures("seen_by_machines")
def test_the_table_is_found_where_the_library_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padding = random.randrange(1, 64)
    source = (
        f"static void *padding[{padding}] = {{&padding}}; void *{verbs.TABLE}[22] = {{&padding}};"
    )
    made = library(tmp_path, source)
    path, _, offset = verbs.nccl_transport(made).partition("@")
    names = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    assert path == str(made)
    assert f"{int(offset, 16):016x} " in names
    [line] = [line for line in names.splitlines() if line.endswith(verbs.TABLE)]
    assert int(line.split()[0], 16) == int(offset, 16)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert verbs.nccl_transport(None) == f"{path}@{offset}"


def test_where_no_nccl_is_installed_none_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", ["", str(tmp_path)])
    assert not verbs.nccl_transport(None)


def test_a_library_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = library(tmp_path, "int ncclGetVersion(int *to) { return *to = 0; }")
    monkeypatch.setattr(verbs, "_HIDDEN", (str(tmp_path),))
    with pytest.raises(UsageError, match="put it elsewhere"):
        verbs.nccl_transport(made)
    monkeypatch.setattr(verbs, "_HIDDEN", ())
    with pytest.raises(UsageError, match=f"where {verbs.TABLE} is"):
        verbs.nccl_transport(made)
    with pytest.raises(UsageError, match="no such file"):
        verbs.nccl_transport(tmp_path / "absent.so")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--over", "verbs", "--job", "ddp"], "--job ddp cannot run --over verbs"),
        (["--nccl", "/usr/lib/libnccl.so.2"], "--nccl is for --over verbs"),
        (["--over", "verbs", "--fault", "spine-blackhole"], "take another --fault"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], why: str) -> None:
    done = CliRunner().invoke(command, ["nic-flap", *words])
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["contention", "--job", "all-reduce"], "--job is not for --over verbs"),
        (["contention", "--hosts", "4"], "--hosts is not for --over verbs"),
        (["contention", "--spines", "3"], "--spines is not for --over verbs"),
        (["incast", "--plain"], "--plain is not for --over verbs"),
        (["incast", "--congestion", "reno"], "--congestion is not for --over verbs"),
        (["incast", "--before", "0s"], "--before 0s: give a time"),
    ],
)
def test_what_only_tcp_has_is_refused(words: list[str], why: str) -> None:
    done = CliRunner().invoke(command, [*words, "--over", "verbs"])
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)


class Place:
    """A lab that is asked for its hosts only."""

    name = "place"

    def __init__(self, hosts: int, image: str) -> None:
        self._hosts, self._image = tuple(f"h{k}" for k in range(hosts)), image

    def file(self) -> Any:
        return SimpleNamespace(image=self._image)

    def status(self) -> Any:
        return SimpleNamespace(hosts=self._hosts)

    def addresses(self, _family: int) -> dict[str, str]:
        nics = (("rail0", "10.0.0"), ("mgmt0", "172.30.0"))
        return {f"{h}/{n}": f"{net}.{k}" for k, h in enumerate(self._hosts) for n, net in nics}


def test_jobs_that_contend_share_two_machines_and_no_listener() -> None:
    lab: Any = Place(3, "image")
    red, blue = contention.verbs_specs(lab, contention.VERBS_OPTIONS)
    assert red.hosts == blue.hosts == ("h0", "h1")
    assert red.net == blue.net == "syntony"
    assert red.port != blue.port
    wraps = [
        verbs.managed(*each) for each in zip(("red", "blue"), contention.VERBS_RAILS, strict=True)
    ]
    assert [next(w for w in wrap if "RAILS" in w) for wrap in wraps] == [
        "SYNTONY_NCCL_RAILS=rxe_rail0",
        "SYNTONY_NCCL_RAILS=rxe_rail0+rxe_rail1",
    ]
    for name, wrap in zip(("red", "blue"), wraps, strict=True):
        assert wrap[wrap.index("--job") + 1] == name
        assert "--nccl" in wrap[: wrap.index("--")]


def test_ranks_go_first_until_their_steps_begin_and_last_then() -> None:
    lab: Any = Place(3, "image")
    wrap = verbs.managed("red", ("rail0",))
    assert wrap[:2] == ("nice", "-n")
    for spec in (*contention.verbs_specs(lab, contention.VERBS_OPTIONS),
                 incast.job_spec(lab, incast.VERBS_OPTIONS)):  # fmt: skip
        words = programs.argv(spec, 1)
        assert int(wrap[2]) < 0 < int(wrap[2]) + int(words[words.index("--nice") + 1])


def test_a_rank_is_nicer_from_its_first_step_on() -> None:
    spec = JobSpec(kind="all-reduce", hosts=("h0",), addresses=("127.0.0.1",), elements=16, nice=3)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with subprocess.Popen(
        programs.argv(spec, 0), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdin
        assert rank.stdout
        assert "step" in "".join(rank.stdout.readline() for _ in range(3))
        assert os.getpriority(os.PRIO_PROCESS, rank.pid) == min(own + 3, 19)
        rank.stdin.write("end\n")
        rank.stdin.flush()
        rank.stdout.read()


def test_everybody_sends_to_the_first_machine() -> None:
    lab: Any = Place(3, "image")
    spec = incast.job_spec(lab, incast.VERBS_OPTIONS)
    assert (spec.kind, spec.hosts, spec.net) == ("gather", ("h0", "h1", "h2"), "syntony")
    assert not incast.job_spec(lab, incast.IncastOptions(senders=2)).net


def test_sockets_of_ranks_are_on_no_rail() -> None:
    """Agents would manage them there, and probe their paths at a high rate."""
    lab: Any = Place(3, "image")
    for spec in (*contention.verbs_specs(lab, contention.VERBS_OPTIONS),
                 incast.job_spec(lab, incast.VERBS_OPTIONS)):  # fmt: skip
        assert spec.nic == "mgmt0"
        assert spec.addresses == tuple(f"172.30.0.{k}" for k in range(len(spec.hosts)))
    over_tcp = incast.job_spec(lab, incast.IncastOptions(senders=2))
    assert (over_tcp.nic, over_tcp.addresses[1]) == ("rail0", "10.0.0.1")


def test_messages_are_short_beside_the_queue() -> None:
    lab: Any = Place(3, "image")
    spec = incast.job_spec(lab, incast.VERBS_OPTIONS)
    words = programs.argv(spec, 1)
    message = int(words[words.index("--message") + 1])
    fabric = incast.VERBS_SPEC
    queue = fabric.rate_bps * fabric.latency_ns // (8 * S)
    assert 4 * message < queue, "paced, one of each sender waits at most"
    under_way = incast.VERBS_SENDERS * nccl_mesh.IN_FLIGHT * message // fabric.rails
    assert queue < under_way, "unpaced, the queue overflows"


def test_a_lab_without_machines_is_refused() -> None:
    lab: Any = Place(4, "")
    with pytest.raises(UsageError, match="have no RDMA"):
        contention.verbs_specs(lab, contention.VERBS_OPTIONS)
    with pytest.raises(UsageError, match="have no RDMA"):
        incast.job_spec(lab, incast.VERBS_OPTIONS)


def test_a_lab_that_is_too_slow_says_how_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab: Any = Place(2, "image")
    lab.name, lab.controller_socket = "drill-1", "/nowhere"
    monkeypatch.setattr("os.getloadavg", lambda: (37.2, 0.0, 0.0))
    with pytest.raises(RemoteError, match=r"ready within 0 s; load average 37 on \d+ cores"):
        fleet.wait_ready(lab, 0.0)
    traffic = Traffic(
        mode="observe", deciding=False, why="0 of 2 hosts listen", now_ns=1, flows=(), links=()
    )
    monkeypatch.setattr(contention, "fetch_traffic", lambda _lab: traffic)
    monkeypatch.setattr(contention, "MAP_TIMEOUT_S", 0.1)
    with pytest.raises(RemoteError, match="0 of 2 hosts listen; load average 37"):
        contention.wait_delays(lab, contention.JOBS)


def test_records_of_two_machines_are_counted_by_one_clock() -> None:
    """Foreign clocks, random delays on the way; only the least delay stays as error."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(50):
        ahead_ns, least_ns = draw.randrange(-(10**15), 10**15), draw.randrange(10**6)
        at_ns, truth, said = 10**12, [], []
        for number in range(30):
            begin_ns, at_ns = at_ns, at_ns + draw.randrange(1, 10**8)
            truth.append((begin_ns, at_ns))
            late_ns = least_ns + (draw.randrange(10**7) if number else 0)
            record: Record = StepRecord(
                rank=1, step=number, start_ns=begin_ns + ahead_ns, end_ns=at_ns + ahead_ns, wrong=0
            )
            said.append((at_ns + late_ns, record))
        said.append((at_ns + 10**9, RankDone(rank=1, at_ns=at_ns + ahead_ns, steps=30)))
        found = on_arrival_clock(said)
        steps = [each for each in found if isinstance(each, StepRecord)]
        assert [(each.start_ns, each.end_ns) for each in steps] == [
            (begin + least_ns, end + least_ns) for begin, end in truth
        ]
        assert isinstance(found[-1], RankDone)
        assert found[-1].at_ns == at_ns + least_ns
    assert on_arrival_clock([]) == []
    assert on_arrival_clock([(5, RankReady(rank=0, at_ns=9))]) == [RankReady(rank=0, at_ns=5)]
