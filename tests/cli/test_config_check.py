"""`syntony config check` on what is shipped, and on what is wrong."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from syntony.cli import run
from syntony.controller.pki import create_authority, load_authority
from syntony.model import S
from syntony.wire.roles import Role

CONFIG = Path(__file__).parents[2] / "deploy/config"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agent.toml", "a valid agent file"),
        ("controller.toml", "a valid controller file"),
        ("sla.toml", "a valid file of objectives"),
    ],
)
def test_what_is_shipped_is_valid(capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    code = run(["config", "check", str(CONFIG / name)])
    said = capsys.readouterr()
    assert (code, says in said.out) == (0, True), said.err


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("agent.toml", ("127.0.0.1:9862", "0.0.0.0:9862"), "can be reached from outside"),
        ("controller.toml", ("127.0.0.1:9863", "9863"), "not ADDRESS:PORT"),
        ("agent.toml", ("\nlisten", "\nlistn"), "did you mean 'listen'"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "30d"'), "6h to 7d"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "5h"'), "6h to 7d"),
        ("controller.toml", ('# detail_retention = "7d"', 'detail_retention = "7"'), "detail_ret"),
        ("agent.toml", ("\nhost =", "\nhots ="), "unknown key 'hots'; did you mean 'host'?"),
        ("agent.toml", ("\nhost =", "\n# host ="), "key 'host' is missing"),
        ("controller.toml", ("\nlisten =", "\n# listen ="), "key 'listen' is missing"),
        ("controller.toml", ("127.0.0.1:8445", "127.0.0.1:8443"), "listen and api.listen are both"),
        ("controller.toml", ("0.0.0.0:8444", "0.0.0.0:8443"), "listen and enrolment.listen are bo"),
        ("controller.toml", ("127.0.0.1:9863", "127.0.0.1:8445"), "api.listen and metrics.listen"),
        ("sla.toml", ("p99", "p999"), "did you mean 'p99'"),
        ("sla.toml", ('"50us"', '"50"'), "'50' is not a duration"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, wrong: tuple[str, str], says: str
) -> None:
    path = tmp_path / name
    path.write_text((CONFIG / name).read_text().replace(*wrong))
    code = run(["config", "check", str(path)])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert says in said


AGENT = """
host = "h0"
controller = "10.0.0.1:8443"
spool_dir = "/var/lib/syntony/spool"
tls = { ca = "ca.pem", cert = "h0.pem", key = "h0.key" }
nics = [{ name = "rail0", rail = 0 }]
"""
CONTROLLER = """
listen = "0.0.0.0:8443"
tls_ca = "ca.pem"
tls_cert = "c.pem"
tls_key = "c.key"
"""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('host = ""', "host: give up to 63 letters"),
        ('host = "../h0"', "host: give up to 63 letters"),
        ('controller = "10.0.0.1"', "controller: '10.0.0.1' is not HOST:PORT"),
        ('controller = ["10.0.0.1:8443", "10.0.0.2:99999"]', "'10.0.0.2:99999' is not HOST:PORT"),
        ("spool_bytes = 0", "`int` >= 1 - at `$.spool_bytes`"),
        ("probe_port = 65536", "`int` <= 65535 - at `$.probe_port`"),
        ('family = "ipv5"', "family: give ipv4 or ipv6"),
        ('utc = "yes"', "utc: give kernel or off"),
        ('audit = { mode = "ACTIVE" }', "audit.mode: give off or passive or active"),
        ("discipline = { max_ppb = nan }", "`float` > 0.0 - at `$.discipline.max_ppb`"),
        ("discipline = { step_ns = -1 }", "`int` >= 0 - at `$.discipline.step_ns`"),
        ('nics = [{ name = "a/b", rail = 0 }]', "nics[0].name: give an interface's name"),
        ('nics = [{ name = "a", rail = -1 }]', "`int` >= 0 - at `$.nics[0].rail`"),
        (
            'nics = [{ name = "a", rail = 0, stamping = "x" }]',
            "nics[0].stamping: give auto or hardware or kernel",
        ),
        ('nics = [{ name = "a", rail = 0 }, { name = "a", rail = 1 }]', "nics: 'a' is there twice"),
        ('nics = [{ name = "a", rail = 0, host = "b" }]', "'host' does not belong at `$.nics[0]`"),
        ('mode = "off"', "key 'mode' does not belong above the first [section]"),
        (f"spool_bytes = {'9' * 5000}", "not TOML: Exceeds the limit"),
        (f"spool_bytes = {'[' * 5000}", "not TOML: maximum recursion depth exceeded"),
        ('listen = ":8443"', "listen: give HOST:PORT"),
        ('listen = "0.0.0.0:65536"', "listen: give HOST:PORT"),
        ("mesh_peers = 0", "`int` >= 1 - at `$.mesh_peers`"),
        ("ecmp_paths = 0", "`int` >= 1 - at `$.ecmp_paths`"),
        ("probe_interval_ns = 0", "`int` >= 100000 - at `$.probe_interval_ns`"),
        ("verbs_interval_ns = -1", "`int` >= 100000 - at `$.verbs_interval_ns`"),
        ('probe_key_period = "soon"', "probe_key_period: 'soon' is not a duration"),
        ('probe_key_period = "0s"', "probe_key_period: give more than 0"),
        ('leaders = ["c"]', "leaders[0]: give HOST:PORT"),
        ('store = "http://x"', "store 'http://x': write a directory"),
        ('store = "clickhouse://u@h:x/d"', "store URL: Port could not be cast"),
        ('state = "mysql://x"', "state 'mysql://x': write postgresql://"),
        ('nic_prefixes = ["10.0.0.1/8"]', "nic_prefixes: 10.0.0.1/8 has host bits set"),
        ('api = { listen = "8445" }', "api.listen: give ADDRESS:PORT"),
        ('enrolment = { listen = "x" }', "enrolment.listen: give ADDRESS:PORT"),
        ("enrolment = { lifetime_ns = 1 }", "`int` >= 10000000000 - at `$.enrolment.lifetime_ns`"),
        ("placement = { max_moves = -1 }", "`int` >= 0 - at `$.placement.max_moves`"),
        ('spool_dir = ""', "`str` of length >= 1 - at `$.spool_dir`"),
        ('tls_cert = ""', "`str` of length >= 1 - at `$.tls_cert`"),
        ("traffic = { decay_ns = 0 }", "`int` >= 1 - at `$.traffic.decay_ns`"),
        ("traffic = { join_ns = -1 }", "`int` >= 1 - at `$.traffic.join_ns`"),
        ("traffic = { port = 0 }", "`int` >= 1 - at `$.traffic.port`"),
        (f"traffic = {{ silence_rtts = {1 << 64} }}", "- at `$.traffic.silence_rtts`"),
        ("traffic = { port_high = 60000 }", "port_low 61000 is above port_high 60000"),
        (
            "placement = { policy = { short = 90 } }",
            "`float` <= 1.0 - at `$.placement.policy.short",
        ),
        ("placement = { policy = { decay_ns = 0 } }", "`int` >= 1 - at `$.placement.policy.decay"),
        ("pacing = { policy = { target = nan } }", "`float` >= 0.0 - at `$.pacing.policy.target"),
        ("pacing = { policy = { headroom = 0.5 } }", "`float` >= 1.0 - at `$.pacing.policy.headr"),
        ('placement = { classes = [{ jobs = ["*"], priority = "x" }] }', "priority 'x': use "),
        ("verbs_classes = [{ dscp = 64 }]", "`int` <= 63 - at `$.verbs_classes[0].dscp`"),
        ('anchors = [{ node = "h0/" }]', "anchors[0].node: give a host, or HOST/NIC"),
        ('anchors = [{ node = "h0", bound_ns = -1 }]', "`int` >= 0 - at `$.anchors[0].bound_ns`"),
    ],
)
def test_a_value_out_of_its_bounds_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, says: str
) -> None:
    key = line.partition(" ")[0]
    of_agent = key in {*AGENT.split(), "spool_bytes", "probe_port", "family", "utc", "audit",
                       "discipline", "mode", "traffic"}  # fmt: skip
    others = [
        each
        for each in (AGENT if of_agent else CONTROLLER).splitlines()
        if not each.startswith(f"{key} ")
    ]
    path = tmp_path / "file.toml"
    path.write_text("\n".join([*others, line]))
    code = run(["config", "check", str(path)])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith(f"syntony: error: {path}: ")
    assert says in said


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("10.0.0.1", "[fd00::1]").encode(),
    ],
    ids=["byte order mark", "CRLF", "IPv6"],
)
def test_what_other_editors_write_is_read(tmp_path: Path, change: Callable[[str], bytes]) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(change(AGENT))
    assert run(["config", "check", str(path)]) == 0


RULE = """
[[rule]]
name = "mine"
metric = "flaps_1h"
severity = "critical"
above = 3
summary = "{subject}"
remedy = "look"
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA with certificates of a controller and an agent, in files."""
    home = tmp_path_factory.mktemp("ca")
    made = create_authority(home)
    for name, role in (("c", Role.CONTROLLER), ("h0", Role.AGENT)):
        made.issue(name, role, addresses=(), lifetime_ns=3600 * S, directory=home / "tls")
    return home


@pytest.fixture
def place(tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which every file that the two configurations name is right."""
    shutil.copytree(authority, tmp_path / "ca")
    (tmp_path / "rules.toml").write_text(RULE)
    (tmp_path / "sla.toml").write_text((CONFIG / "sla.toml").read_text())
    (tmp_path / "topology.toml").write_text('[[device]]\nname = "leaf0"\n')
    (tmp_path / "pager").write_text("key\n")
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "agent.toml").write_text(
        'host = "h0"\ncontroller = "c:8443"\nspool_dir = "spool"\nnics = []\n'
        'tls = { ca = "ca/tls/ca.crt", cert = "ca/tls/h0.crt", key = "ca/tls/h0.key" }\n'
    )
    (tmp_path / "controller.toml").write_text(
        'listen = "0.0.0.0:8443"\ntls_ca = "ca/tls/ca.crt"\ntls_cert = "ca/tls/c.crt"\n'
        'tls_key = "ca/tls/c.key"\nsla = "sla.toml"\ntopology = "topology.toml"\n'
        'enrolment = { authority = "ca" }\n'
        '[oidc]\nissuer = "https://idp"\nurl = "https://c"\nclient_id = "c"\n'
        'client_secret_file = "secret"\nca = "ca/ca.crt"\n'
        '[alerts]\nrules = "rules.toml"\n[[alerts.receivers]]\nname = "pager"\n'
        'kind = "pagerduty"\nsecret_file = "pager"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_files_that_are_right(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check", f"{name}.toml"]) == 0
    assert capsys.readouterr() == (f"{name}.toml: a valid {name} file\n", "")


def test_an_agent_whose_certificate_was_deleted_to_join_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the Ansible role asks for: its key is still there, and is written anew as well."""
    (place / "ca/tls/h0.crt").unlink()
    assert run(["config", "check", "agent.toml"]) == 0
    note = "note: tls: ca/tls/h0.crt is not there yet; syntony enrol join h0 writes it\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize("address", ["h0", "10.0.0.1", None])
def test_a_certificate_that_prometheus_cannot_verify(
    place: Path, address: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    load_authority(place / "ca").issue(
        "h0", Role.AGENT, addresses=[address] if address else [], lifetime_ns=3600 * S,
        directory=place / "ca/tls",
    )  # fmt: skip
    with (place / "agent.toml").open("a") as file:
        file.write('metrics = { listen = "0.0.0.0:9862", tls = true }\n')
    assert run(["config", "check", "agent.toml"]) == 0
    noted = "syntony enrol token agent h0 --address h0" in capsys.readouterr().err
    assert noted == (address is None)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("agent ca/tls/h0.key", None, "tls: ca/tls/h0.key: cannot be read: No such file"),
        ("agent ca/tls/h0.key", "x", "tls: ca/tls/h0.key: not the key of the certificate"),
        ("agent ca/tls/ca.crt", "x", "tls: ca/tls/ca.crt: no certificate in PEM"),
        ("agent ca/tls/ca.crt", None, "tls: ca/tls/ca.crt: cannot be read"),
        ("controller ca/tls/c.crt", None, "tls_cert: ca/tls/c.crt: cannot be read"),
        ("controller ca/ca.key", None, "enrolment.authority: ca: not a usable authority"),
        ("controller ca/ca.crt", "x", "enrolment.authority: ca: not a usable authority"),
        ("controller rules.toml", None, "alerts.rules: rules.toml: cannot be read"),
        ("controller rules.toml", "[[rule]", "rules.toml: not TOML: Expected ']]'"),
        ("controller rules.toml", RULE.replace("_1h", "_h"), "no metric 'flaps_h'; did you"),
        ("controller sla.toml", "[objective]", "sla: sla.toml: Expected `array`"),
        ("controller topology.toml", "[[device]]", "topology: bad-file: topology.toml: Object"),
        ("controller pager", None, "alerts.receivers: receiver 'pager': pager: cannot be read"),
        ("controller pager", "", "receiver 'pager': put its routing key in secret_file"),
        ("controller secret", "", "oidc: oidc.client_secret_file: secret: is empty"),
    ],
)
def test_a_file_that_is_wrong_is_named(
    place: Path, file: str, content: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, file = file.partition(" ")
    if content is None:
        (place / file).unlink()
    else:
        (place / file).write_text(content)
    code = run(["config", "check", f"{name}.toml"])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith(f"syntony: error: {name}.toml: ")
    assert says in said


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (
            "agent",
            ("ca/tls/ca.crt", "other/ca.crt"),
            "tls: ca/tls/h0.crt is not signed by a CA in o",
        ),
        (
            "agent",
            ("ca/tls/h0", "ca/tls/c"),
            "tls: ca/tls/c.crt is of role controller; an agent nee",
        ),
        (
            "controller",
            ("ca/tls/ca.crt", "other/ca.crt"),
            "tls_cert: ca/tls/c.crt is not signed by",
        ),
        (
            "controller",
            ("ca/tls/c.", "ca/tls/h0."),
            "ca/tls/h0.crt is of role agent; a controller n",
        ),
        ("controller", ('"ca" }', '"other" }'), "other/ca.crt is not in tls_ca = 'ca/tls/ca.crt'"),
        (
            "controller",
            ('"ca" }', '"rules.toml" }'),
            "rules.toml/ca.crt: Not a directory; make one",
        ),
    ],
)
def test_certificates_that_nobody_would_accept(
    place: Path, file: str, change: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_authority(place / "other")
    path = place / f"{file}.toml"
    path.write_text(path.read_text().replace(*change))
    assert run(["config", "check", path.name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"syntony: error: {file}.toml: ")
    assert says in said


def test_both_cas_while_one_replaces_the_other(place: Path) -> None:
    made = create_authority(place / "other")
    with (place / "ca/tls/ca.crt").open("ab") as trusted:
        trusted.write(made.pem)
    path = place / "controller.toml"
    path.write_text(path.read_text().replace('"ca" }', '"other" }'))
    assert run(["config", "check", path.name]) == 0


def test_a_ca_that_is_not_pem_before_the_certificate_is_there(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("c.crt", "c.key"):
        (place / "ca/tls" / name).unlink()
    (place / "ca/tls/ca.crt").write_text("x")
    assert run(["config", "check", "controller.toml"]) == 2
    assert "enrolment.authority: ca/tls/ca.crt: no certificate in PEM" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no known key of a configuration, rules, objectives or a topology\n"),
        ("[[rules]]", "or a topology; did you mean 'rule'?\n"),
    ],
)
def test_a_file_of_no_kind(
    tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    assert run(["config", "check", str(file)]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_a_certificate_of_another_host(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "agent.toml"
    file.write_text(file.read_text().replace('"h0"', '"h1"', 1))
    assert run(["config", "check", "agent.toml"]) == 2
    assert "ca/tls/h0.crt is of 'h0', not of host = 'h1'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agent", ["tls: ca/tls/h0.crt is not there yet; syntony enrol join h0 writes it"]),
        (
            "controller",
            [
                "tls_cert: ca/tls/c.crt is not there yet; syntony enrol authority writes it",
                "enrolment.authority: ca/ca.crt is not there yet; syntony enrol authority ca",
            ],
        ),
    ],
)
def test_before_enrolment(
    place: Path, name: str, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a join was interrupted there is the CA alone."""
    for file in (*(place / "ca").glob("c*.*"), *(place / "ca/tls").iterdir()):
        if file.name != "ca.crt" or file.parent.name == "ca":
            file.unlink()
    if name == "controller":
        (place / "controller.toml").write_text(
            (place / "controller.toml").read_text().replace('ca = "ca/ca.crt"', "")
        )
    assert run(["config", "check", f"{name}.toml"]) == 0
    notes = capsys.readouterr().err
    assert notes.count("\n") == len(says)
    assert all(f"note: {each}" in notes for each in says), notes


def test_what_only_root_can_read(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str | Path, _most: int = 0) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("syntony.io.credentials.read_bytes", denied)
    assert run(["config", "check", "agent.toml"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("note: tls: not checked: ca/tls/h0.key: cannot be read: Permission den")
    # Nor may we know whether they are there.
    monkeypatch.setattr("syntony.cli.config_files.os.lstat", denied)
    assert run(["config", "check", "agent.toml"]) == 0
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RULE, "a valid file of rules"),
        ('[[device]]\nname = "leaf0"\n', "a valid file of devices and cables"),
    ],
)
def test_files_of_operators(
    tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    assert run(["config", "check", str(file)]) == 0
    assert says in capsys.readouterr().out
    file.write_text(text.replace("name", "nam"))
    assert run(["config", "check", str(file)]) == 2
    assert capsys.readouterr().err.startswith("syntony: error: ")
