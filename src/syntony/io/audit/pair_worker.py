"""One end of a bandwidth test between two hosts: TCP, or perftest's ib_write_bw.

    python pair_worker.py serve|send '{"address": ..., "secret": ..., "port": ..., ...}'

Needs the standard library only and nothing newer than Python 3.8, so that it can go to a host over
ssh's standard input. The last line it prints is one JSON object; it ends with status 0 when that
says what went wrong, or 1 if the other end would wait in vain.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hmac
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PIECE = bytes(1 << 20)
CONNECT_S = 10.0
SIOCGIFADDR = 0x8915
KEPT = 6000
"""Characters of a program's output that are sent back."""


def line_gbps(address: str) -> float | None:
    """Rate of the interface with this address; None if it is virtual or unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        for _, name in socket.if_nameindex():
            try:
                request = struct.pack("256s", name.encode()[:15])
                found = socket.inet_ntoa(fcntl.ioctl(own, SIOCGIFADDR, request)[20:24])
                base = Path("/sys/class/net", name)
                real = (base / "device").exists() or (base / "bonding").exists()
                if found == address and real:
                    speed = int((base / "speed").read_text())
                    return speed / 1000 if speed > 0 else None
            except (OSError, ValueError):
                continue
    return None


class ByteCounter:
    """Bytes received by all streams, and when."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes, self.first, self.last = 0, 0.0, 0.0

    def stream(self, connection: socket.socket) -> None:
        """Counts one stream to its end. The kernel drops the bytes: nothing is copied."""
        view, count, began = bytearray(1 << 20), 0, 0.0
        with connection:
            with contextlib.suppress(OSError):
                while got := connection.recv_into(view, len(view), socket.MSG_TRUNC):
                    began = began or time.monotonic()
                    count += got
            with self.lock:
                self.bytes += count
                self.first = min(self.first or began, began)
                self.last = max(self.last, time.monotonic())


