"""Whether the paths that jobs use are probed at a high rate, as the policy has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.agent.halves import config

from syntony.agent.steering import control, service
from syntony.agent.steering.control import PathControl
from syntony.errors import MissingError
from syntony.io.carrier import POLL_NS
from syntony.model import S
from syntony.traffic.instructions import WatchPaths
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.probes import ProbeFlow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.io.probe_records import WatchStatus
    from syntony.model.paths import LivenessEvent

NIC, REMOTE = "rail0", "10.0.0.2"
FLOW = ProbeFlow(
    flow_id=1, src=NIC, dst="h1/rail0", dst_nic_id=1, dst_addr=REMOTE, dst_port=8620,
    src_port=61_000, interval_ns=S,
)  # fmt: skip


class Prober:
    """What it was told to watch."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0)
        self.flows: list[int] = []

    def watch(self, flows: Sequence[ProbeFlow]) -> None:
        self.flows = [flow.flow_id for flow in flows]

    def liveness_fd(self) -> int:
        return self._fd

    def liveness(self) -> list[LivenessEvent]:
        return []

    def watched(self) -> list[WatchStatus]:
        return []

    def close(self) -> None:
        os.close(self._fd)


def no_mptcp() -> None:
    raise MissingError("no MPTCP here")


@pytest.mark.parametrize(("watch", "flows"), [(True, [1]), (False, [])])
def test_paths_of_jobs_are_watched_unless_the_policy_says_no(
    monkeypatch: pytest.MonkeyPatch, watch: bool, flows: list[int]
) -> None:
    monkeypatch.setattr(control, "kernel_events", no_mptcp)
    nic, prober = LocalNic(name=NIC, rail=0, addresses=("10.0.0.1",)), Prober()
    paths = PathControl("h0", Policy(watch=watch), [nic], stopped=False)
    try:
        watched = WatchedFlow(
            flow_id=1, nic=NIC, remote=REMOTE, remote_name="h1/rail0", remote_rail=0, others=()
        )
        paths._listen_to(prober)
        paths.plan([FLOW], [watched])
        paths._read_posted()
        paths._carry_out([WatchPaths(paths=frozenset({(NIC, REMOTE)}))])
        assert prober.flows == flows
    finally:
        paths.close()
        prober.close()


@pytest.mark.parametrize(("watch", "poll_ns"), [(True, POLL_NS), (False, service.REST_POLL_NS)])
def test_carriers_are_read_seldom_where_no_path_is_watched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watch: bool, poll_ns: int
) -> None:
    made: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        raise MissingError("not here")

    monkeypatch.setattr(service, "CarrierWatch", lambda *, poll_ns: made.append(poll_ns))
    monkeypatch.setattr(service, "PathControl", refuse)
    its = msgspec.structs.replace(
        config(tmp_path), traffic=Policy(mode=FailoverMode.ACT, watch=watch)
    )
    with pytest.raises(MissingError):
        service.PathService(its).start()
    assert made == [poll_ns]
