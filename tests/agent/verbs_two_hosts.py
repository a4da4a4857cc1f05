"""Two hosts' planes over a fake provider, in a process of its own: what they measured, as JSON.

Usage: python -m tests.agent.verbs_two_hosts [restart|gone|clock|allowed]
SYNTONY_IBVERBS names the provider.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from tests.nccl.provider import Machine
from tests.ports import free_udp_port

from syntony.agent.config import AgentConfig, NicConfig
from syntony.agent.verbs import VerbsPlane
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import RECORD, PeerKeys, ProbeNic
from syntony.model import MS
from syntony.model.probes import LOST, ProbeFlag
from syntony.model.tls_files import TlsFiles
from syntony.wire.parts import PartState
from syntony.wire.probes import ProbeFlow

KEYS = {number: PeerKeys((1, b"sixteen byte key")) for number in (1, 2)}
PATIENCE_S = 300.0


class Host:
    """One NIC, number `at` + 1 on the wire, whose RDMA device is the provider's of that place."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.flags = 0
        """Of all records that were answered."""
        self.since_ns = 0
        """Probes sent before are not looked at."""
        self.port = free_udp_port()
        config = AgentConfig(
            host=f"h{at}", controller="127.0.0.1:1", tls=TlsFiles(ca="", cert="", key=""),
            nics=(NicConfig(name="lo", rail=0),), spool_dir="",
        )  # fmt: skip
        nic = ProbeNic(name="lo", nic_id=at + 1, address="127.0.0.1", port=self.port)
        self.udp = ProbeEngine([nic], KernelClock(f"h{at}"))
        self.udp.set_peers(KEYS)
        self.udp.start()
        self.plane = VerbsPlane(config, KernelClock(f"h{at}"), self.udp)
        self.plane.set_peers(KEYS)
        self.plane.start()
        self.look(there=True)

    def look(self, *, there: bool) -> None:
        """As the reactor does once a second."""
        self.plane.look({"lo": f"10.0.0.{self.at + 1}"} if there else {}, {"lo": self.at + 1})

    def probe(self, other: Host) -> None:
        """Plan two paths in two classes."""
        self.plane.plan(
            [
                ProbeFlow(
                    flow_id=10 * dscp + path, src="lo", dst=f"h{other.at}/lo",
                    dst_nic_id=other.at + 1, dst_addr="127.0.0.1", dst_port=other.port,
                    src_port=61000 + path, flow_label=77 + path, dscp=dscp, interval_ns=5 * MS,
                )
                for dscp in (0, 26)
                for path in range(2)
            ]
        )  # fmt: skip

    def flags_from_now(self) -> int:
        """Of the probes that are sent from now on, once every path is answered."""
        self.flags, self.since_ns = 0, KernelClock(f"h{self.at}").now_ns()
        _until(lambda: self.answered() == ALL, "answered")
        return self.flags

    def close(self) -> None:
        self.plane.close()
        self.udp.close()

    def answered(self) -> set[int]:
        """Flows answered since the last call."""
        records = np.frombuffer(self.plane.drain(), RECORD)
        whole = records[(records["t4_ns"] != 0) & (records["sent_ns"] >= self.since_ns)]
        self.flags |= int(np.bitwise_or.reduce(whole["flags"], initial=0))
        return set(whole["flow_id"].tolist())


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"in vain: {what}")
        time.sleep(0.05)


ALL = {0, 1, 260, 261}


def clock_fails(fake: ctypes.CDLL, hosts: list[Host], machine: Machine) -> dict[str, object]:
    """The clock of the first host's device jumps back by 10 ms."""
    mine = hosts[0]
    first = mine.plane.status().clocks.get("lo")
    _until(lambda: mine.plane.status().clocks.get("lo") != first, "its clock is read again")
    clocks = [first, mine.plane.status().clocks.get("lo")]
    flags = mine.flags_from_now()
    machine.offset -= 156_250 * 10
    fake.fake_set_machine(0, ctypes.byref(machine))
    _until(lambda: len(_parts(mine)) == 2, "a part for the clock")
    reason = _parts(mine)[1].reason
    _until(lambda: not mine.plane.status().clocks, "it is stamped by the engine")
    flags_after = mine.flags_from_now()
    return {"clocks": clocks, "flags": flags, "reason": reason, "flags_after": flags_after}


