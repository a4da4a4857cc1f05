"""How a Prometheus inside a lab scrapes its daemons, as in a cluster: mutual TLS, by address."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from syntony.lab.plan import CONTROLLER, LabPlan
from syntony.lab.provision import METRICS_PORT, PORTS_APART, SCRAPER


def scrape_config(directory: Path, plan: LabPlan, controllers: int = 1) -> str:
    """A ``prometheus.yml`` for a Prometheus that runs in namespace ``ctl`` of the lab."""
    return (
        "global:\n  scrape_interval: 5s\n  scrape_timeout: 5s\n  evaluation_interval: 5s\n"
        "scrape_configs:\n"
        + _job(
            "syntony-controller",
            directory,
            [_target(plan, CONTROLLER, n) for n in range(controllers)],
        )
        + _job("syntony-agent", directory, [_target(plan, host) for host in plan.hosts])
    )


def _target(plan: LabPlan, node: str, further: int = 0) -> str:
    return f"{plan.link(f'{node}/mgmt0').a.ipv4}:{METRICS_PORT + further * PORTS_APART}"


def _job(name: str, directory: Path, targets: Iterable[str]) -> str:
    tls = directory / "tls"
    return (
        f"  - job_name: {name}\n    scheme: https\n    tls_config:\n"
        f"      ca_file: {tls / 'ca.crt'}\n"
        f"      cert_file: {tls / SCRAPER}.crt\n"
        f"      key_file: {tls / SCRAPER}.key\n"
        f"    static_configs:\n      - targets: [{', '.join(targets)}]\n"
    )
