"""Machines as hosts: their image, their configuration, and commands that run inside."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.errors import MissingError
from syntony.lab.commands import shaper_lines
from syntony.lab.plan import FabricSpec, LinkKind, make_plan
from syntony.lab.verbs import image
from syntony.lab.verbs.frames import HEAD, MAX_FRAME, PORT
from syntony.lab.verbs.machine import guest_config, join_lines, mac, qemu_argv, tsc_khz
from syntony.lab.verbs.proxy import GUEST_UNREACHABLE

PROXY = (sys.executable, "-m", "syntony.lab.verbs.proxy")


def test_modules_come_after_what_they_need() -> None:
    """Random dependencies without cycles, as depmod writes them."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    direct = {i: rng.sample(range(i), rng.randint(0, min(i, 3))) for i in range(40)}

    def closure(module: int) -> list[int]:
        """All that is needed, nearest first and the first needed last."""
        found: list[int] = []
        for need in direct[module]:
            for each in (need, *closure(need)):
                if each in found:
                    found.remove(each)
                found.append(each)
        return found

    text = "".join(
        f"kernel/m_{i}.ko.xz: {' '.join(f'kernel/m_{need}.ko.xz' for need in closure(i))}\n"
        for i in direct
    )
    wanted = rng.sample(range(40), 8)
    order = image.load_order(text, [f"m-{i}" for i in wanted] + ["built-in"])
    numbers = [int(path.partition("_")[2].partition(".")[0]) for path in order]
    assert len(set(numbers)) == len(numbers)
    assert set(wanted) <= set(numbers)
    for at, module in enumerate(numbers):
        assert set(direct[module]) <= set(numbers[:at]), module


@pytest.mark.skipif(
    shutil.which("cpio") is None,
    reason="needs cpio (Debian: cpio): archives for machines are NOT read by it",
)
def test_the_archive_is_one_that_cpio_reads(tmp_path: Path) -> None:
    files = [
        ("bin", 0o040755, b""), ("bin/tool", 0o100755, b"#!"), ("bin/sh", 0o120777, b"tool"),
        ("odd", 0o100644, b"12345"),
    ]  # fmt: skip
    archive = b"".join(image.newc(files))
    subprocess.run(["cpio", "-i", "--quiet"], input=archive, cwd=tmp_path, check=True)
    assert (tmp_path / "bin/tool").read_bytes() == b"#!"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/sh").readlink() == Path("tool")
    assert (tmp_path / "odd").read_bytes() == b"12345"


def test_what_lacks_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.lab.world.search_path", lambda: "/nonexistent")
    with pytest.raises(MissingError, match=r"qemu-system-x86_64.* not found; .*apt install .*kmod"):
        image.image()


@pytest.mark.parametrize("place", ["/tmp/venv", "/run/venv", "/dev/shm/venv"])  # noqa: S108
def test_a_program_that_guests_do_not_see_is_told(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(image, "need", lambda _: None)
    monkeypatch.setattr("sys.prefix", place)
    with pytest.raises(MissingError, match=f"Syntony is in {place}, which virtual machines do not"):
        image.image()


def test_a_guest_is_what_the_host_would_have_been() -> None:
    plan = make_plan(FabricSpec(hosts=4, rails=3, leaves=2))
    config = guest_config(plan, "h2")
    assert [nic.name for nic in config.nics] == ["rail0", "rail1", "rail2", "mgmt0"]
    assert [nic.verbs for nic in config.nics] == [True, True, True, False]
    for link in plan.links_of("h2"):
        assert f"addr add {link.a.ipv4}/31 dev {link.a.name}" in config.ip
    assert config.address == plan.link("h2/mgmt0").a.ipv4
    assert any("table" in line for line in config.rules[4])
    assert config.routes


def test_no_two_nics_of_a_lab_share_an_address() -> None:
    plan = make_plan(FabricSpec(hosts=64, rails=8, leaves=4))
    ports = [link.a for link in plan.links if link.kind is not LinkKind.FABRIC]
    assert len({mac(port) for port in ports}) == len(ports)


def test_ports_are_joined_both_ways() -> None:
    plan = make_plan(FabricSpec(hosts=2))
    ip, tc = join_lines([link.a for link in plan.links_of("h0")])
    assert "tuntap add t-rail1 mode tap" in ip
    rules = [line for line in tc if "redirect" in line]
    assert len(rules) == 6
    assert [line for line in rules if "dev rail1 ingress" in line and line.endswith("dev t-rail1")]
    assert [line for line in rules if "dev t-rail1 ingress" in line and line.endswith("dev rail1")]
    assert len(shaper_lines(plan, "h0")) == 2, "the ports' own shapers stay as in every lab"


def test_the_machine_may_write_nothing_but_the_lab(tmp_path: Path) -> None:
    plan = make_plan(FabricSpec(hosts=2))
    argv = qemu_argv(image.Image.of(Path("/image")), tmp_path, plan, "h1", tmp_path / "c.json")
    shares = [word for word in argv if word.startswith("local,")]
    assert [word for word in shares if "path=/," in word and "readonly=on" in word]
    assert [word for word in shares if f"path={tmp_path}," in word and "readonly=off" in word]
    assert len(shares) == 2
    assert argv.count("-netdev") == 3


# --- commands inside, with the guest's own server in a process beside -------------------------


@pytest.fixture(scope="module")
def guest() -> Iterator[str]:
    """An address of this machine at which a guest's server listens."""
    address = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.7"
    code = "import asyncio, sys; from syntony.lab.verbs.guest import serve; "
    code += "asyncio.run(serve(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", code, address], stdout=subprocess.DEVNULL) as it:
        assert inside(address, "true").returncode == 0, "it listens"
        yield address
        it.kill()


