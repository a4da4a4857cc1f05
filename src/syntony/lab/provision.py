"""Configuration files and certificates of a lab's daemons."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syntony.agent.config import AgentConfig, ClockConfig, NicConfig
from syntony.config import to_toml
from syntony.errors import MissingError
from syntony.lab.daemons import DaemonSpec, reactor_name, telemetry_name
from syntony.lab.netns import inside
from syntony.lab.plan import CONTROLLER, LabPlan, LinkKind
from syntony.lab.state import (
    LOGS,
    clock_directory,
    controller_socket,
    gateway_name,
    of_controller,
)
from syntony.lab.store_server import PORT, URL
from syntony.lab.topology import topology
from syntony.lab.verbs.proxy import guest_entry
from syntony.metrics.settings import MetricsConfig
from syntony.model import US, S
from syntony.model.tls_files import TlsFiles
from syntony.traffic.moves import MovePolicy
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.roles import Identity, Role

if TYPE_CHECKING:
    from syntony.controller.pki import Authority
    from syntony.lab.messages import LabFile

CONTROLLER_PORT = 8643
JOIN_PORT = 8644
PORTS_APART = 10
"""Between those of two controllers, which share a host."""
TLS = "tls"
"""Folder of the lab's CA and of everybody's certificates."""
FRAME_BITS = 1514 * 8
BUSY_NS = 500 * US
ANCHOR_BOUND_NS = 1 * US
"""Error bound that a lab's UTC sources report, as a good GPS receiver would."""
DECAY_NS = 5 * S
"""After this long without a failure a hold-down is halved; in a real fleet after 60 s. In a lab
faults are tried one after the other, and each return would take a minute (decision 0143). A link
that flaps every two seconds is still held down."""
METRICS_PORT = 9862
API_PORT = 8645
"""Of gateways, inside the lab."""
SCRAPER = "prometheus"
"""Name of the certificate that scrapes."""
MACHINE_RUN = "/run/syntony"
"""Inside a virtual machine: the file system shared with the lab cannot hold sockets."""
CERTIFICATE_LIFETIME_NS = 24 * 3600 * 1_000_000_000
"""A day: a lab does not live longer, and restarting it makes a new CA."""


def provision(directory: Path, file: LabFile, plan: LabPlan) -> list[DaemonSpec]:
    """Write the files that the daemons read; return the daemons in starting order, controller
    first. Raises `MissingError`: the `lab` extra is not installed."""
    try:
        from syntony.controller.pki import create_authority
    except ModuleNotFoundError as error:
        raise MissingError(
            f"agents need {error.name}; pip install 'syntony[lab]', or use --no-agents"
        ) from error
    tls = directory / TLS
    tls.mkdir(mode=0o700)
    authority = create_authority(tls)
    authority.issue(
        SCRAPER, Role.SCRAPER, addresses=[], lifetime_ns=CERTIFICATE_LIFETIME_NS, directory=tls
    )
    (directory / "topology.json").write_text(_topology(plan), encoding="utf-8")
    made = [_store(directory)] if file.gateways and "store" not in file.options else []
    made += [
        _controller(directory, file, plan, authority, number)
        for number in range(1, file.controllers + 1)
    ]
    made += [
        _gateway(directory, file, plan, authority, number) for number in range(1, file.gateways + 1)
    ]
    for host in plan.hosts:
        made += _agent(directory, file, plan, authority, host)
    return made


def _metrics(address: str, port: int = METRICS_PORT) -> MetricsConfig:
    """Over the front-end network, where the lab's Prometheus may be, as in a cluster."""
    return MetricsConfig(listen=f"{address}:{port}", tls=True, clients=(SCRAPER,))


def _mgmt(plan: LabPlan, node: str) -> str:
    return plan.link(f"{node}/mgmt0").a.ipv4


def _topology(plan: LabPlan) -> str:
    # A heavy import, needed to bring a lab up but not to talk to one.
    from syntony.fabric.files import format_topology

    return format_topology(topology(plan))


