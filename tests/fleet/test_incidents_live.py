"""A live lab: faults become incidents about the very part, and are over when it is well; hosts are
checked against their place; Debian's Prometheus scrapes every daemon.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import waiting
from tests.fleet.failing import Job
from tests.live import LiveLab, live, syntony

from syntony.controller.client import ask
from syntony.errors import MissingError, RemoteError
from syntony.lab.world import unshare_argv
from syntony.metrics.table import EVERY, PREFIX
from syntony.model import S
from syntony.model.names import host_of
from syntony.model.sla import SlaStatus
from syntony.wire.failover import ConnectionsQuery
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.sla import SlaChecked, SlaCheckQuery

pytestmark = pytest.mark.lab
NAME = "t-incidents"
PATIENCE_S = 120.0
TRACED_S = 480.0
"""The first discovery of the fabric lasts up to two minutes, the next round of tracing one more,
and the rule asks for half a minute: twice that on a busy machine."""
NOT_HERE = {
    "clock_utc_offset_seconds", "module_temperature_celsius", "module_receive_power_dbm",
    "module_bias_amperes", "incidents", "incident_firing", "findings", "finding_loss_ratio",
    "finding_delay_seconds", "paths_left_total", "paths_refused_total",
    "fabric_cables", "fabric_cables_lost",
    "fabric_nics_misplaced", "fabric_changes_total", "queues", "queue_delay_seconds", "queue_flows",
} | {name for name in EVERY if name.startswith(("verbs_", "gateway_"))}  # fmt: skip
"""What a healthy lab without anchors, modules, RDMA and gateways has no value of."""
RULES = """
[[rule]]
name = "port-down"
metric = "port_down"
severity = "critical"
above = 0
stable = "1s"
summary = "{subject}: a compute port is down"
remedy = "plug it in"
explained_by = ["link-flapping", "switch-loss", "host-silent"]
[[rule]]
name = "host-silent"
metric = "host_silent_s"
severity = "critical"
above = 5
stable = "1s"
open_after = 1
unit = "s"
summary = "{subject}: no report from its agent for {value}"
remedy = "start it"
"""
WELL = {SlaStatus.OK, SlaStatus.WARNING}
SLA = '[[objective]]\np99 = "10s"\n'
await_true = partial(waiting.await_true, patience_s=PATIENCE_S, pause_s=0.2)


class Watched:
    """A lab and its incidents."""

    def __init__(self, lab: LiveLab) -> None:
        self.lab = lab

    def incidents(self, *, over: bool = False) -> list[dict[str, Any]]:
        target = f"unix:{self.lab.controller_socket}"
        reply = ask(target, IncidentsQuery(resolved=over))
        return list(reply.incidents)

    def live(self) -> set[tuple[str, str]]:
        """(rule, subject) of the incidents that are nobody's evidence."""
        return {(each["rule"], each["subject"]) for each in self.incidents() if not each["cause"]}

    def jobs_of(self, incident: tuple[str, str]) -> list[str]:
        """Jobs that an open incident says it hits."""
        found = (i for i in self.incidents() if (i["rule"], i["subject"]) == incident)
        return [job for each in found for job in each["jobs"]]

    def runs(self, job: str) -> bool:
        """Whether both ends of the job's connection are known."""
        target = f"unix:{self.lab.controller_socket}"
        hosts = ask(target, ConnectionsQuery(job=job)).hosts
        return sum(bool(each.report.connections) for each in hosts) == 2

    def checked(self, host: str) -> SlaChecked:
        target = f"unix:{self.lab.controller_socket}"
        return ask(target, SlaCheckQuery(host=host, window_ns=10 * S))

    def query(self, promql: str) -> list[dict[str, Any]]:
        """Of the Prometheus inside the lab; empty while it does not answer."""
        try:
            text = self.lab.run(
                "ctl", "curl", "-s", "-f", "-G", "http://127.0.0.1:9090/api/v1/query",
                "--data-urlencode", f"query={promql}",
            )  # fmt: skip
        except RemoteError:
            return []
        return list(json.loads(text)["data"]["result"])


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: incidents of a live fleet are NOT tested")
    directory = tmp_path_factory.mktemp("rules")
    (directory / "rules.toml").write_text(RULES)
    (directory / "sla.toml").write_text(SLA)
    with live(
        NAME, "--hosts", "4", "--mesh-peers", "3", "--rules", str(directory / "rules.toml"),
        "--sla", str(directory / "sla.toml"), agents=True,
    ) as lab:  # fmt: skip
        found = Watched(lab)
        await_true(lambda: isinstance(found.incidents(), list), "the controller's answer")
        yield found


# Paths are learnt meanwhile: what needs them comes last.