def inside(address: str, *argv: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROXY, address, "--", *argv], input=given, capture_output=True, check=False, timeout=600
    )


def test_output_errors_and_status_come_back(guest: str) -> None:
    done = inside(guest, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_input_passes_whole(guest: str) -> None:
    data = random.Random(5).randbytes(1_500_000)
    assert inside(guest, "cat", given=data).stdout == data


def test_the_environment_and_the_place_are_the_callers(guest: str) -> None:
    assert inside(guest, "pwd").stdout.decode().strip() == str(Path.cwd())
    assert inside(guest, "sh", "-c", "echo $HOME").stdout.decode().strip() == os.environ["HOME"]


def test_no_such_command_is_one_line(guest: str) -> None:
    done = inside(guest, "no-such-command")
    assert done.returncode == 127
    assert done.stderr == b"no-such-command: No such file or directory\n"


def test_a_signal_passes(guest: str) -> None:
    forever = "while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [*PROXY, guest, "sh", "-c", f"trap 'echo bye; exit 3' TERM; echo here; {forever}"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=600)[0] == b"bye\n"
    assert process.returncode == 3


def test_what_is_killed_here_dies_there(guest: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    process = subprocess.Popen([*PROXY, guest, "sh", "-c", f"echo $$ > {pid}; sleep 600"])
    deadline_s = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    process.kill()
    process.wait()
    number = int(pid.read_text())
    while Path(f"/proc/{number}").exists() and "Z" not in state(number):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"", HEAD.pack(0, MAX_FRAME + 1), HEAD.pack(0, 3) + b"{x}",
     HEAD.pack(0, 2) + b"{}", HEAD.pack(77, 0), HEAD.pack(0, 11) + b'{"argv":[]}'],
)  # fmt: skip
def test_a_bad_client_harms_nobody(guest: str, said: bytes) -> None:
    with socket.create_connection((guest, PORT), 10) as bad:
        bad.sendall(said)
        bad.shutdown(socket.SHUT_WR)
        bad.settimeout(600)
        while bad.recv(1 << 16):
            pass
    assert inside(guest, "true").returncode == 0


def test_a_guest_that_dies_is_told(tmp_path: Path) -> None:
    """A server that takes the order and goes."""
    address = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.8"
    with socket.create_server((address, PORT)) as server:
        process = subprocess.Popen([*PROXY, address, "true"], stderr=subprocess.PIPE)
        peer, _ = server.accept()
        peer.recv(1 << 16)
        peer.close()
        _, said = process.communicate(timeout=600)
    assert process.returncode == GUEST_UNREACHABLE
    assert said == f"guest {address} has gone\n".encode()


DEAD_GUEST = """
import asyncio, os, signal, socket, subprocess, sys, threading
from syntony.lab.verbs import proxy
from syntony.lab.verbs.frames import PORT
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.create_server(("127.0.0.1", PORT))
def die():
    guest, _ = listener.accept()
    guest.recv(1 << 20)
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    if sys.argv[1] == "signalled":
        os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=die, daemon=True).start()
proxy.SILENCE_S, proxy.PROBE_S = 3, 1
sys.exit(asyncio.run(proxy.run("127.0.0.1", ["sleep", "1000"])))
"""


@pytest.mark.parametrize(
    ("flags", "mhz", "khz"),
    [
        ("fpu tsc hypervisor", "2596.122", 2_596_122),
        ("fpu tsc aperfmperf", "2596.122", 0),  # how fast it runs now
        ("fpu tsc", "", 0),
    ],
)
def test_a_guest_is_given_the_rate_of_the_counter_where_it_is_known(
    flags: str, mhz: str, khz: int
) -> None:
    one = f"processor\t: 0\nmodel name\t: A: B\nflags\t\t: {flags}\n"
    one += f"cpu MHz\t\t: {mhz}\n" if mhz else ""
    assert tsc_khz(one + "\n" + one) == khz


@pytest.mark.parametrize("how", ["idle", "signalled"])
def test_a_guest_that_dies_without_a_word_is_given_up(how: str) -> None:
    """With nothing on the way to it, and with a signal that it never takes."""
    words = ["unshare", "-Urn", sys.executable, "-c", DEAD_GUEST, how]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
    )
    if "unshare" in done.stderr:
        pytest.skip(
            f"no private network here: {done.stderr.strip()}: guests that die are NOT tested"
        )
    assert (done.returncode, done.stderr) == (GUEST_UNREACHABLE, "guest 127.0.0.1 has gone\n")
