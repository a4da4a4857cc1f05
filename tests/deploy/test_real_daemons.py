"""From a flap to somebody's pager through Debian's own Prometheus and Alertmanager."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy import daemons
from tests.deploy.daemons import DEPLOY, Webhook
from tests.live import eventually

from syntony.controller.config import AlertSettings
from syntony.controller.incident_inputs import EvaluationInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.notify import RESEND_NS, Receiver
from syntony.io.clocks import KernelClock
from syntony.io.scrape import ScrapeServer
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.model import S
from syntony.state import ControlState
from syntony.wire.links import LinkStatus


@pytest.fixture(scope="module")
def hook() -> Iterator[Webhook]:
    daemons.need("prometheus", "prometheus-alertmanager")
    with daemons.webhook() as hook:
        yield hook


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory, hook: Webhook) -> Iterator[str]:
    with daemons.alertmanager(tmp_path_factory.mktemp("am"), hook) as url:
        yield url


class Host:
    """An agent's page with flaps of our choosing, through the real server and renderer."""

    def __init__(self) -> None:
        self.flaps = 0
        self.server = ScrapeServer("127.0.0.1:0", self._page)

    def _page(self, accept: str) -> tuple[str, str]:
        sheet = Sheet({"host": "h9"})
        sheet.put("link_flaps_total", self.flaps, nic="rail0")
        sheet.put("link_up", 1, nic="rail0", role="compute")
        return render(sheet, accept)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.server.close()


def test_prometheus_scrapes_and_its_alert_reaches_the_receiver(
    tmp_path: Path, hook: Webhook, alertmanager: str, host: Host
) -> None:
    config = (
        "global: {scrape_interval: 200ms, evaluation_interval: 200ms}\n"
        f"rule_files: [{DEPLOY / 'prometheus/syntony.rules.yml'}]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: "
        f"['{alertmanager.removeprefix('http://')}']}}]}}]}}\n"
        "scrape_configs: [{job_name: syntony-agent, static_configs: [{targets: "
        f"['127.0.0.1:{host.server.port}']}}]}}]\n"
    )
    with daemons.prometheus(tmp_path, config) as url:
        eventually(lambda: daemons.value(url, "syntony_link_flaps_total") == 0)
        host.flaps = 2000  # over a window of seconds, increase() sees but a part of an hour's
        labels = {"alertname": "SyntonyLinkFlapping", "component": "h9/rail0"}
        eventually(lambda: bool(hook.reported("firing", **labels)))
    alert = hook.reported("firing", **labels)[0]
    assert alert["receiver"] == "oncall"
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["summary"].startswith("h9/rail0: link has flapped")


class Links:
    """What the store tells of links."""

    def __init__(self) -> None:
        self.flaps = 0
        self.now_ns = 0

    def ports(self, *_: int) -> tuple[LinkStatus, ...]:
        port = LinkStatus(
            nic="h3/rail1", netdev="rail1", rdma="", link_layer="Ethernet", driver="mlx5_core",
            role="compute", state="active", gbps=400.0, flaps=self.flaps, last_flap_ns=None,
            seen_ns=self.now_ns, watched_ns=0, temperature_c=None, rx_dbm=None, bias_ma=None,
        )  # fmt: skip
        return (port,)

    def counters(self, *_: int) -> tuple[()]:
        return ()

    def modules(self, *_: int) -> dict[str, tuple[str, str]]:
        return {}


class Desk:
    """The controller's own alerts, told to the real Alertmanager."""

    def __init__(self, directory: Path, alertmanager: str) -> None:
        receiver = Receiver(name="am", kind="alertmanager", url=alertmanager)
        settings = AlertSettings(cluster="test", receivers=(receiver,))
        self.links = Links()
        self.state = ControlState(directory)
        store: Any = type("Store", (), {"links": self.links, "jobs": self.links})()
        self.service = IncidentService(settings, self.state, store)
        self._clock = KernelClock("here")
        self.fleet_ns = self._clock.now_ns()
        self._monotonic_ns = 0

    def tick(self, seconds: int = 2) -> None:
        self.fleet_ns += seconds * S
        self._monotonic_ns += RESEND_NS
        self.links.now_ns = self.fleet_ns
        self.service.evaluate(self.fleet_ns, EvaluationInputs({"h3": 0}))
        self.service.deliver(self._monotonic_ns, self.fleet_ns, self._clock.now_ns())


def until(reported: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    eventually(lambda: bool(reported()))
    return reported()[0]


def test_an_incident_is_taken_by_the_real_alertmanager(
    tmp_path: Path, hook: Webhook, alertmanager: str
) -> None:
    service = Desk(tmp_path, alertmanager)
    service.links.flaps = 9
    service.tick()
    service.tick(4)  # the rule waits for what may explain it
    labels = {"alertname": "link-flapping", "component": "h3/rail1"}
    alert = until(lambda: hook.reported("firing", **labels))
    assert alert["receiver"] == "oncall"
    assert {"cluster": "test", "host": "h3", "nic": "rail1"}.items() <= alert["labels"].items()
    assert alert["annotations"]["summary"].endswith("flapped 9 times within the past hour")
    assert alert["annotations"]["remedy"]
    # The warning about the same flaps is explained by it: nobody hears of that one.
    assert not hook.reported("firing", alertname="link-flaps")
    service.links.flaps = 0
    for _ in range(4):
        service.tick(300)
    until(lambda: hook.reported("resolved", **labels))
    assert service.service.notifier.refused == 0
    service.state.close()


def _post(alertmanager: str, *alerts: str) -> None:
    """Alerts as ``name component cluster``."""
    fields = [each.split() for each in alerts]
    body = [
        {
            "labels": {
                "alertname": name, "component": component, "cluster": cluster, "fleet": "inhibited",
                "severity": "critical" if "-silent" in name or "Flapping" in name else "warning",
            }
        }
        for name, component, cluster in fields
    ]  # fmt: skip
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{alertmanager}/api/v2/alerts", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


def test_what_an_incident_explains_is_told_to_nobody_and_other_clusters_are(
    hook: Webhook, alertmanager: str
) -> None:
    def told() -> set[str]:
        return {
            " ".join(alert["labels"][each] for each in ("alertname", "component", "cluster"))
            for alert in hook.reported("firing", fleet="inhibited")
        }

    causes = {"fleet-silent all a", "host-silent h3 b", "SyntonyLinkFlapping h4/rail0 a"}
    _post(alertmanager, *causes)
    eventually(lambda: told() == causes)
    others = {
        "SyntonyAgentDown h5 b", "SyntonyUplinkDown h3 c", "SyntonyUplinkDown h0 b",
        "SyntonyLinkFlaps h4/rail1 a", "SyntonyLinkFlaps h4/rail0 b", "SyntonySpoolFilling h0 a",
    }  # fmt: skip
    _post(
        alertmanager, "SyntonyAgentDown h0 a", "SyntonyUplinkDown h1 a", "SyntonyAgentDown h3 b",
        "SyntonyUplinkDown h3 b", "SyntonyLinkFlaps h4/rail0 a", *others,
    )  # fmt: skip
    eventually(lambda: told() >= causes | others)
    time.sleep(1)  # a group waits for 0.2 s at most here
    assert told() == causes | others
    ports = hook.notifications("SyntonyLinkFlaps")
    assert {body["groupLabels"]["cluster"] for body in ports} == {"a", "b"}
