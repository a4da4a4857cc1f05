"""Bandwidth of pairs: the hunt by itself, perftest as recorded, TCP for real."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.live import live
from tests.ports import free_port

from syntony.audit.facts import UnreadableError
from syntony.audit.hunt import HuntOutcome, Pair
from syntony.audit.parse.bandwidth import parse_write_bw
from syntony.audit.speed_hunt import Speed, SpeedHunt
from syntony.cli import run
from syntony.io.audit.pair_tests import WORKER, PairTestOptions, PairTests
from syntony.io.audit.ranks import LocalRanks

HOSTS = tuple(f"gpu{number:02}" for number in range(8))
WRITE_BW = """\
 WARNING: BW peak won't be measured in this run.
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 2\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x2c01 PSN 0xd2cf40
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:12
 remote address: LID 0000 QPN 0x2c26 PSN 0x356926
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:10
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      4159603          0.00               RATE             0.693268
---------------------------------------------------------------------------------------
"""


def hunted(
    speed: Callable[[Pair, str], Speed], things: tuple[str, ...] = ("x",), hosts: Any = HOSTS,
    **options: Any,
) -> SpeedHunt:  # fmt: skip
    hunt = SpeedHunt(hosts, things, **{"share": 0.9, **options})
    while found := hunt.next_round():
        assert len({host for pair in found for host in pair}) == 2 * len(found)
        hunt.report(
            {pair: {t: speed(pair, t) for t in requested} for pair, requested in found.items()}
        )
    return hunt


def named(hunt: SpeedHunt, thing: str = "x") -> list[tuple[HuntOutcome, tuple[str, ...]]]:
    return [(each.blame, each.hosts) for each in hunt.named(thing)]


def test_a_slow_host_is_named_by_line_rate_and_by_the_others() -> None:
    def speed(line: float | None) -> Callable[[Pair, str], Speed]:
        return lambda pair, _: Speed(gbps=50 if "gpu03" in pair else 96, line_gbps=line)

    for line in (100.0, None):
        assert named(hunted(speed(line))) == [(HuntOutcome.HOST, ("gpu03",))]
        assert named(hunted(speed(line), hosts=HOSTS[:4])) == [(HuntOutcome.HOST, ("gpu03",))]
    assert named(hunted(speed(None), at_least=40)) == []
    assert named(hunted(speed(None), at_least=97)) != []


def test_what_is_low_once_is_measured_again() -> None:
    seen: dict[Pair, int] = {}

    def speed(pair: Pair, _: str) -> Speed:
        seen[pair] = seen.get(pair, 0) + 1
        return Speed(gbps=30 if "gpu01" in pair and seen[pair] == 1 else 96)

    assert named(hunted(speed)) == []
    assert max(seen.values()) == 2


def test_every_nic_is_hunted_by_itself() -> None:
    def speed(pair: Pair, thing: str) -> Speed:
        return Speed(gbps=97 if (thing == "b" and "gpu05" in pair) else 391, line_gbps=400)

    hunt = hunted(speed, ("a", "b"), share=0.96)
    assert named(hunt, "a") == []
    assert named(hunt, "b") == [(HuntOutcome.HOST, ("gpu05",))]
    assert "97 Gb/s, not 384" in next(iter(hunt.said["b"].values()))


def test_gpu_memory_is_held_against_the_same_pairs_host_memory() -> None:
    def speed(pair: Pair, _: str) -> Speed:
        return Speed(gbps=190 if "gpu02" in pair else 380, line_gbps=400, least_gbps=0.95 * 391)

    assert named(hunted(speed, at_least=1)) == [(HuntOutcome.HOST, ("gpu02",))]


def test_a_host_that_cannot_be_reached_is_not_a_pass() -> None:
    def speed(pair: Pair, _: str) -> Speed:
        return Speed(why="gpu04: ssh: no route") if "gpu04" in pair else Speed(gbps=96)

    hunt = hunted(speed)
    assert (named(hunt), hunt.untested("x")) == ([], ("gpu04",))


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), hosts=st.integers(4, 40), bad=st.integers(0, 39))
def test_a_single_slow_host_is_always_named(seed: int, hosts: int, bad: int) -> None:
    names = [f"h{number}" for number in range(hosts)]
    slow = names[bad % hosts]
    hunt = hunted(lambda pair, _: Speed(gbps=40 if slow in pair else 96, line_gbps=100),
                  hosts=names, seed=seed)  # fmt: skip
    assert named(hunt) == [(HuntOutcome.HOST, (slow,))], f"seed {seed}"


def test_perftest_as_recorded() -> None:
    assert parse_write_bw(WRITE_BW.replace("RATE", "363.47")) == 363.47
    for broken in ("", WRITE_BW, WRITE_BW.partition(" 65536")[0], "BW average[MB/sec]\n1 1 1 1"):
        with pytest.raises(UnreadableError):
            parse_write_bw(broken)
    with pytest.raises(UnreadableError, match="Couldn't connect to"):
        parse_write_bw("---\n Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor")


@settings(max_examples=60)
@given(cut=st.integers(0, 2500), junk=st.text(max_size=20), at=st.integers(0, 2500))
def test_a_garbled_perftest_is_unreadable_or_a_rate(cut: int, junk: str, at: int) -> None:
    good = WRITE_BW.replace("RATE", "363.47")
    for text in (good[:cut], good[:at] + junk + good[at:]):
        try:
            assert parse_write_bw(text) >= 0
        except UnreadableError:
            continue


# --- RDMA: the real programs at both ends, with a recorded ib_write_bw ---

STAND_IN = """#!/bin/sh
# ib_write_bw as recorded. The last word is an address where it is the client's. Waits for the
# other end as the real one does: a client without a server is refused.
echo "$*" >> "$RECORDS/asked"
device=$2 port=$4 qps=$6
for last; do :; done
server=1
case $last in *.*.*.*) server=0;; esac
case "$*" in *use_cuda*) memory=gpu;; *) memory=host;; esac
if [ $server = 1 ]; then
  : > "$RECORDS/listens-$port"
  n=0; while [ -e "$RECORDS/listens-$port" ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n+1)); done