def _controller(
    directory: Path, file: LabFile, plan: LabPlan, authority: Authority, number: int
) -> DaemonSpec:
    from syntony.controller.config import ControllerConfig

    address, name = _mgmt(plan, CONTROLLER), of_controller(number)
    further = (number - 1) * PORTS_APART
    options = dict(file.options)
    rules = options.pop("rules", "")
    settings: dict[str, Any] = {
        "store": URL if file.gateways else str(directory / of_controller(number, "store")),
        "enrolment": {
            "listen": f"{address}:{JOIN_PORT + further}",
            "authority": str(directory / TLS),
        },
        "state_dir": str(directory / of_controller(number, "state")),
        "standby": file.controllers > 1,
        "ecmp_paths": file.spec.spines,
        "seed": file.spec.seed,
        "topology": str(directory / "topology.json"),
        "placement": _placement(file),
        "pacing": {"mode": "observe", "policy": {"queue_ns": _queue_ns(file)}},
        "api": _api(file),
        "alerts": {"rules": rules, "cluster": file.name},
        "true_clocks": msgspec.to_builtins(file.clocks),
        "anchors": [{"node": host, "bound_ns": ANCHOR_BOUND_NS} for host in file.anchors],
        **options,
    }
    settings["local_socket"] = str(controller_socket(directory, number))
    serving = _serving(directory, plan, authority, number, Identity(Role.CONTROLLER, name))
    config = msgspec.convert({**serving, **settings}, ControllerConfig)
    words = _role(directory, name, config, "controller")
    daemon = _daemon(directory, name, CONTROLLER, inside(CONTROLLER), words)
    fds = () if file.console is None else (file.console.fd,)
    return msgspec.structs.replace(daemon, fds=fds)


def _serving(
    directory: Path, plan: LabPlan, authority: Authority, number: int, holder: Identity
) -> dict[str, Any]:
    """Ports and certificate of a controller or gateway, the `number`-th of all."""
    address, further = _mgmt(plan, CONTROLLER), (number - 1) * PORTS_APART
    tls = authority.issue(
        holder.name,
        holder.role,
        addresses=[address],
        lifetime_ns=CERTIFICATE_LIFETIME_NS,
        directory=directory / TLS,
    )
    return {
        "listen": _listen(plan, number),
        "tls_ca": tls.ca,
        "tls_cert": tls.cert,
        "tls_key": tls.key,
        "metrics": msgspec.to_builtins(_metrics(address, METRICS_PORT + further)),
    }


def _addresses(plan: LabPlan, numbers: Iterable[int]) -> tuple[str, ...]:
    """Addresses of these controllers and gateways, numbered from 1."""
    return tuple(_listen(plan, number) for number in numbers)


def _listen(plan: LabPlan, number: int) -> str:
    return f"{_mgmt(plan, CONTROLLER)}:{CONTROLLER_PORT + (number - 1) * PORTS_APART}"


def _store(directory: Path) -> DaemonSpec:
    """The store that gateways and controllers share."""
    module = ("-m", "syntony.lab.store_server", str(directory / "store"), str(PORT))
    argv = (*inside(CONTROLLER), sys.executable, *module)
    return DaemonSpec("store", CONTROLLER, argv, str(directory / LOGS / "store.log"))


def _gateway(
    directory: Path, file: LabFile, plan: LabPlan, authority: Authority, number: int
) -> DaemonSpec:
    from syntony.controller.config import ControllerConfig

    name, place = gateway_name(number), file.controllers + number
    serving = _serving(directory, plan, authority, place, Identity(Role.GATEWAY, name))
    config = msgspec.convert(
        {
            **serving,
            "store": file.options.get("store", URL),
            "gateway": True,
            "leaders": _addresses(plan, range(1, file.controllers + 1)),
            "api": {"listen": f"{_mgmt(plan, CONTROLLER)}:{API_PORT + (place - 1) * PORTS_APART}"},
        },
        ControllerConfig,
    )
    words = _role(directory, name, config, "controller")
    return _daemon(directory, name, CONTROLLER, inside(CONTROLLER), words)


