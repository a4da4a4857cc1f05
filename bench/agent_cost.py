"""What an agent costs its host in the long run, thread by thread: eight NICs, no job.

    .venv/bin/python -m bench.agent_cost [--rails 8] [--interval 1s] [--seconds 30] [--json]

A lab of four hosts whose agents probe three peers on every rail and do nothing else. When they have
fleet time and have asked for every path once, the kernel's account of each of their threads is read
twice, `--seconds` apart: time on a processor (``schedstat``, to the nanosecond), how much of it in
user mode (``stat``, sampled), voluntary waits. Shown are medians over the agents, % of one core.

A lab's packets cross the whole fabric within the sender's system call, so much of what the probe
engine's thread costs is the lab. To tell it apart, two bare processes then exchange as many packets
over the same NICs, one pair of requests at a time, without stamps, authentication or records: their
system time is what such packets cost here anyone who sends them. (They are Python: their user time
says nothing, and is not shown.)
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.live import LiveLab, eventually, live

HOSTS, PEERS = 4, 3
SETTLE_S = 40.0
"""384 paths are asked for at 50 packets a second in about half a minute."""
PATIENCE_S = 120.0
PORT = 9911
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Account(NamedTuple):
    """Of one thread since it began."""

    total_s: float
    user_s: float
    system_s: float
    waits: int


Agent = tuple[int, ...]
"""Its processes."""


def account(task: Path) -> tuple[str, Account]:
    """Name and account of ``/proc/PID/task/TID`` (proc_pid_stat(5), sched-stats.rst)."""
    head, _, rest = (task / "stat").read_text().rpartition(")")
    fields = rest.split()
    waits = next(
        int(line.split()[1])
        for line in (task / "status").read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )
    user_s, system_s = int(fields[11]) * TICK_S, int(fields[12]) * TICK_S
    total_s = int((task / "schedstat").read_text().split()[0]) / 1e9
    return head.partition("(")[2], Account(total_s, user_s, system_s, waits)


def accounts(agent: Agent) -> dict[str, tuple[str, Account]]:
    """Of every thread of an agent, by its number."""
    tasks = (task for pid in agent for task in Path(f"/proc/{pid}/task").iterdir())
    return {task.name: account(task) for task in tasks}


def memory_mb(agent: Agent) -> float:
    """Resident, the libraries that its processes share counted for each."""
    lines = [line for pid in agent for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def datagrams(agent: Agent) -> int:
    """UDP packets that the namespace of an agent has sent: RFC 4113's udpOutDatagrams."""
    names, values = (
        line.split() for line in Path(f"/proc/{agent[0]}/net/snmp").read_text().splitlines()
        if line.startswith("Udp:")
    )  # fmt: skip
    return int(values[names.index("OutDatagrams")])


def agents(lab: LiveLab) -> list[Agent]:
    """The lab's."""
    parents: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.read_text().rpartition(")")[2].split()[1])].append(
                int(stat.parent.name)
            )
        except FileNotFoundError:  # it has just ended
            continue
    found: dict[bytes, Agent] = defaultdict(tuple)
    waiting = [lab.pid()]
    while waiting:
        pid = waiting.pop()
        waiting += parents[pid]
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"agent" in words and b"--config" in words:
            # Both processes of an agent read the same file.
            found[words[words.index(b"--config") + 1]] += (pid,)
    return list(found.values())


def shares(
    before: dict[str, tuple[str, Account]], after: dict[str, tuple[str, Account]], took_s: float
) -> dict[str, Account]:
    """Per thread name: % of a core in all, in user mode, in system mode; waits a second."""
    found: dict[str, Account] = defaultdict(lambda: Account(0, 0, 0, 0))
    for number, (name, now) in after.items():
        was = before.get(number, (name, Account(0, 0, 0, 0)))[1]
        ticks = (now.user_s - was.user_s) + (now.system_s - was.system_s)
        user = (now.user_s - was.user_s) / ticks if ticks else 0.0
        percent = 100 * (now.total_s - was.total_s) / took_s
        sofar = found[name]
        found[name] = Account(
            sofar.total_s + percent,
            sofar.user_s + percent * user,
            sofar.system_s + percent * (1 - user),
            sofar.waits + round((now.waits - was.waits) / took_s),
        )
    return found


def row(name: str, threads: list[Account]) -> dict[str, Any]:
    """Medians over the agents; the median of sums is not the sum of medians."""
    total, user, system, waits = (statistics.median(each) for each in zip(*threads, strict=True))
    return {
        "thread": name, "percent": round(total, 2), "user": round(user, 2),
        "system": round(system, 2), "waits_per_s": round(waits),
    }  # fmt: skip


