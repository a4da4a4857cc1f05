"""`syntony kubernetes`: reports to the Kubernetes API server from Syntony's pods."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from syntony.audit.report.node_condition import (
    TAINT_KEY,
    Condition,
    condition_of,
    condition_patch,
    is_tainted,
    taint_patch,
)
from syntony.audit.result import Result
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import civil_time, json_option, messages
from syntony.errors import InputError, RemoteError, UsageError
from syntony.input_files import MAX_BYTES, read_bytes
from syntony.io.kubernetes import MERGE, STRATEGIC, ConflictError, KubernetesApi
from syntony.model import S, parse_duration_ns

_TRIES = 5
"""Tries to update a node that others change at the same time."""
_LEADER_LABEL = "syntony/leads"
_KEYS = ("ca.crt", "tls.crt", "tls.key")
"""Of a Secret with a certificate."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@click.group(cls=HelpGroup)
def command() -> None:
    """What Syntony's pods report to the Kubernetes API server (docs/how-to/kubernetes.md).

    \b
    Example:
      syntony kubernetes node --every 5min
    """


@command.command()
@click.option(
    "--node", envvar="NODE_NAME", required=True, help="Name of this node.  [env: NODE_NAME]"
)
@click.option(
    "--every", metavar="TIME", help="Repeat the audit at this interval. [default: run it once]"
)
@click.option("--spec", type=click.Path(), help="Expected values for the audit.")
@click.option("--deadline", default="45s", metavar="TIME", help="Time limit for each audit.")
@click.option(
    "--results",
    type=click.Path(allow_dash=True),
    help="Output of `syntony audit run --json`; - for stdin.",
)
@click.option("--taint", type=click.Choice(_EFFECTS), help="Taint the node while its audit fails.")
@click.option(
    "--taint-at-most", default=3, type=click.IntRange(1),
    help="Do not taint if this many nodes are tainted: a wrong spec must not drain a cluster.",
)  # fmt: skip
@json_option
def node(
    *, node: str, every: str | None, spec: str | None, deadline: str, results: str | None,
    taint: str | None, taint_at_most: int, as_json: bool,
) -> None:  # fmt: skip
    """Audit this host; set its node's condition FleetAuditFailed and, on request, a taint.

    If the audit has no result, the condition is Unknown and the taint stays as it is.

    \b
    Example:
      syntony audit run --local --json | syntony kubernetes node --node gpu001 --results -
    """
    if every and results:
        raise UsageError("--results are of one audit: leave out --every")
    server = KubernetesApi()
    every_ns = parse_duration_ns(every) if every else 0
    while True:
        found = (
            condition_of(_decoded(_read(results)))
            if results
            else _audited(spec, parse_duration_ns(deadline))
        )
        try:
            tainted = _report(server, node, found, taint, taint_at_most)
        except RemoteError as error:
            if not every_ns:
                raise
            messages.print(str(error), style="red")
        else:
            _print(node, found, tainted=tainted, as_json=as_json)
        if not every_ns:
            return
        time.sleep(every_ns / S)


def _audited(spec: str | None, deadline_ns: int) -> Condition:
    """Audit in a separate process, so that its memory is freed and its failures are isolated."""
    words = ["audit", "run", "--local", "--json", "--deadline", f"{deadline_ns // 10**6}ms"]
    words += ["--spec", spec] if spec else []
    try:
        done = subprocess.run(
            [sys.executable, "-m", "syntony", *words],
            stdout=subprocess.PIPE,
            timeout=2 * deadline_ns / S + 30,
            check=False,
        )
        return condition_of(_decoded(done.stdout))
    except (subprocess.TimeoutExpired, InputError) as error:
        return Condition("Unknown", "AuditBroken", str(error))


def _read(results: str) -> bytes:
    if results == "-":
        return sys.stdin.buffer.read(MAX_BYTES)
    try:
        return read_bytes(results)
    except OSError as error:
        raise InputError("unreadable", f"{results}: {error.strerror}") from error


def _decoded(data: bytes) -> list[Result]:
    try:
        return msgspec.json.decode(data, type=list[Result])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(
            "not-results", f"not what `syntony audit run --json` prints: {error}"
        ) from error


def _report(
    server: KubernetesApi, node: str, found: Condition, effect: str | None, at_most: int
) -> bool:
    """Set condition and taint. Returns whether the node has the taint."""
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    current = server.get(path)
    server.patch(f"{path}/status", condition_patch(current, found, now), STRATEGIC)
    if effect is None:
        return is_tainted(current)
    if found.status == "True":
        return _taint(server, path, effect, at_most)
    if found.status == "False":
        _retaint(server, path, None)
        return False
    return is_tainted(current)


