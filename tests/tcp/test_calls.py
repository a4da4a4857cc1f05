"""The calls of NCCL's socket transport, between hosts, by programs of every kind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.live import SYNTONY
from tests.tcp.conftest import Compile, Hosts, running

from syntony.io.interposer import tcp_library

pytestmark = pytest.mark.lab
COUNT = "3"
SERVER = "h1/rail0"


def ask(
    hosts: Hosts,
    program: str,
    server: str,
    family: int = 4,
    environ: dict[str, str] | None = None,
) -> tuple[str, int]:
    """What `program` on h0 says of its connections to `server` on h1, and h0's kernel."""
    address = hosts.address(SERVER, family)
    with running(hosts.start("h1", server, "serve", address, COUNT)) as port:
        done = hosts.run("h0", program, "ask", address, port, COUNT, **(environ or {}))
    assert done.code == 0, done.err
    return done.out.strip(), done.requested


@pytest.mark.parametrize("family", [4, 6])
def test_connections_between_hosts_are_multipath(
    hosts: Hosts, compiled: Compile, family: int
) -> None:
    program = compiled("tcp_calls")
    assert ask(hosts, program, program, family) == ("3 of 3 mptcp", 3)


def test_a_program_with_another_c_library(hosts: Hosts, compiled: Compile) -> None:
    program = compiled("tcp_calls", compiler="musl-gcc")
    assert ask(hosts, program, program) == ("3 of 3 mptcp", 3)


def test_static_programs_run_untouched(hosts: Hosts, compiled: Compile) -> None:
    static, dynamic = compiled("tcp_calls", "-static"), compiled("tcp_calls")
    assert ask(hosts, static, dynamic) == ("0 of 3 mptcp", 0)
    assert ask(hosts, dynamic, static) == ("0 of 3 mptcp", 0)


@pytest.mark.parametrize(
    "environ",
    [
        {"SYNTONY_TCP": "off"},
        {"SYNTONY_TCP_EXCLUDE": "22,1024-65535"},
        {"SYNTONY_TCP_EXCLUDE": "10.0.0.0/8 fd00::/8"},
    ],
)
def test_what_is_excluded_stays_plain(
    hosts: Hosts, compiled: Compile, environ: dict[str, str]
) -> None:
    program = compiled("tcp_calls")
    assert ask(hosts, program, program, environ=environ) == ("0 of 3 mptcp", 0)


@pytest.mark.parametrize(
    ("address", "environ", "said"),
    [
        ("127.0.0.1", {}, "0 of 3 mptcp"),
        ("::1", {}, "0 of 3 mptcp"),
        ("own", {}, "0 of 3 mptcp"),
        ("127.0.0.1", {"SYNTONY_TCP": "all"}, "3 of 3 mptcp"),
        ("own", {"SYNTONY_TCP": "all"}, "3 of 3 mptcp"),
    ],
)
def test_within_the_host_connections_stay_plain(
    hosts: Hosts, compiled: Compile, address: str, environ: dict[str, str], said: str
) -> None:
    program = compiled("tcp_calls")
    where = hosts.address(SERVER) if address == "own" else address
    with running(hosts.start("h1", program, "serve", where, COUNT)) as port:
        done = hosts.run("h1", program, "ask", where, port, COUNT, **environ)
    assert (done.code, done.out.strip(), done.err) == (0, said, "")


def test_no_mptcp_in_the_kernel(hosts: Hosts, compiled: Compile) -> None:
    program = compiled("tcp_calls")
    hosts.lab.run("h0", "sysctl", "-qw", "net.mptcp.enabled=0")
    try:
        address = hosts.address(SERVER)
        with running(hosts.start("h1", program, "serve", address, COUNT)) as port:
            words = (*SYNTONY, "run", "--", program, "ask", address, port, COUNT)
            done = hosts.finish("h0", lambda: hosts.start_plain("h0", *words))
    finally:
        hosts.lab.run("h0", "sysctl", "-qw", "net.mptcp.enabled=1")
    assert (done.code, done.out.strip(), done.requested) == (0, "0 of 3 mptcp", 0)
    assert done.err.startswith(
        "syntony: MPTCP is switched off here; switch it on: sysctl net.mptcp.enabled=1;"
        " the job runs on plain TCP\n"
    )


def test_setuid_programs_run_untouched(compiled: Compile, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip(
            "needs root, for a setuid program of another user: that it runs untouched is NOT tested"
        )
    program = tmp_path / "show"
    program.write_bytes(Path(compiled("tcp_calls")).read_bytes())
    program.chmod(0o755)
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(directory.stat().st_mode | 0o011)
    assert as_nobody(program) == ("mptcp\n", "")
    program.chmod(0o4755)
    assert as_nobody(program) == ("tcp\n", "")


def as_nobody(program: Path) -> tuple[str, str]:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", str(program), "show"],
        env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(tcp_library())},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_debugging_says_what_was_done(hosts: Hosts, compiled: Compile) -> None:
    program = compiled("tcp_calls")
    environ = {"SYNTONY_TCP_DEBUG": "1", "SYNTONY_TCP_EXCLUDE": "22,ssh"}
    with running(hosts.start("h0", program, "serve", "127.0.0.1", "1")) as port:
        local = hosts.run("h0", program, "ask", "127.0.0.1", port, "1", **environ)
    with running(hosts.start("h1", program, "serve", hosts.address(SERVER), "1")) as port:
        remote = hosts.run("h0", program, "ask", hosts.address(SERVER), port, "1", **environ)
    for done, line in ((local, "plain TCP, within the host"), (remote, "MPTCP")):
        lines = done.err.splitlines()
        assert all(said.startswith("syntony_tcp[") for said in lines)
        assert lines[-1].endswith(f"fd 3: {line}")
        assert any("1 entries of SYNTONY_TCP_EXCLUDE left out" in said for said in lines)
