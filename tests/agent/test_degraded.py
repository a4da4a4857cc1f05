"""A whole agent on a machine that lacks something, in a private namespace: each fault at the start
and at run time, and several at once. Only the part that needs what is missing does not run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from tests.agent.halves import config, down, reacting, reporting
from tests.io.namespace import ip, run_alone
from tests.live import eventually

from syntony.agent.daemon import Agent
from syntony.agent.reactor import saved_orders
from syntony.agent.reactor.process import Reactor
from syntony.traffic.policy import Policy
from syntony.wire.parts import PartState
from syntony.wire.probes import PairKeys, Plan, ProbeFlow, ProbeKeys

pytestmark = pytest.mark.lab

PORT, SOURCE = 8620, 61_000


class AgentOnHost:
    """Both halves of an agent with their loops running, without a controller."""

    def __init__(self, place: Path) -> None:
        self.config = config(place)
        self.reactor: Reactor
        self.agent: Agent

    @contextmanager
    def running(self) -> Iterator[AgentOnHost]:
        with reacting(self.config) as self.reactor, reporting(self.config) as self.agent:
            self.spool = self.agent._spool
            yield self

    def down(self) -> dict[str, str]:
        """Parts that do not run, and why."""
        return down(self.reactor, self.agent)

    @property
    def flows(self) -> int:
        """That are probed."""
        probed = self.reactor._probed
        return len(probed.flows) if probed is not None else 0

    def told_down(self) -> set[str]:
        """Parts that do not run, as the controller hears of them."""
        parts = self.agent._machine.statuses(0)
        return {part.name for part in parts if part.state is not PartState.RUNNING}

    def knows_its_reactor(self, connections: int) -> bool:
        """Whether the telemetry process has connected so often, and knows what is probed."""
        agent = self.agent
        return (agent._connections, agent._probing) == (connections, self.reactor._probing)

    def lacks(self, *parts: str) -> None:
        """Exactly these do not run."""
        try:
            eventually(lambda: set(self.down()) == set(parts), f"without {parts}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.down()}") from error

    def send_plan(self, ports: range = range(SOURCE, SOURCE + 4)) -> None:
        flows = tuple(
            ProbeFlow(
                flow_id=port + 1000 * number, src=nic, dst=f"h1/{nic}", dst_nic_id=9 + number,
                dst_addr=f"10.0.{number}.2", dst_port=PORT, src_port=port, interval_ns=50_000_000,
            )
            for number, nic in enumerate(("va", "vb"))
            for port in ports
        )  # fmt: skip
        peers = PairKeys(host="h1", nics=(9, 10), keys=(bytes(16),))
        self.agent.inbox.put(ProbeKeys(epochs=(1,), sending=1, pairs=(peers,)))
        self.agent.inbox.put(
            Plan(
                generation=1, nic_ids={}, nic_names={}, clocks={},
                flows=flows,
            )
        )  # fmt: skip

    def probing(self) -> set[tuple[int, int]]:
        """(NIC number, flow) of what has been recorded since the last call."""
        rows = self.reactor.nics.engine.drain()
        return {(int(row["nic_id"]), int(row["flow_id"])) for row in rows}


def make_nic(name: str, number: int) -> None:
    ip(f"link add {name} type veth peer name {name}-far")
    ip(f"addr add 10.0.{number}.1/24 dev {name}")
    for each in (name, f"{name}-far"):
        ip(f"link set {each} up")


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _taken(address: str, port: int, kind: int = socket.SOCK_DGRAM) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    sock.bind((address, port))
    if kind == socket.SOCK_STREAM:
        sock.listen()
    return sock


def nothing_is_missing() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.send_plan()
        host.lacks()


def a_nic_is_missing_at_the_start_and_comes() -> None:
    make_nic("va", 0)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks("nic:vb")
        assert "vb" in host.down()["nic:vb"]
        host.send_plan()
        eventually(lambda: host.flows == 4, "the other NIC is probed from")
        reported = {nic.name: nic.addresses for nic in host.agent.hello("s").nics}
        assert reported == {"va": ("10.0.0.1",), "vb": ()}
        make_nic("vb", 1)
        host.lacks()
        eventually(lambda: host.flows == 8, "both are")
        eventually(
            lambda: [nic.addresses for nic in host.agent.hello("s").nics][1] == ("10.0.1.1",),
            "the controller will know",
        )
        control = host.reactor.steering._control
        assert control is not None
        eventually(
            lambda: {nic.name for nic in control._failover.health.nics()} == {"va", "vb"},
            "failover has it",
        )


def a_nic_goes_and_comes_back_as_another_device() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.send_plan()
        eventually(lambda: host.flows == 8, "probing")
        before = host.agent.hello("s")
        ip("link del vb")
        host.lacks("nic:vb")
        eventually(lambda: "nic:vb" in host.told_down(), "its telemetry knows")
        assert host.agent.hello("s") == before, "its place in the plan stays"
        make_nic("vb", 1)
        host.lacks()
        host.probing()
        sent = host.reactor.nics.engine.counters().send_errors
        number = host.reactor.nics.numbers["vb"]
        eventually(lambda: any(nic == number for nic, _ in host.probing()), "it probes again")
        assert host.reactor.nics.engine.counters().send_errors - sent < 8


def a_reactor_is_made_anew_under_a_telemetry_process() -> None:
    """And finds nothing that its predecessor has kept: it is informed what stands."""
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place:
        host = AgentOnHost(place)
        with reporting(host.config) as host.agent:
            for life in range(2):
                with reacting(host.config) as host.reactor:
                    if not life:
                        host.send_plan()
                    host.lacks()
                    eventually(lambda: host.flows == 8, "probing")
                    eventually(partial(host.knows_its_reactor, life + 1), "its telemetry knows")
                    eventually(lambda: host.agent._reactor.counters.sent > 0, "and counts")
                (place / "run" / saved_orders.FILE).unlink()
                eventually(lambda: "reactor" in down(host.agent), "missed")
                assert [nic.addresses for nic in host.agent.hello("s").nics] == [
                    ("10.0.0.1",), ("10.0.1.1",),
                ], "their place in the plan stays"  # fmt: skip


def a_nic_gets_another_name_and_comes_back_with_another_address() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks()
        host.send_plan()
        eventually(lambda: host.flows == 8, "all flows")

        def addresses() -> dict[str, tuple[str, ...]]:
            return {nic.name: nic.addresses for nic in host.agent.hello("s").nics}

        eventually(lambda: addresses() == {"va": ("10.0.0.1",), "vb": ("10.0.1.1",)}, "known")
        ip("link set va down")
        ip("link set va name elsewhere")
        host.lacks("nic:va")
        assert "no interface 'va'" in host.down()["nic:va"]
        ip("link set elsewhere name va")
        ip("addr flush dev va")
        ip("addr add 10.0.7.1/24 dev va")
        ip("link set va up")
        host.lacks()
        eventually(lambda: addresses()["va"] == ("10.0.7.1",), "its new address is reported")
        eventually(lambda: host.flows == 8, "all flows again")
        ip("addr flush dev va")
        ip("addr add 10.0.8.1/24 dev va")
        eventually(lambda: addresses()["va"] == ("10.0.8.1",), "an address changed in place")
        host.lacks()


def the_sockets_files_are_removed() -> None:
    """As by somebody who cleans up /run: jobs and a new telemetry process once never came in."""
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks()
        sockets = [path for path in (place / "run").iterdir() if path.is_socket()]
        assert len(sockets) == 6
        for path in sockets:
            path.unlink()
        eventually(lambda: all(path.is_socket() for path in sockets), "all there again")
        host.lacks()
        for path in sockets:
            kind = socket.SOCK_STREAM if path.name == "reactor" else socket.SOCK_SEQPACKET
            with socket.socket(socket.AF_UNIX, kind) as client:
                client.connect(str(path))


def a_source_port_is_taken_at_the_start_and_freed() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    foreign = _taken("10.0.0.1", SOURCE)
    with _place() as place, AgentOnHost(place).running() as host:
        host.send_plan()
        host.lacks("probing")
        assert "port 61000 on 10.0.0.1 is in use" in host.down()["probing"]
        assert host.flows == 7
        foreign.close()
        host.lacks()
        assert host.flows == 8


def the_reflectors_port_is_taken() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    foreign = _taken("10.0.0.1", PORT)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks("nic:va")
        assert "8620" in host.down()["nic:va"]
        foreign.close()
        host.lacks()


def the_join_port_is_taken() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    foreign = _taken("10.0.1.1", Policy().port, socket.SOCK_STREAM)
    with _place() as place, AgentOnHost(place).running() as host:
        control = host.reactor.steering._control
        if control is None or control._mptcp is None:
            foreign.close()
            return
        host.lacks("join-port")
        assert len(control._mptcp._listeners._listeners) == 1
        foreign.close()
        host.lacks()


def no_spool_no_page_and_no_nic_at_once() -> None:
    make_nic("va", 0)
    with _place() as place:
        (place / "spool").touch()
        (place / "run").touch()
        scraped = _taken("127.0.0.1", 9091, socket.SOCK_STREAM)
        with AgentOnHost(place).running() as host:
            host.send_plan()
            sockets = (
                "job-socket",
                "queue-pair-socket",
                "operations-socket",
                "nccl-socket",
                "takeover-socket",
                "reactor-socket",
            )
            run_directory = "clock-page", "reactor", *sockets
            host.lacks("nic:vb", "spool", "metrics", *run_directory)
            assert host.spool.append("t", 5, b"x") is None
            assert host.spool.dropped_rows == 5
            (place / "run").unlink()
            eventually(lambda: host.flows == 4, "and it probes")
            (place / "spool").unlink()
            scraped.close()
            make_nic("vb", 1)
            host.lacks()
            assert host.spool.append("t", 5, b"x") is not None
            assert host.spool.dropped_rows == 5


def the_spools_disk_fills_and_is_freed() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place:
        (place / "spool").mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place / "spool")], check=True
        )
        with AgentOnHost(place).running() as host:
            host.lacks()
            while host.spool.append("t", 1, os.urandom(4000)) is not None:
                pass
            host.lacks("spool")
            assert "No space left" in host.down()["spool"]
            host.spool.acknowledge(host.spool.last_seq)

            def freed() -> bool:
                host.spool.append("t", 1, b"small")
                return not host.down()

            eventually(freed, "it is kept again")
        subprocess.run(["umount", str(place / "spool")], check=True)


def the_spools_file_system_becomes_read_only_and_returns() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks()
        spool = str(place / "spool")
        for size in (10, 300_000):  # more than is kept of one file
            host.spool.append("t", 1, os.urandom(size))
        before = host.spool.dropped_rows
        subprocess.run(["mount", "--bind", spool, spool], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", spool], check=True)
        host.spool.acknowledge(host.spool.last_seq)  # its files cannot be removed
        assert host.spool.append("t", 1, b"x") is None  # and none be made
        host.lacks("spool")
        assert "Read-only file system" in host.down()["spool"]
        assert host.spool.dropped_rows == before + 1
        subprocess.run(["umount", "-l", spool], check=True)
        assert host.spool.append("t", 1, b"x") is not None
        host.lacks()


def broken_counters_and_a_broken_thread() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)
    with _place() as place, AgentOnHost(place).running() as host:
        host.lacks()
        links = host.agent._links
        whole = links._files.read

        def broken() -> list[object]:
            raise ValueError("carrier_changes: not a number")

        links._files.read = broken  # type: ignore[assignment, method-assign]
        host.agent._links._next_sweep_ns = 0
        # Rows need fleet time; what they are made by is called as the loop does.
        now_ns = 1 << 60
        with suppress(ValueError):
            host.agent.parts.run("link-counters", lambda: links.report(now_ns, now_ns), now_ns)
        assert "link-counters" in host.down()
        links._files.read = whole  # type: ignore[method-assign]
        links.fault = OSError(105, "No buffer space available")
        host.lacks("link-counters")  # the listening thread was started again


@pytest.mark.parametrize(
    "scenario",
    [
        nothing_is_missing,
        a_nic_is_missing_at_the_start_and_comes,
        a_nic_goes_and_comes_back_as_another_device,
        a_reactor_is_made_anew_under_a_telemetry_process,
        a_nic_gets_another_name_and_comes_back_with_another_address,
        the_sockets_files_are_removed,
        a_source_port_is_taken_at_the_start_and_freed,
        the_reflectors_port_is_taken,
        the_join_port_is_taken,
        no_spool_no_page_and_no_nic_at_once,
        the_spools_disk_fills_and_is_freed,
        the_spools_file_system_becomes_read_only_and_returns,
        broken_counters_and_a_broken_thread,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
