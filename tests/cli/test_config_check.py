"""`syntony config check` on what is shipped, and on what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from syntony.cli import run

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
        ("enrolment = { lifetime_ns = 0 }", "`int` >= 1 - at `$.enrolment.lifetime_ns`"),
        ("placement = { max_moves = -1 }", "`int` >= 0 - at `$.placement.max_moves`"),
        ('anchors = [{ node = "h0", bound_ns = -1 }]', "`int` >= 0 - at `$.anchors[0].bound_ns`"),
    ],
)
def test_a_value_out_of_its_bounds_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, says: str
) -> None:
    key = line.partition(" ")[0]
    of_agent = key in {*AGENT.split(), "spool_bytes", "probe_port", "family", "utc", "audit",
                       "discipline", "mode"}  # fmt: skip
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
    assert said.startswith(f"syntony: error: {path}: ") or key in {"store", "state", "nic_prefixes"}
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
name = "link-flaps"
metric = "flaps_1h"
severity = "warning"
above = 4
summary = "{subject}: {value} flaps within the hour"
remedy = "clean the cable"
"""


def test_a_file_of_rules_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULE)
    assert run(["config", "check", str(path)]) == 0
    assert "a valid file of incident rules" in capsys.readouterr().out
    path.write_text(RULE.replace("above", "abov"))
    assert run(["config", "check", str(path)]) == 2
    assert "did you mean 'above'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        ('alerts = {{ rules = "{file}" }}', RULE.replace("above", "abov"), "did you mean 'above'"),
        ('sla = "{file}"', "[[objective]]\np999 = '50us'\n", "did you mean 'p99'"),
        ('topology = "{file}"', "nonsense", "topology"),
    ],
)
def test_files_that_a_controllers_file_names_are_checked_where_they_are(
    tmp_path: Path, line: str, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "named", tmp_path / "controller.toml"
    path.write_text(f"{CONTROLLER}\n{line.format(file=file)}\n")
    assert run(["config", "check", str(path)]) == 0
    assert f"not checked: {file}" in capsys.readouterr().err
    file.write_text(text)
    assert run(["config", "check", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert says in said