def _taint(server: KubernetesApi, path: str, effect: str, at_most: int) -> bool:
    """Taint the node unless too many are tainted; of several that did so at once, the last by name
    revert it."""
    current = server.get(path)
    others = _tainted(server) - {current["metadata"]["name"]}
    if not is_tainted(current) and len(others) >= at_most:
        messages.print(
            f"not tainted: {len(others)} nodes are, of {at_most} at most", style="yellow"
        )
        return False
    if not _retaint(server, path, effect):
        return True
    if current["metadata"]["name"] in sorted(_tainted(server))[:at_most]:
        return True
    messages.print(f"taint taken back: more than {at_most} nodes have it", style="yellow")
    _retaint(server, path, None)
    return False


def _tainted(server: KubernetesApi) -> set[str]:
    listed = server.get(f"/api/v1/nodes?labelSelector={quote(TAINT_KEY, safe='')}")
    return {each["metadata"]["name"] for each in listed["items"]}


def _retaint(server: KubernetesApi, path: str, effect: str | None) -> bool:
    """Set or remove our taint; return whether anything changed."""
    for attempt in range(_TRIES):
        patch = taint_patch(server.get(path), effect)
        if patch is None:
            return False
        try:
            server.patch(path, patch, MERGE)
        except ConflictError:
            if attempt == _TRIES - 1:
                raise
        else:
            break
    return True


def _print(node: str, found: Condition, *, tainted: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"node": node, **found._asdict(), "tainted": tainted}))
    else:
        words = f"{node}: {found.reason}: {found.message}{' (tainted)' if tainted else ''}"
        click.echo(words)
    sys.stdout.flush()


@command.command()
@click.option("--port", default=8443, help="Port at which the controller listens.")
@click.option("--pod", envvar="POD_NAME", required=True, help="Name of this pod.  [env: POD_NAME]")
@click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    required=True,
    help="Namespace of this pod.  [env: POD_NAMESPACE]",
)
@click.option("--once", is_flag=True, hidden=True)
def leader(port: int, pod: str, namespace: str, once: bool) -> None:
    """Label this pod syntony/leads=true while its controller is in charge, for Services.

    A standby does not listen, so the controller that listens leads.

    \b
    Example:
      syntony kubernetes leader --pod syntony-controller-0 --namespace syntony
    """
    server = KubernetesApi()
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    written: bool | None = None
    while True:
        leads = _listens(port)
        if leads is not written:
            try:
                body = {"metadata": {"labels": {_LEADER_LABEL: str(leads).lower()}}}
                server.patch(path, body, MERGE)
                written = leads
                messages.print(f"{pod}: {'in charge' if leads else 'standby'}")
            except RemoteError as error:
                if once:
                    raise
                messages.print(str(error), style="red")
        if once:
            return
        time.sleep(1)


@command.command()
@click.argument("secret")
@click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    required=True,
    help="Namespace of the Secret.  [env: POD_NAMESPACE]",
)
@click.option(
    "--controller", "controllers", multiple=True, required=True, metavar="HOST:PORT",
    help="Controller; repeatable: the first that answers.",
)  # fmt: skip
def renew(secret: str, namespace: str, controllers: tuple[str, ...]) -> None:
    """Renew the certificate in SECRET, after two thirds of its validity.

    The Secret has ca.crt, tls.crt and tls.key. For members that are not ours, such as Prometheus.

    \b
    Example:
      syntony kubernetes renew syntony-prometheus --namespace syntony \\
        --controller syntony-controller-0.syntony-controller.syntony.svc:8443
    """
    server = KubernetesApi()
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(secret, safe='')}"
    found = server.get(path)
    with tempfile.TemporaryDirectory(prefix="syntony-renew-") as folder:
        place = Path(folder)
        for name in _KEYS:
            (place / name).write_bytes(_decoded_key(found, name))
        expires_ns = _renewed(controllers, place)
        if expires_ns is None:
            messages.print(f"{secret}: not due yet")
            return
        data = {name: b64encode((place / name).read_bytes()).decode() for name in _KEYS[1:]}
    # Nobody else's change is lost: the API server compares the versions.
    version = found["metadata"]["resourceVersion"]
    server.patch(path, {"metadata": {"resourceVersion": version}, "data": data}, MERGE)
    messages.print(f"{secret}: renewed; until {civil_time(expires_ns)} UTC")


def _decoded_key(secret: dict[str, Any], name: str) -> bytes:
    try:
        return b64decode(secret["data"][name], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("no-certificate", f"the Secret has no {name}; see its keys") from error


def _renewed(controllers: tuple[str, ...], place: Path) -> int | None:
    """When the renewed certificate in the files expires; None: it is not due. Raises the last
    controller's error if none answers."""
    from syntony.cli.enrol import renew_files
    from syntony.cli.fleet import fleet_target

    files = (str(place / _KEYS[0]), str(place / _KEYS[1]), str(place / _KEYS[2]))
    for controller in controllers:
        try:
            renewed, expires_ns = renew_files(fleet_target(None, controller, files))
        except RemoteError:
            if controller == controllers[-1]:
                raise
        else:
            return expires_ns if renewed else None
    return None


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
