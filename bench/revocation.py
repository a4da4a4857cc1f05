"""How soon a revoked certificate is of no use. Exit status 1: later than promised, 60 s.

    python -m bench.revocation                     # 20 revocations, about six minutes
    python -m bench.revocation --rounds 2 --hogs 0

A lab of four hosts, whose agents send what they measure, with busy loops beside them. Again and
again the certificate of one host's agent is revoked. Told is how long until its stream is cut, and
until a request with that certificate is refused, over a connection that was open before and over a
new one. In every second round the controller is killed afterwards: the certificate has to stay
revoked. Then the host gets a new one and must be back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, cast

from bench.control_deaths import patient, progress
from tests.live import LiveLab, eventually, live

from syntony.controller.client import ask
from syntony.io.credentials import load_credentials
from syntony.io.transport import grpc
from syntony.lab.plan import CONTROLLER
from syntony.lab.provision import CONTROLLER_PORT, TLS
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import encode
from syntony.wire.enrol import RenewQuery
from syntony.wire.messages import QUERY, FleetQuery

NAME, HOSTS = "bench-revocation", 4
PROMISED_S, PATIENCE_S, OUT_S = 60.0, 120.0, 5.0
EVERY_S, TIMEOUT_S = 0.05, 2.0
NO_REQUEST = encode(RenewQuery(csr=b"none"))
"""What an agent may ask, and is never given."""


class Round(NamedTuple):
    """Seconds from the order."""

    stream_s: float
    open_s: float
    """Until a request over the connection that was there is refused."""
    new_s: float
    stayed_out: bool
    """Refused for `OUT_S` more and, where it was killed, by the next controller."""
    killed: bool
    back_s: float
    """From the new certificate to the new stream."""


def request_on_and_on(target: str, ca: str, cert: str, key: str) -> None:
    """Inside a host: a line of JSON for each answer, [CLOCK_MONOTONIC ns, over what, refused]."""
    own = load_credentials(TlsFiles(ca=ca, cert=cert, key=key))
    credentials = grpc.ssl_channel_credentials(own.ca, own.key, own.certificate)

    def refused(channel: grpc.Channel) -> bool | None:
        method = channel.unary_stream(QUERY, _registered_method=False)
        try:
            answer = b"".join(method(NO_REQUEST, timeout=TIMEOUT_S))
        except grpc.RpcError:
            return None  # nobody there: no answer either way
        return b"has been revoked" in answer

    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.secure_channel(target, credentials, options=options) as kept:
        while True:
            with grpc.secure_channel(target, credentials, options=options) as fresh:
                for name, channel in (("open", kept), ("new", fresh)):
                    verdict = refused(channel)
                    if verdict is not None:
                        print(json.dumps([time.monotonic_ns(), name, verdict]), flush=True)
            time.sleep(EVERY_S)


class Requests:
    """What came of requests with one certificate."""

    def __init__(self, stream: IO[str]) -> None:
        self._answers: list[tuple[int, str, bool]] = []
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._answers.append(tuple(json.loads(line)))

    def first(self, *, refused: bool, since_ns: int = 0) -> dict[str, int]:
        """When such an answer first came, over each of the two connections."""
        found: dict[str, int] = {}
        for at, name, no in list(self._answers):
            if no == refused and at >= since_ns:
                found.setdefault(name, at)
        return found


@contextlib.contextmanager
def requests(lab: LiveLab, host: str) -> Iterator[Requests]:
    """From the host, with a copy of the certificate that its agent has now."""
    target = f"{lab.addresses(4)[f'{CONTROLLER}/mgmt0']}:{CONTROLLER_PORT}"
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        names = ("ca.crt", f"{host}.crt", f"{host}.key")
        files = [shutil.copy(lab.directory / TLS / name, directory) for name in names]
        command = [sys.executable, "-m", "bench.revocation", "--request", target, *files]
        with subprocess.Popen(
            lab.enter_argv(host, command), stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            try:
                yield Requests(cast("IO[str]", running.stdout))
            finally:
                os.killpg(running.pid, signal.SIGKILL)


def connected(lab: LiveLab, host: str) -> bool:
    agents = ask(f"unix:{lab.controller_socket}", FleetQuery()).agents
    return any(each.connected for each in agents if each.host == host)


def one(lab: LiveLab, host: str, *, kill: bool) -> Round:
    """One revocation, and a new certificate."""
    with requests(lab, host) as requested:
        wait(lambda: len(requested.first(refused=False)) == 2, "answers")
        fault = lab.inject("cert-revoke", host)
        wait(lambda: not connected(lab, host), "the stream cut")
        cut_ns = time.monotonic_ns()
        wait(lambda: len(requested.first(refused=True)) == 2, "refusals")
        took = requested.first(refused=True)
        refused_ns = max(cut_ns, *took.values())
        if kill:
            lab.inject("controller-kill", "", for_ns=S)
            again_ns = time.monotonic_ns() + S
            wait(
                lambda: len(requested.first(refused=True, since_ns=again_ns)) == 2,
                "refusals by the next controller",
            )
        out, end_s = True, time.monotonic() + OUT_S
        while time.monotonic() < end_s:
            out &= not connected(lab, host)
            time.sleep(EVERY_S)
        out &= not requested.first(refused=False, since_ns=refused_ns)
    lab.clear(fault.id)
    issued_s = time.monotonic()
    wait(lambda: connected(lab, host), "its return")
    stream_s, open_s, new_s = (
        round((at - fault.requested_ns) / S, 2) for at in (cut_ns, took["open"], took["new"])
    )
    return Round(stream_s, open_s, new_s, out, kill, round(time.monotonic() - issued_s, 2))


def wait(true: Callable[[], bool], what: str) -> None:
    eventually(patient(true), what, within_s=PATIENCE_S)


def run(requested: argparse.Namespace) -> list[Round]:
    rng = random.Random(requested.seed)
    hosts = [f"h{number}" for number in range(HOSTS)]
    rounds = []
    with live(NAME, "--hosts", str(HOSTS), agents=True) as lab:
        wait(lambda: all(connected(lab, host) for host in hosts), "all agents")
        if requested.hogs:
            lab.inject("cpu-hog", hosts[0], {"procs": str(requested.hogs)})
        for number in range(requested.rounds):
            rounds.append(one(lab, rng.choice(hosts), kill=number % 2 == 1))
            progress(f"{number + 1}/{requested.rounds} {rounds[-1]}")
    return rounds


def held(each: Round) -> bool:
    return each.stayed_out and max(each.stream_s, each.open_s, each.new_s) <= PROMISED_S


def show(rounds: list[Round]) -> None:
    print("| After the order | Median, s | Longest, s |\n| --- | --- | --- |")
    names = {
        "its stream is cut": [each.stream_s for each in rounds],
        "a request over an open connection is refused": [each.open_s for each in rounds],
        "a request over a new connection is refused": [each.new_s for each in rounds],
        "(after a new certificate) its stream is back": [each.back_s for each in rounds],
    }
    for name, values in names.items():
        print(f"| {name} | {statistics.median(values):.2f} | {max(values):.2f} |")
    killed = sum(each.killed for each in rounds)
    print(
        f"\n{len(rounds)} revocations, in {killed} the controller was killed afterwards; ", end=""
    )
    print(f"promised within {PROMISED_S:g} s, held in {sum(map(held, rounds))}")


def main() -> int:
    if sys.argv[1:2] == ["--request"]:
        request_on_and_on(*sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hogs", type=int, default=2, help="busy loops beside the agents")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    if requested.rounds < 1:
        parser.error("--rounds: at least 1")
    progress(f"seed {requested.seed}")
    rounds = run(requested)
    if requested.json:
        print(json.dumps([each._asdict() for each in rounds], indent=1))
    else:
        show(rounds)
    return 0 if all(map(held, rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