def _attached_again(host: Host, *, allowed: bool) -> None:
    host.plane.allow_device_stamps(allowed=allowed)
    _until(lambda: bool(host.plane.status().clocks) is allowed, "stamped by another")


def allowed_and_not(hosts: list[Host]) -> dict[str, object]:
    """Devices' clocks may not stamp, may, may not, and may again."""
    found = []
    for allowed in (False, True, False, True):
        for host in hosts:
            _attached_again(host, allowed=allowed)
        flags = hosts[0].flags_from_now()
        clock = hosts[0].plane.status().clocks.get("lo")
        found.append([flags, clock.epoch_ns if clock is not None else 0])
    return {"looks": found}


def main(case: str) -> None:
    """One case."""
    fake = ctypes.CDLL(os.environ["SYNTONY_IBVERBS"])
    stamps = case in {"clock", "allowed"}
    machines = [Machine(stamps=stamps, drift_ppb=20_000 * at, bits=40) for at in range(2)]
    for at, machine in enumerate(machines):
        fake.fake_set_machine(at, ctypes.byref(machine))
    hosts = [Host(0), Host(1)]
    for host in hosts:
        host.plane.allow_device_stamps(allowed=case == "clock")
        host.probe(hosts[1 - host.at])
    for host in hosts:
        _until(lambda host=host: host.answered() == ALL, "every path is answered")  # type: ignore[misc]
    if case == "restart":
        hosts[1].close()
        port, hosts[1] = hosts[1].port, Host(1)
        hosts[1].probe(hosts[0])
        hosts[0].probe(hosts[1])
        assert port != hosts[1].port
        for host in hosts:
            time.sleep(1.5)
            host.plane.drain()
            _until(lambda host=host: host.answered() == ALL, "answered again")  # type: ignore[misc]
    if case == "gone":
        fake.fake_fail_device(0)
        _until(
            lambda: any(part.state is not PartState.RUNNING for part in _parts(hosts[0])), "part"
        )
        failed = _parts(hosts[0])[0]
        _until(lambda: _parts(hosts[0])[0].state is PartState.RUNNING, "it is tried again")
        time.sleep(1.5)
        hosts[0].plane.drain()
        _until(lambda: hosts[0].answered() == ALL, "answered again")
        print(failed.name, failed.reason, file=sys.stderr)
        assert "gone" in failed.reason
    found: dict[str, object] = {}
    if case == "clock":
        found = clock_fails(fake, hosts, machines[0])
    if case == "allowed":
        found = allowed_and_not(hosts)
    time.sleep(1.0)
    records = np.frombuffer(hosts[0].plane.drain(), RECORD)
    flags = records["flags"]
    rtt_ns = records["t4_ns"] - records["t1_ns"] - (records["t3_ns"] - records["t2_ns"])
    whole = np.all([records[name] != 0 for name in ("t1_ns", "t2_ns", "t3_ns", "t4_ns")], axis=0)
    status = hosts[0].plane.status()
    print(
        json.dumps(
            found
            | {
                "answered": int((records["t4_ns"] != 0).sum()),
                "lost": int(((flags & int(LOST)) != 0).sum()),
                "not_sent": int(((flags & int(ProbeFlag.NOT_SENT)) != 0).sum()),
                "least_rtt_ns": int(rtt_ns[whole].min()),
                "layers": status.layers,
                "parts": [[part.name, part.state.value] for part in status.parts],
                "heard": len(status.heard) > 0,
            }
        )
    )
    for host in hosts:
        host.close()


def _parts(host: Host):  # type: ignore[no-untyped-def]
    return host.plane.status().parts


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