def summed(threads: dict[str, Account]) -> Account:
    return Account(*(sum(each) for each in zip(*threads.values(), strict=True)))


def measure(pids: list[Agent], seconds: float) -> tuple[list[dict[str, Any]], int]:
    """Rows of every thread and of all, and packets a second that an agent sends."""
    before, sent = {pid: accounts(pid) for pid in pids}, {pid: datagrams(pid) for pid in pids}
    began_s = time.monotonic()
    time.sleep(seconds)
    after = {pid: accounts(pid) for pid in pids}
    took_s = time.monotonic() - began_s
    pps = statistics.median((datagrams(pid) - sent[pid]) / took_s for pid in pids)
    found = [shares(before[pid], after[pid], took_s) for pid in pids]
    names = sorted({name for each in found for name in each})
    nothing = Account(0, 0, 0, 0)
    rows = [row(name, [each.get(name, nothing) for each in found]) for name in names]
    rows.sort(key=lambda each: -float(each["percent"]))
    return [*rows, row("all", [summed(each) for each in found])], round(pps)


# --- the same packets and nothing else ---


def exchange(local: list[str], remote: list[str], per_s: float, seconds: float) -> None:
    """Sends `per_s` requests in pairs, NIC after NIC, and answers what comes; then tells of its
    system time."""
    selector = selectors.EpollSelector()
    sockets = []
    for address in local:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        one.bind((address, PORT))
        selector.register(one, selectors.EVENT_READ, one)
        sockets.append(one)
    request, reply = b"q" * 100, b"r" * 100
    began_s = due_s = time.monotonic()
    used = os.times()
    turn = 0
    while (now_s := time.monotonic()) < began_s + seconds:
        if now_s >= due_s:
            due_s += 2 / per_s
            target = (remote[turn % len(remote)], PORT)
            for _ in range(2):
                sockets[turn % len(sockets)].sendto(request, target)
            turn += 1
        for key, _ in selector.select(max(0.0, due_s - time.monotonic())):
            data, sender = key.data.recvfrom(200)
            if data == request:
                key.data.sendto(reply, sender)
    spent = os.times()
    print(json.dumps(100 * (spent.system - used.system) / (time.monotonic() - began_s)))


def bare(lab: LiveLab, rails: int, pps: int, seconds: float) -> float:
    """System time of an agent's packets sent by something that does nothing else, % of a core."""
    places = lab.addresses(4)
    ends = [",".join(places[f"{host}/rail{n}"] for n in range(rails)) for host in ("h0", "h1")]
    running = []
    for host, local, remote in (("h0", *ends), ("h1", *reversed(ends))):
        words = ["--exchange", local, remote, str(pps / 2), str(seconds)]
        argv = lab.enter_argv(host, [sys.executable, "-m", "bench.agent_cost", *words])
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
    reported = [json.loads(each.communicate(timeout=seconds + PATIENCE_S)[0]) for each in running]
    return round(float(statistics.median(reported)), 2)


def run(rails: int, interval: str, seconds: float, settle_s: float) -> dict[str, Any]:
    name = f"bench-{os.getpid()}"
    options = ("--hosts", str(HOSTS), "--rails", str(rails), "--mesh-peers", str(PEERS))
    with live(name, *options, "--probe-interval", interval, agents=True) as lab:
        eventually(
            lambda: all(truth.error_ns is not None for truth in lab.truth()),
            "clocks",
            within_s=PATIENCE_S,
        )
        time.sleep(settle_s)
        pids = agents(lab)
        rows, pps = measure(pids, seconds)
        return {
            "agents": len(pids),
            "packets_sent_per_s": pps,
            "load_average": round(os.getloadavg()[0], 1),
            "rss_mb": round(statistics.median(memory_mb(pid) for pid in pids), 1),
            "bare_system_percent": bare(lab, rails, pps, seconds),
            "threads": rows,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rails", type=int, default=8, help="NICs a host (default 8)")
    parser.add_argument("--interval", default="1s", help="between two pairs of a path")
    parser.add_argument("--seconds", type=float, default=30, help="watched")
    parser.add_argument("--settle", type=float, default=SETTLE_S, help="seconds before")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exchange", nargs=4, help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.exchange:
        local, remote, per_s, seconds = requested.exchange
        exchange(local.split(","), remote.split(","), float(per_s), float(seconds))
        return 0
    found = run(requested.rails, requested.interval, requested.seconds, requested.settle)
    if requested.json:
        print(json.dumps(found, indent=1))
        return 0
    rows = found.pop("threads")
    print("".join(f"{name:>14}" for name in rows[0]))
    for line in rows:
        print("".join(f"{value:>14}" for value in line.values()))
    print(", ".join(f"{name} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