def _api(file: LabFile) -> dict[str, str]:
    """On a socket from outside the lab, which stays open while the controller is down."""
    console = file.console
    if console is None:
        return {}
    return {
        "listen": f"fd:{console.fd}",
        "login_digest": console.login_digest,
        "login_name": console.user,
    }


def _placement(file: LabFile) -> dict[str, Any]:
    """A queue counts from three full frames (a shaper sends one at a time) plus the median delay
    that a busy machine adds."""
    policy = MovePolicy(queue_ns=_queue_ns(file))
    return {
        "mode": file.placement,
        "policy": msgspec.to_builtins(policy),
        "classes": msgspec.to_builtins(file.classes),
    }


def _queue_ns(file: LabFile) -> int:
    return max(BUSY_NS, 3 * FRAME_BITS * S // file.spec.rate_bps)


def _agent(
    directory: Path, file: LabFile, plan: LabPlan, authority: Authority, host: str
) -> list[DaemonSpec]:
    """The reactor and the telemetry process, of one configuration."""
    rails = [link for link in plan.links_of(host) if link.kind is LinkKind.RAIL]
    config = AgentConfig(
        host=host,
        controller=_addresses(
            plan,
            range(file.controllers + 1, file.controllers + file.gateways + 1)
            if file.gateways
            else range(1, file.controllers + 1),
        ),
        tls=issue_agent(directory, plan, authority, host),
        nics=tuple(
            NicConfig(name=x.a.name, rail=i, stamping="kernel") for i, x in enumerate(rails)
        ),
        spool_dir=str(directory / "spool" / host),
        metrics=_metrics(_mgmt(plan, host)),
        family=file.family,
        clock=ClockConfig(
            dir=str(clock_directory(directory, host)),
            clockbound_dir=str(clock_directory(directory, host) / "clockbound"),
        ),
        reactor_dir=MACHINE_RUN if file.image else "",
        traffic=Policy(mode=FailoverMode.ACT, place=("*",), pace=("*",), decay_ns=DECAY_NS),
        read_gpus=False,  # they are the machine's, not a host's of the lab
        synthetic_clock=file.clocks[host],
    )
    entry = guest_entry(_mgmt(plan, host)) if file.image else inside(host)
    config = msgspec.convert(_merged(msgspec.to_builtins(config), file.agent_options), AgentConfig)
    telemetry = _role(directory, telemetry_name(host), config, "agent")
    reactor = ("agent", "reactor", *telemetry[1:])
    return [
        _daemon(directory, reactor_name(host), host, entry, reactor),
        _daemon(directory, telemetry_name(host), host, entry, telemetry),
    ]


def _merged(config: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with some values replaced, also within tables."""
    tables = {key: {**config[key], **value} for key, value in more.items() if type(value) is dict}
    return {**config, **more, **tables}


def issue_agent(directory: Path, plan: LabPlan, authority: Authority, host: str) -> TlsFiles:
    """A certificate for a host's agent, in place of the one before."""
    return authority.issue(
        host,
        Role.AGENT,
        addresses=[_mgmt(plan, host)],
        lifetime_ns=CERTIFICATE_LIFETIME_NS,
        directory=directory / TLS,
    )


def machine_daemon(directory: Path, host: str) -> DaemonSpec:
    """The virtual machine that is a host."""
    name = f"machine-{host}"
    argv = (*inside(host), sys.executable, "-m", "syntony.lab.verbs.machine", str(directory), host)
    return DaemonSpec(name, host, argv, str(directory / LOGS / f"{name}.log"))


def _role(directory: Path, name: str, config: msgspec.Struct, role: str) -> tuple[str, ...]:
    """Arguments of `syntony`, with the configuration written."""
    path = directory / f"{name}.toml"
    path.write_text(to_toml(msgspec.to_builtins(config)), encoding="utf-8")
    return role, "--config", str(path)


def _daemon(
    directory: Path, name: str, node: str, entry: tuple[str, ...], words: tuple[str, ...]
) -> DaemonSpec:
    argv = (*entry, sys.executable, "-m", "syntony", *words)
    return DaemonSpec(name, node, argv, str(directory / LOGS / f"{name}.log"))
