"""`syntony kubernetes` against a stand-in for the API server, under the chart's own rules."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.audit.test_node_condition import FAIL, UNKNOWN, result
from tests.deploy.api_server import FakeApiServer, Rule, serving

from syntony.audit.report.node_condition import TAINT_KEY
from syntony.audit.result import Result, Status
from syntony.cli import enrol, kubernetes
from syntony.cli.fleet import FleetTarget
from syntony.controller.pki import Authority, create_authority, read_request
from syntony.errors import InputError, MissingError, RemoteError, UsageError
from syntony.io.credentials import fits
from syntony.io.kubernetes import KubernetesApi
from syntony.model import S
from syntony.wire.enrol import Issued, RenewQuery
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Validity, read_certificate

CONDITION_ONLY = (Rule("nodes/status", ("patch",)), Rule("nodes", ("get",)))
WITH_TAINT = (Rule("nodes/status", ("patch",)), Rule("nodes", ("get", "list", "patch")))
LEADER = (Rule("pods", ("patch",), ("syntony-controller-0", "syntony-controller-1")),)
RENEWAL = (Rule("secrets", ("get", "patch"), ("scraper",)),)
"""What the chart's roles allow; tests/deploy/test_helm_access.py compares."""
PASS = result(Status.PASS)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with serving(tmp_path, WITH_TAINT) as fake:
        monkeypatch.setattr(kubernetes, "KubernetesApi", lambda: reaching(fake))
        for name in ("gpu001", "gpu002", "gpu003"):
            fake.add_node(name, taints=[{"key": "other", "effect": "NoExecute"}])
        yield fake


def reaching(fake: FakeApiServer) -> KubernetesApi:
    return KubernetesApi("127.0.0.1", fake.port, fake.account)