def test_prometheus_scrapes_every_daemon(watched: Watched, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip(
            "needs Prometheus (sh deploy/system-packages.sh --test): its alerts are NOT tested "
            "on a live fleet"
        )
    config = tmp_path / "lab.yml"
    config.write_text(syntony("lab", "scrape", "--name", NAME).stdout.replace("5s", "3s"))
    argv = watched.lab.enter_argv(
        "ctl", ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'db'}"]
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        await_true(lambda: len(watched.query("up == 1")) == 5, "five daemons scraped")
        await_true(lambda: len(watched.query("syntony_sla_pairs")) > 0, "latency judged")
        await_true(
            lambda: len(watched.query("syntony_evaluation_timestamp_seconds")) > 0, "rules judged"
        )
        names = {row["metric"]["__name__"] for row in watched.query(f'{{__name__=~"{PREFIX}.+"}}')}
        hosts = {row["metric"]["host"] for row in watched.query("syntony_uplink_connected == 1")}
    finally:
        process.terminate()
        process.wait()
    found = {name.removeprefix(PREFIX) for name in names}
    found |= {name.removesuffix("_bucket") for name in found}
    assert set(EVERY) - found <= NOT_HERE
    assert hosts == {"h0", "h1", "h2", "h3"}


@pytest.mark.parametrize(
    ("kind", "target", "incident"),
    [
        ("link-down", "h0/rail0", ("port-down", "h0/rail0")),
        pytest.param("agent-stop", "h2", ("host-silent", "h2"), marks=pytest.mark.slow),
    ],
)
def test_a_fault_is_an_incident_about_the_very_part_until_it_is_healed(
    watched: Watched, kind: str, target: str, incident: tuple[str, str]
) -> None:
    assert incident not in watched.live()
    addresses = watched.lab.addresses(4)
    job = Job(watched.lab, "llm", addresses["h0/rail0"], addresses["h2/rail0"])
    try:
        await_true(lambda: watched.runs("llm"), "the job's connection known")
        watched.lab.inject(kind, target)
        await_true(lambda: incident in watched.live(), f"{incident} open")
        await_true(
            lambda: watched.jobs_of(incident) == ["llm"],
            "the job that it hits",
            instead=watched.incidents,
        )
    finally:
        job.end()
    assert syntony("incidents", "list", "--lab", NAME).returncode == 2
    host = host_of(target)
    found = [item for item in watched.checked(host).items if item.check == "incident"]
    assert incident[1] in {item.subject for item in found}
    watched.lab.clear()
    await_true(lambda: incident not in watched.live(), f"{incident} over")
    over = [
        each for each in watched.incidents(over=True)
        if (each["rule"], each["subject"]) == incident
    ]  # fmt: skip
    assert over[0]["state"] == "resolved"
    assert over[0]["resolved_ns"] > over[0]["opened_ns"]


@pytest.mark.slow
def test_crossed_rails_are_an_incident_until_they_are_set_right(watched: Watched) -> None:
    """Both NICs enter at each other's leaf once their agent has come back."""
    nics = {("nic-misplaced", f"h3/rail{rail}") for rail in (0, 1)}

    def learnt() -> bool:
        items = [item for item in watched.checked("h3").items if item.check == "place"]
        return [item.status for item in items] == [SlaStatus.OK] * len(nics)

    await_true(learnt, "every place of h3 known")
    killed = watched.lab.inject("agent-kill", "h3")
    swapped = watched.lab.inject("rail-swap", "h3")
    watched.lab.clear(killed.id)
    try:
        await_true(
            lambda: nics <= watched.live(),
            f"{nics} open",
            patience_s=TRACED_S,
            instead=watched.incidents,
        )
    finally:
        watched.lab.clear(swapped.id)
    await_true(lambda: not nics & watched.live(), f"{nics} over", patience_s=TRACED_S)


def test_a_host_is_where_the_topology_says(watched: Watched) -> None:
    await_true(lambda: watched.checked("h1").status in WELL, "h1 found well")
    done = syntony("sla", "check", "h1", "--json", "--lab", NAME)
    items = json.loads(done.stdout)["items"]
    found = {(item["check"], item["subject"]): item["detail"] for item in items}
    assert done.returncode in {0, 1}
    assert found["place", "h1/rail1"] == "at leaf1-0, as the topology says"
    assert found["rail", "h1/rail1"] == "among NICs of rail 1"
    assert found["agent", "h1"] == "attached"
    done = syntony("sla", "check", "h9", "--lab", NAME)
    assert (done.returncode, "no host 'h9' has attached" in done.stderr) == (3, True)


def test_reports_by_pair_host_and_rail(watched: Watched) -> None:
    for by, subject in (
        ("pair", "h0/rail0->h1/rail0"), ("host", "h0->h1"), ("rail", "rail0->rail0"),
    ):  # fmt: skip
        done = syntony("sla", "report", "--by", by, "--json", "--lab", NAME)
        rows = {row["subject"]: row for row in json.loads(done.stdout)["rows"]}
        assert rows[subject]["now"]["measured"] > 0
        assert rows[subject]["status"] in {"ok", "warning"}, rows[subject]
