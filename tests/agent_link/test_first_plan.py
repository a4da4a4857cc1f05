"""The first plan of a controller that follows another."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.agent_link.test_membership import Agent, attached, connected
from tests.link import running
from tests.live import eventually

from syntony.controller.fleet import SETTLE_NS
from syntony.model import S
from syntony.model.names import host_of
from syntony.wire.probes import Plan


def peers(agent: Agent) -> list[set[str]]:
    """Hosts probed by each plan that was reported."""
    plans = [each for each in agent.reported if isinstance(each, Plan)]
    return [{host_of(flow.dst) for flow in plan.flows} for plan in plans]


def test_a_host_that_is_back_late_stays_in_the_plan(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        configs = {host: controller.agent_config(host) for host in ("h1", "h2")}
        with attached(configs["h1"]) as one:
            with attached(configs["h2"]):
                eventually(lambda: peers(one)[-1:] == [{"h2"}])
                time.sleep(1)  # who takes part is kept
                controller.end(signal.SIGKILL)
            one.reported.clear()
            controller.start()
            eventually(lambda: connected(controller, "h1"))
            time.sleep(3 * SETTLE_NS / S)
            with attached(configs["h2"]):
                eventually(lambda: bool(peers(one)))
                assert peers(one)[0] == {"h2"}
