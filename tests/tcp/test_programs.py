"""Real programs, unchanged, over multi-path connections: right results, and MPTCP underneath."""

from __future__ import annotations

import errno
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.tcp.conftest import PYTHON, Compile, Hosts, running

pytestmark = pytest.mark.lab
PROGRAMS = Path(__file__).parent / "programs"
SERVER = "h1/rail0"


def script(name: str) -> tuple[str, str]:
    return PYTHON, str(PROGRAMS / f"{name}.py")


def test_python_web_server_urllib_and_curl(hosts: Hosts) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian: curl): web servers under the interposer are NOT tested")
    address = hosts.address(SERVER)
    page = PROGRAMS / "many.py"
    fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end='')"
    with running(hosts.start("h1", *script("http_server"), address)) as port:
        url = f"http://{address}:{port}/{page.relative_to(Path.cwd())}"
        by_urllib = hosts.run("h0", PYTHON, "-c", fetch, url)
        by_curl = hosts.run("h0", "curl", "-sS", url)
        plain = hosts.lab.run("h0", "curl", "-sS", url)
    assert by_urllib.out == by_curl.out == plain == page.read_text()
    assert (by_urllib.requested, by_curl.requested) == (1, 1)


def test_asyncio_streams(hosts: Hosts) -> None:
    address = hosts.address(SERVER, 6)
    with running(hosts.start("h1", *script("asyncio_echo"), "serve", address)) as port:
        done = hosts.run("h0", *script("asyncio_echo"), "ask", address, port, "20")
    assert (done.code, done.err, done.requested) == (0, "", 20)


def test_threads_forks_and_children(hosts: Hosts) -> None:
    address = hosts.address(SERVER)
    with running(hosts.start("h1", *script("many"), "serve", address)) as port:
        done = hosts.run("h0", *script("many"), "everywhere", address, port, "80")
    assert (done.code, done.err, done.requested) == (0, "", 100)


def test_a_thousand_connections_at_once(hosts: Hosts) -> None:
    address = hosts.address(SERVER)
    with running(hosts.start("h1", *script("many"), "serve", address)) as port:
        done = hosts.run("h0", *script("many"), "ask", address, port, "1000")
    assert (done.code, done.err, done.requested) == (0, "", 1000)


def test_gloo(hosts: Hosts) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip(
            "needs PyTorch (pip install '.[torch]'): gloo under the interposer is NOT tested"
        )
    address = hosts.address("h0/rail0")
    joined = hosts.requested("h1")
    with hosts.start("h1", *script("all_reduce"), "1", address) as other:
        done = hosts.run("h0", *script("all_reduce"), "0", address)
        said, errors = other.communicate()
    assert (done.code, done.out) == (0, "rank 0: 10 right sums\n"), done.err
    assert (other.returncode, said) == (0, "rank 1: 10 right sums\n"), errors
    between = done.requested + hosts.requested("h1") - joined
    assert between >= 2  # the store's and gloo's own


@pytest.mark.parametrize("family", [4, 6])
def test_a_replaced_socket_is_what_the_program_made(hosts: Hosts, family: int) -> None:
    address = hosts.address("h0/rail0", family)
    done = hosts.run("h0", *script("replaced"), address)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["before"].pop("mptcp"), found["after"].pop("mptcp")) == (1, 0)
    assert found["before"] == found["after"]
    assert found["after"]["congestion"] == "reno"
    assert found["after"]["inheritable"]
    assert not found["after"]["blocking"]
    assert found["watched"]
    assert found["bound"] == 1  # its address would not be free for another socket: left alone


@pytest.mark.parametrize(("preload", "protocol"), [(True, "0"), (False, "262")])
def test_tcp_info_after_the_first_path_is_gone(hosts: Hosts, preload: bool, protocol: str) -> None:
    """The kernel tells of the first subflow, dead or alive; the interposer of one that lives."""
    address, here, other = (hosts.address(nic) for nic in (SERVER, "h0/rail0", "h0/rail1"))
    start = hosts.start if preload else hosts.start_plain
    run = hosts.lab.run
    run("h0", "ip", "mptcp", "limits", "set", "subflow", "2")
    run("h1", "ip", "mptcp", "limits", "set", "subflow", "2")
    run("h0", "ip", "mptcp", "endpoint", "add", other, "dev", "rail1", "subflow")
    try:
        words = (*script("first_path_gone"), address)
        with running(hosts.start("h1", *script("asyncio_echo"), "serve", address)) as port:
            process = start("h0", *words, port, protocol, stdin=subprocess.PIPE)
            with running(process) as first:
                assert first == "two"
                run("h0", "ip", "mptcp", "endpoint", "delete", "id", "0", here)
                said, errors = process.communicate("go\n", timeout=600)
    finally:
        run("h0", "ip", "mptcp", "endpoint", "flush")
    assert process.returncode == 0, errors
    established = 1
    assert (int(said) == established) is preload


def test_mpi(hosts: Hosts, compiled: Compile) -> None:
    if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
        pytest.skip(
            "needs Open MPI (Debian: openmpi-bin, libopenmpi-dev): MPI under the interposer is "
            "NOT tested"
        )
    program = compiled("mpi_sum", compiler="mpicc")
    words = (
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3",
        "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
        "--mca", "pml", "ob1",
    )  # fmt: skip
    done = hosts.run("h0", *words, program, SYNTONY_TCP="all")
    assert (done.code, done.out) == (0, "5 of 5 right\n"), done.err
    assert done.requested >= 3  # between every two ranks


def test_tcp_user_timeout_keeps_its_effect(hosts: Hosts) -> None:
    """Every path swallows what it gets: without the option the kernel tries for a quarter of an
    hour, with it the connection dies in time."""
    address = hosts.address(SERVER)
    with running(hosts.start("h1", *script("asyncio_echo"), "serve", address)) as port:
        words = (*script("user_timeout"), address, port, "2000")
        with hosts.start("h0", *words, stdin=subprocess.PIPE) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            faults = [hosts.lab.inject("blackhole", f"h0/rail{rail}") for rail in (0, 1)]
            out, err = program.communicate("go\n", timeout=600)
            for fault in faults:
                hosts.lab.clear(fault.id)
    assert (out.split()[0], err) == (str(errno.ETIMEDOUT), "")