else
  if [ ! -e "$RECORDS/listens-$port" ]; then echo "Couldn't connect to $last:$port"; exit 1; fi
  rm "$RECORDS/listens-$port"
fi
if [ -e "$RECORDS/fails-$device-$qps" ]; then cat "$RECORDS/fails-$device-$qps"; exit 1; fi
cat "$RECORDS/said-$device-$memory" 2>/dev/null || cat "$RECORDS/said"
"""
ASKED = PairTestOptions(("mlx5_0", "mlx5_1"), gid=3)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "ib_write_bw"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "said").write_text(WRITE_BW.replace("RATE", "391.92"))
    monkeypatch.setenv("RECORDS", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def rdma(requested: PairTestOptions = ASKED) -> Mapping[str, Speed]:
    tests = PairTests(LocalRanks(sys.executable, WORKER), 1, free_port())
    return tests.rdma(("a", "b"), requested)


def test_rdma_with_recorded_outputs(recorded: Path) -> None:
    (recorded / "said-mlx5_1-host").write_text(WRITE_BW.replace("RATE", "97.3"))
    found = rdma()
    assert {thing: each.gbps for thing, each in found.items()} == {
        "be.conn.qp mlx5_0": 1.0, "be.conn.bw mlx5_0": 391.92,
        "be.conn.qp mlx5_1": 1.0, "be.conn.bw mlx5_1": 97.3,
    }  # fmt: skip
    requested = (recorded / "asked").read_text().splitlines()
    assert {line.split()[5] for line in requested} == {"1", "2", "4", "8"}
    assert all("-F --report_gbits -x 3" in line for line in requested)
    # Two ends of five runs on two NICs, and clients that came too early.
    assert len({(line.split()[3], "127.0.0.1" in line) for line in requested}) == 4


def test_queue_pairs_that_do_not_connect_are_told(recorded: Path) -> None:
    (recorded / "fails-mlx5_1-8").write_text(
        "---\n Failed to modify QP 113 to RTS\n Unable to Connect the HCA's through the link\n"
    )
    found = rdma()
    assert found["be.conn.qp mlx5_0"].gbps == 1.0
    bad = found["be.conn.qp mlx5_1"]
    assert (bad.gbps, bad.broke) == (None, True)
    assert "mlx5_1, 8 queue pairs: Failed to modify QP 113 to RTS" in bad.why
    assert found["be.conn.bw mlx5_1"].gbps == 391.92


def test_without_gpus_or_perftest_nothing_is_claimed(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rdma(PairTestOptions(("mlx5_0",), gpu=True))
    assert found["be.conn.gdr mlx5_0"] == Speed(
        why=found["be.conn.gdr mlx5_0"].why, least_gbps=0.95 * 391.92
    )
    assert "no GPU here" in found["be.conn.gdr mlx5_0"].why
    (recorded / "ib_write_bw").unlink()
    monkeypatch.setenv("PATH", "/nonexistent")
    missing = rdma(PairTestOptions(("mlx5_0",)))["be.conn.bw mlx5_0"]
    assert (missing.gbps, missing.broke) == (None, False)
    assert "not installed" in missing.why


# --- TCP: for real ---


@pytest.mark.parametrize("seconds", [0.1, 0.0])
def test_tcp_really_runs_over_loopback(seconds: float) -> None:
    """Also where a busy host begins to send when the time is over."""
    tests = PairTests(LocalRanks(sys.executable, WORKER), seconds, free_port())
    speed = tests.tcp(("a", "b"), 2)
    assert speed.why == ""
    assert speed.gbps is not None
    assert speed.gbps > 0.01
    assert speed.line_gbps is None  # loopback is not real


def test_a_port_that_another_process_uses_blames_no_host() -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        speed = PairTests(LocalRanks(sys.executable, WORKER), 0.1, port).tcp(("a", "b"), 1)
    assert speed == Speed(why=f"b: TCP port {port} is used by another process")


@pytest.mark.lab
@pytest.mark.slow
def test_a_slow_host_of_a_lab_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with live("bandwidth", "--hosts", "4", "--rails", "1") as lab:
        lab.inject("rate", "h2/rail0", {"to": "10Mbit"})
        words = ["--lab", "bandwidth", "--nic", "rail0", "--at-least", "0.04", "--seconds", "1"]
        assert run(["audit", "bandwidth", *words, "--streams", "2", "--json"]) == 2
    reported = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["status"], each["subject"]) for each in reported] == [
        ("fe.bw", "fail", "h2")]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [[], ["--hosts", "a"], ["--hosts", "a,b", "--lab", "x"], ["--hosts", "a,b", "--gdr"],
     ["--lab", "x", "--rdma", "mlx5_0"], ["--hosts", "a,b", "--rdma", "-x"]],
)  # fmt: skip
def test_wrong_orders_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "bandwidth", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_plan_needs_no_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "bandwidth", "--hosts", "gpu[00-07]", "--every-pair", "--plan"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 7
