"""One page for each death, none after recovery: the shipped rules, routes and rules of incidents,
through Debian's own Prometheus and Alertmanager.

A fleet of six hosts on two leaves is played on real pages and through the controller's own alerts;
waits of the shipped files are shortened in one proportion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.deploy import daemons
from tests.deploy.daemons import DEPLOY, Webhook

from syntony.controller.config import AlertSettings
from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.incident_inputs import EvaluationInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.notify import RESEND_NS, Receiver
from syntony.io.clocks import KernelClock
from syntony.io.scrape import ScrapeServer
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of
from syntony.state import ControlState
from syntony.wire.links import LinkStatus

HOSTS = [f"h{number}" for number in range(6)]
HOMES = {f"{host}/rail0": f"leaf{number % 2}" for number, host in enumerate(HOSTS)}
FASTER = 20
"""The shipped waits and windows, divided by this."""


NO_ANSWER = ("nothing that can be read\n", "text/plain")
"""Of a daemon that is gone: a scrape that fails."""


def _served(page: Any) -> ScrapeServer:
    return ScrapeServer("127.0.0.1:0", page)


class Fleet:
    """What agents and the controller show and say; time passes with `tick`."""

    def __init__(self, directory: Path, alertmanager: str) -> None:
        self.down: set[str] = set()
        """NICs without a carrier."""
        self.dead: set[str] = set()
        """Hosts."""
        self.cut: set[str] = set()
        """Hosts that do not reach the controller."""
        self.lost: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.findings: tuple[Finding, ...] = ()
        self.controller = True
        self._runs = 0
        receiver = Receiver(name="am", kind="alertmanager", url=alertmanager)
        self._state = ControlState(directory)
        store: Any = type("Store", (), {"links": self, "jobs": self})()
        settings = AlertSettings(receivers=(receiver,))
        self._service = IncidentService(settings, self._state, store)
        self._clock = KernelClock("here")
        self._fleet_ns = self._clock.now_ns()
        self._monotonic_ns = 0
        with ExitStack() as stack:
            self.pages = {
                host: stack.enter_context(closing(_served(self._page_of(host)))) for host in HOSTS
            }
            self.page = stack.enter_context(closing(_served(self._controllers_page)))
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()
        self._state.close()

    # what the store tells of links

    def ports(self, *_: int) -> tuple[LinkStatus, ...]:
        return tuple(
            LinkStatus(
                nic=nic, netdev="rail0", rdma="", link_layer="Ethernet", driver="mlx5_core",
                role="compute", state="no-peer" if nic in self.down else "active", gbps=400.0,
                flaps=0, last_flap_ns=None, seen_ns=self._fleet_ns, watched_ns=0,
                temperature_c=None, rx_dbm=None, bias_ma=None,
            )
            for nic in HOMES if host_of(nic) not in self.dead
        )  # fmt: skip

    def counters(self, *_: int) -> tuple[()]:
        return ()

    def modules(self, *_: int) -> dict[str, tuple[str, str]]:
        return {}

    # what is scraped

    def _page_of(self, host: str) -> Any:
        def page(accept: str) -> tuple[str, str]:
            if host in self.dead:
                return NO_ANSWER
            cut = f"{host}/rail0" in self.down
            sheet = Sheet({"host": host})
            sheet.put("link_flaps_total", 0, nic="rail0")
            sheet.put("link_up", int(not cut), nic="rail0", role="compute")
            sheet.put("uplink_connected", int(self.controller and host not in self.cut))
            for state in ("SYNCHRONIZED", "HOLDOVER"):
                held = "HOLDOVER" if cut or not self.controller else "SYNCHRONIZED"
                sheet.put("clock_state", int(state == held), state=state)
            return render(sheet, accept)

        return page

    def _controllers_page(self, accept: str) -> tuple[str, str]:
        if not self.controller:
            return NO_ANSWER
        sheet = Sheet({"host": ""})
        sheet.put("loop_runs_total", self._runs, loop="judge")
        return render(sheet, accept)

    # what the controller says

    def tick(self) -> None:
        """Two seconds of fleet time in a tenth of one of ours."""
        time.sleep(2 / FASTER)
        self._fleet_ns += 2 * S
        self._monotonic_ns += RESEND_NS
        if not self.controller:
            return
        self._runs += 1
        silent = {host: 60 * S if host in self.dead | self.cut else 0 for host in HOSTS}
        standing = FabricStatus(4, self.lost, (), {}, self.gone)
        inputs = EvaluationInputs(silent, findings=self.findings, fabric=standing, homes=HOMES)
        self._service.evaluate(self._fleet_ns, inputs)
        self._service.deliver(self._monotonic_ns, self._fleet_ns, self._clock.now_ns())


@pytest.fixture
def hook() -> Iterator[Webhook]:
    daemons.need("prometheus", "prometheus-alertmanager")
    with daemons.webhook() as hook:
        yield hook


@pytest.fixture
def fleet(tmp_path: Path, hook: Webhook) -> Iterator[Fleet]:
    with daemons.alertmanager(tmp_path, hook) as alertmanager:
        fleet = Fleet(tmp_path / "state", alertmanager)
        try:
            with daemons.prometheus(tmp_path, _config(tmp_path, alertmanager, fleet)) as url:
                while daemons.value(url, "count(syntony_link_up)") != len(HOSTS):
                    fleet.tick()
                for _ in range(60):
                    fleet.tick()
                yield fleet
        finally:
            fleet.close()


def _config(directory: Path, alertmanager: str, fleet: Fleet) -> str:
    rules = directory / "rules.yml"
    shipped = (DEPLOY / "prometheus/syntony.rules.yml").read_text()
    rules.write_text(re.sub(r"(?<=for: )\d+[smh]|(?<=\[)\d+[smh](?=\])", _faster, shipped))
    address = alertmanager.removeprefix("http://")
    agents = ", ".join(
        f"{{targets: ['127.0.0.1:{page.port}'], labels: {{instance: '{host}:9863'}}}}"
        for host, page in fleet.pages.items()
    )
    return (
        "global: {scrape_interval: 500ms, evaluation_interval: 200ms, "
        "external_labels: {cluster: fleet}}\n"
        f"rule_files: [{rules}]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n"
        "scrape_configs:\n"
        f"- {{job_name: syntony-agent, static_configs: [{agents}]}}\n"
        f"- {{job_name: syntony-controller, static_configs: [{{targets: "
        f"['127.0.0.1:{fleet.page.port}']}}]}}\n"
    )


def _faster(match: re.Match[str]) -> str:
    seconds = int(match[0][:-1]) * {"s": 1, "m": 60, "h": 3600}[match[0][-1]]
    return f"{max(3000, 1000 * seconds // FASTER)}ms"


def _hosts_of(leaf: str) -> set[str]:
    return {nic for nic, at in HOMES.items() if at == leaf}


def _leaf(fleet: Fleet, dies: bool) -> None:
    fleet.down = _hosts_of("leaf0") if dies else set()


def _leaf_known_late(fleet: Fleet, dies: bool) -> None:
    """What it loses is found at once; its hosts report their carriers 20 s later, and losses are
    over sooner than these are back."""
    lossy = Finding(
        component="leaf0", kind="leaf", fault="loss", loss=1.0, delay_ns=0.0, confidence=1.0,
        window="3s", explains=900.0, paths=9, alternatives=(),
    )  # fmt: skip
    fleet.findings = (lossy,) if dies else ()
    for _ in range(10):
        fleet.tick()
    _leaf(fleet, dies)


def _spine(fleet: Fleet, dies: bool) -> None:
    fleet.lost = {f"leaf{leaf}--spine1": 1 for leaf in range(2)} if dies else {}
    fleet.gone = {"spine1": 2} if dies else {}


def _host(fleet: Fleet, dies: bool) -> None:
    fleet.dead = {"h3"} if dies else set()


def _management(fleet: Fleet, dies: bool) -> None:
    fleet.cut = set(HOSTS) if dies else set()


def _nic(fleet: Fleet, dies: bool) -> None:
    fleet.down = {"h3/rail0"} if dies else set()


def _controller(fleet: Fleet, dies: bool) -> None:
    fleet.controller = not dies


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "page"),
    [(_leaf, "switch-down"), (_leaf_known_late, "switch-loss"), (_spine, "switch-down"),
     (_host, "host-silent"), (_management, "fleet-silent"),
     (_nic, "port-down"), (_controller, "SyntonyControllerDown")],
)  # fmt: skip
def test_each_death_is_one_page_and_its_end_none(
    fleet: Fleet, hook: Webhook, death: Any, page: str
) -> None:
    death(fleet, True)
    for _ in range(150):
        fleet.tick()
    assert [each["labels"]["alertname"] for each in pages(hook)] == [page], reported(hook)
    death(fleet, False)
    for _ in range(150):
        fleet.tick()
    assert len(pages(hook)) == 1, reported(hook)
    assert hook.reported("resolved", alertname=page), "and somebody hears that it is over"


@pytest.mark.slow
def test_a_dead_leaf_while_the_controller_is_dead_pages_once_for_its_ports(
    fleet: Fleet, hook: Webhook
) -> None:
    fleet.controller = False
    for _ in range(60):
        fleet.tick()
    _leaf(fleet, True)
    for _ in range(150):
        fleet.tick()
    names = {each["labels"]["alertname"] for each in pages(hook)}
    assert names == {"SyntonyControllerDown", "SyntonyLinkDown"}, reported(hook)
    groups = {each["groupKey"] for each in hook.notifications("SyntonyLinkDown")}
    assert len(groups) == 1, "one page for all of its ports"


def pages(hook: Webhook) -> list[dict[str, Any]]:
    """Alerts that somebody was informed of, once each."""
    seen = {(each["fingerprint"], each["startsAt"]): each for each in hook.reported("firing")}
    return list(seen.values())


def reported(hook: Webhook) -> list[str]:
    return [f"{e['status']} {e['labels']['alertname']} {e['labels'].get('component')}"
            for e in hook.alerts]  # fmt: skip