def tcp_serve(reported: dict[str, Any]) -> dict[str, Any]:
    """Receives from anyone who knows the secret, until all streams have ended."""
    secret = reported["secret"].encode()
    counter = ByteCounter()
    threads: list[threading.Thread] = []
    line: float | None = None
    end = time.monotonic() + CONNECT_S + 2 * reported["seconds"]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("0.0.0.0", reported["port"]))  # noqa: S104 - the secret guards it
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return {"why": f"TCP port {reported['port']} is used by another process", "skip": True}
        own.listen(64)
        while len(threads) < reported["streams"] and time.monotonic() < end:
            own.settimeout(max(0.1, end - time.monotonic()))
            try:
                connection, _ = own.accept()
                connection.settimeout(CONNECT_S)
                hello = connection.recv(len(secret), socket.MSG_WAITALL)
            except OSError:
                continue
            if not hmac.compare_digest(hello, secret):
                connection.close()
                continue
            line = line_gbps(connection.getsockname()[0])
            threads.append(threading.Thread(target=counter.stream, args=(connection,), daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join(max(0.1, end - time.monotonic()))
    took = counter.last - counter.first
    if len(threads) < reported["streams"]:
        return {"why": f"{len(threads)} of {reported['streams']} streams arrived"}
    if not counter.bytes or took <= 0:
        return {"why": "streams arrived, data did not"}
    return {"gbps": counter.bytes * 8 / took / 1e9, "line_gbps": line}


def tcp_send(reported: dict[str, Any]) -> dict[str, Any]:
    """Sends for some seconds on several streams."""
    deadline = time.monotonic() + CONNECT_S
    streams: list[socket.socket] = []
    while len(streams) < reported["streams"]:
        try:
            streams.append(
                socket.create_connection((reported["address"], reported["port"]), CONNECT_S)
            )
            streams[-1].sendall(reported["secret"].encode())
        except OSError as error:
            # The other end may not listen yet.
            if time.monotonic() > deadline:
                return {"why": f"{reported['address']} port {reported['port']}: {error}"}
            time.sleep(0.1)
    line = line_gbps(streams[0].getsockname()[0])
    end = time.monotonic() + reported["seconds"]

    def work(stream: socket.socket) -> None:
        with stream, contextlib.suppress(OSError):
            stream.settimeout(CONNECT_S)
            stream.send(PIECE)  # also if this thread starts late
            while time.monotonic() < end:
                stream.send(PIECE)

    threads = [threading.Thread(target=work, args=(stream,), daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * reported["seconds"] + CONNECT_S)
    return {"line_gbps": line}


def near_gpu(device: str) -> str | None:
    """``--use_cuda=N`` or ``--use_rocm=N`` of the GPU that shares most of the NIC's way."""
    nic = os.path.realpath(f"/sys/class/infiniband/{device}/device")
    for option, folder in (("cuda", "/proc/driver/nvidia/gpus"),
                           ("rocm", "/sys/module/amdgpu/drivers/pci:amdgpu")):  # fmt: skip
        names = sorted(path.name for path in Path(folder).glob("*:*:*"))
        paths = [os.path.realpath(f"/sys/bus/pci/devices/{name}") for name in names]
        shared = [os.path.commonpath([nic, path]).count("/") for path in paths]
        if names:
            return f"--use_{option}={shared.index(max(shared))}"
    return None


def port_gbps(device: str) -> float | None:
    """``400 Gb/sec (4X NDR)``"""
    try:
        text = Path(f"/sys/class/infiniband/{device}/ports/1/rate").read_text()
    except OSError:
        return None
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec", text)
    return float(match.group(1)) if match else None


def rdma(role: str, reported: dict[str, Any]) -> dict[str, Any]:
    """`ib_write_bw` on every NIC that is asked for, side by side."""
    program = shutil.which("ib_write_bw")
    if program is None:
        return {"why": "ib_write_bw is not installed (perftest)"}
    found: dict[str, dict[str, Any]] = {}

    def one(number: int, device: str) -> None:
        found[device] = write_bw([str(program)], role, reported, number, device)

    threads = [threading.Thread(target=one, args=each) for each in enumerate(reported["devices"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"devices": found}


def write_bw(
    words: list[str], role: str, reported: dict[str, Any], number: int, device: str
) -> dict[str, Any]:
    """One of them. A client whose server does not listen yet tries again."""
    words = [*words, "-d", device, "-p", str(reported["port"] + number), "-q", str(reported["qps"]),
             "-s", "65536", "-D", str(reported["seconds"]), "-F", "--report_gbits"]  # fmt: skip
    if reported["gid"] >= 0:
        words += ["-x", str(reported["gid"])]
    if reported["gpu"]:
        option = near_gpu(device)
        if option is None:
            return {"why": "no GPU here", "skip": True}
        words.append(option)
    if role == "send":
        words.append(reported["address"])
    environment = dict(os.environ, LC_ALL="C", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    end = time.monotonic() + CONNECT_S + 3 * reported["seconds"]
    while True:
        left = end - time.monotonic()
        status, said = run(words, max(1.0, left), environment)
        early = role == "send" and status != 0 and "ouldn't connect" in said
        if not early or end - time.monotonic() < 2 * reported["seconds"]:
            break
        time.sleep(0.2)
    return {"status": status, "said": said[-KEPT:], "line_gbps": port_gbps(device)}


def run(words: list[str], timeout: float, environment: dict[str, str]) -> Any:
    """(exit status, output and complaints)"""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=environment)  # fmt: skip
    try:
        said = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[0] + f"\nno end after {timeout:.0f} s".encode()
        return 124, said.decode("utf-8", "replace")
    return process.returncode, said.decode("utf-8", "replace")


def main() -> None:
    role, reported = sys.argv[1], json.loads(sys.argv[2])
    try:
        if "devices" in reported:
            result = rdma(role, reported)
        else:
            result = tcp_serve(reported) if role == "serve" else tcp_send(reported)
    except OSError as error:
        result = {"why": str(error)}
    print(json.dumps(result))
    sys.stdout.flush()
    sys.exit(1 if result.get("skip") else 0)


if __name__ == "__main__":
    main()