def tell(name: str, results: list[Result], *options: str) -> dict[str, Any]:
    """What `syntony kubernetes node` says after an audit with these results."""
    done = CliRunner().invoke(
        kubernetes.command,
        ["node", "--node", name, "--results", "-", "--json", *options],
        input=msgspec.json.encode(results),
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def taints(fake: FakeApiServer, name: str) -> list[str]:
    spec = fake.objects[f"/api/v1/nodes/{name}"]["spec"]
    return [taint["key"] for taint in spec["taints"]]


def test_a_condition_without_a_taint_needs_no_right_to_change_the_node(
    server: FakeApiServer,
) -> None:
    server.rules = CONDITION_ONLY
    assert tell("gpu001", [FAIL])["tainted"] is False
    assert server.condition("gpu001")["status"] == "True"
    ready, _ = server.objects["/api/v1/nodes/gpu001"]["status"]["conditions"]
    assert ready["type"] == "Ready"
    tell("gpu001", [PASS])
    assert server.condition("gpu001")["status"] == "False"
    assert taints(server, "gpu001") == ["other"]


def test_taint_stays_until_a_pass(server: FakeApiServer) -> None:
    options = ("--taint", "NoSchedule")
    assert tell("gpu001", [FAIL], *options)["tainted"] is True
    assert taints(server, "gpu001") == ["other", TAINT_KEY]
    assert tell("gpu001", [UNKNOWN], *options)["tainted"] is True
    assert server.condition("gpu001")["status"] == "Unknown"
    assert tell("gpu001", [], *options)["tainted"] is True
    assert tell("gpu001", [PASS], *options)["tainted"] is False
    assert taints(server, "gpu001") == ["other"]
    assert TAINT_KEY not in server.objects["/api/v1/nodes/gpu001"]["metadata"]["labels"]
    assert taints(server, "gpu002") == ["other"]


def test_no_more_nodes_than_allowed_are_tainted(server: FakeApiServer) -> None:
    options = ("--taint", "NoSchedule", "--taint-at-most", "2")
    found = {
        name: tell(name, [FAIL], *options)["tainted"] for name in ("gpu003", "gpu002", "gpu001")
    }
    assert found == {"gpu003": True, "gpu002": True, "gpu001": False}
    assert server.condition("gpu001")["status"] == "True"  # that is said all the same
    assert tell("gpu003", [FAIL], *options)["tainted"] is True  # keeps what it has
    tell("gpu002", [PASS], *options)
    assert tell("gpu001", [FAIL], *options)["tainted"] is True


def test_of_those_that_taint_at_once_the_last_by_name_give_up(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node taints itself between our look and our taint."""
    real = server.answer

    def answer(method: str, target: str, kind: str, body: bytes) -> tuple[int, Any]:
        if method == "PATCH" and b"taints" in body:
            other = server.objects["/api/v1/nodes/gpu001"]
            other["metadata"]["labels"][TAINT_KEY] = "true"
            other["spec"]["taints"].append({"key": TAINT_KEY, "effect": "NoSchedule"})
        return real(method, target, kind, body)

    monkeypatch.setattr(server, "answer", answer)
    options = ("--taint", "NoSchedule", "--taint-at-most", "1")
    assert tell("gpu002", [FAIL], *options)["tainted"] is False
    assert taints(server, "gpu002") == ["other"]


def test_a_node_that_changes_meanwhile_is_read_again(server: FakeApiServer) -> None:
    server.conflicts = 3
    assert tell("gpu001", [FAIL], "--taint", "NoSchedule")["tainted"] is True
    assert taints(server, "gpu001") == ["other", TAINT_KEY]
    server.conflicts = 99
    with pytest.raises(RemoteError, match="modified"):
        tell("gpu001", [PASS], "--taint", "NoSchedule")
    assert taints(server, "gpu001") == ["other", TAINT_KEY]


def test_the_token_is_read_again_each_time(server: FakeApiServer) -> None:
    known = reaching(server)
    known.get("/api/v1/nodes/gpu001")
    server.token = "second"  # noqa: S105
    with pytest.raises(RemoteError, match="401: Unauthorized"):
        known.get("/api/v1/nodes/gpu001")
    (server.account / "token").write_text("second\n")
    known.get("/api/v1/nodes/gpu001")


def test_errors_name_what_was_asked(server: FakeApiServer, tmp_path: Path) -> None:
    server.rules = ()
    with pytest.raises(RemoteError, match=r"GET /api/v1/nodes/gpu001 .*403: cannot get"):
        tell("gpu001", [FAIL])
    with pytest.raises(MissingError, match="give the pod a service account"):
        KubernetesApi("127.0.0.1", 1, tmp_path / "none")
    with socket.create_server(("127.0.0.1", 0)) as unanswered:
        port = unanswered.getsockname()[1]
    with pytest.raises(RemoteError, match="refused"):
        KubernetesApi("127.0.0.1", port, server.account).get("/api/v1/nodes/gpu001")
    with pytest.raises(UsageError, match="leave out --every"):
        tell("gpu001", [FAIL], "--every", "1s")


def test_a_certificate_of_somebody_else_is_refused(server: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serving(tmp_path / "other", ()) as other:
        imposter = KubernetesApi("127.0.0.1", other.port, server.account)
        with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED"):
            imposter.get("/api/v1/nodes/gpu001")
        assert not other.asked


def test_not_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(MissingError, match="not in a Kubernetes pod"):
        KubernetesApi()


def test_this_host_is_audited_for_real(server: FakeApiServer) -> None:
    done = CliRunner().invoke(
        kubernetes.command, ["node", "--node", "gpu001", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert server.condition("gpu001")["status"] in {"True", "False", "Unknown"}
    assert server.condition("gpu001")["reason"] != "AuditBroken"


def test_an_audit_that_breaks_is_unknown(server: FakeApiServer, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text("[roles")
    done = CliRunner().invoke(
        kubernetes.command,
        ["node", "--node", "gpu001", "--spec", str(spec), "--taint", "NoSchedule", "--json"],
        catch_exceptions=False,
    )
    assert json.loads(done.stdout)["reason"] == "AuditBroken"
    assert server.condition("gpu001")["status"] == "Unknown"
    assert taints(server, "gpu001") == ["other"]


def test_the_controller_that_listens_is_labelled(server: FakeApiServer) -> None:
    server.rules = LEADER
    pod = "/api/v1/namespaces/fleet/pods/syntony-controller-0"
    server.objects[pod] = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}

    def label(port: int) -> str:
        words = ["leader", "--once", "--port", str(port), "--pod", "syntony-controller-0"]
        done = CliRunner().invoke(
            kubernetes.command, [*words, "--namespace", "fleet"], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        labels = server.objects[pod]["metadata"]["labels"]
        assert labels["a"] == "b"
        return str(labels["syntony/leads"])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert label(port) == "true"
    assert label(port) == "false"


def test_one_line_without_a_pod() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syntony", "kubernetes", "node", "--node", "x"],
        capture_output=True, text=True, env={}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "not in a Kubernetes pod" in done.stderr
    assert done.stderr.count("\n") == 1


# --- a scraper's certificate ---

SCRAPERS = "/api/v1/namespaces/fleet/secrets/scraper"


@pytest.fixture
def authority(server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Signs what one of two controllers is asked for; the other is a standby."""
    made = create_authority(tmp_path / "ca")
    tls = made.issue(
        "prometheus", Role.SCRAPER, addresses=(), lifetime_ns=90 * 86_400 * S,
        directory=tmp_path / "tls",
    )  # fmt: skip
    data = {"ca.crt": tls.ca, "tls.crt": tls.cert, "tls.key": tls.key}
    server.objects[SCRAPERS] = {
        "metadata": {"name": "scraper", "resourceVersion": "1"},
        "data": {name: b64encode(Path(path).read_bytes()).decode() for name, path in data.items()},
    }
    server.rules = RENEWAL

    def sign(target: FleetTarget, query: RenewQuery) -> Issued:
        if target.address != "controller-1:8443":
            raise RemoteError("refused")
        name, key = read_request(query.csr)
        holder = Identity(Role.SCRAPER, name)
        pem = made.sign(key, holder, addresses=(), lifetime_ns=30 * 86_400 * S)
        return Issued(certificate=pem, ca=made.pem)

    monkeypatch.setattr(enrol, "ask", sign)
    return made


def renew(*controllers: str) -> str:
    words = ["renew", "scraper", "--namespace", "fleet"]
    words += [f"--controller={each}" for each in controllers]
    done = CliRunner().invoke(kubernetes.command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.stderr.split())


def test_a_certificate_in_a_secret_is_renewed_when_it_is_due(
    server: FakeApiServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(server.objects[SCRAPERS]["data"])
    assert "scraper: not due yet" in renew("controller-0:8443")
    assert server.objects[SCRAPERS]["data"] == before
    monkeypatch.setattr(Validity, "renewal_ns", property(lambda _: 0))
    with pytest.raises(RemoteError, match="refused"):
        renew("controller-0:8443")
    assert server.objects[SCRAPERS]["data"] == before
    assert "scraper: renewed" in renew("controller-0:8443", "controller-1:8443")
    after = {name: b64decode(text) for name, text in server.objects[SCRAPERS]["data"].items()}
    assert after["ca.crt"] == authority.pem
    assert fits(after["tls.crt"], after["tls.key"])
    assert b64encode(after["tls.crt"]).decode() != before["tls.crt"]
    assert read_certificate(after["tls.crt"]).identity == Identity(Role.SCRAPER, "prometheus")


def test_a_secret_that_somebody_else_changed_is_left_alone(
    server: FakeApiServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Validity, "renewal_ns", property(lambda _: 0))
    server.conflicts = 1
    before = dict(server.objects[SCRAPERS]["data"])
    with pytest.raises(RemoteError, match="modified"):
        renew("controller-1:8443")
    assert server.objects[SCRAPERS]["data"] == before
    del server.objects[SCRAPERS]["data"]["tls.key"]
    with pytest.raises(InputError, match=r"the Secret has no tls\.key"):
        renew("controller-1:8443")
