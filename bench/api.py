"""The HTTP API: a day's history of one pair, and what live viewers cost the controller.

    python -m bench.api [--rows 20_000_000] [--requests 40] [--viewers 50] [--seconds 20]

A controller without agents, its embedded store filled with a day of one-second rows of as many
directions as make `--rows`, which ends within an hour: hours and minutes that are over are summed
up, as a controller does, the last two minutes are not. Prints p50 and p95 of `GET /api/v1/series`
of random directions at steps of a minute (from rows by the minute) and of a second (with
`--by-second`), over one kept connection; then the processor time of the controller, and of a
gateway beside it, with a change every second, watched by nobody and by `--viewers` streams.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import selectors
import signal
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

from tests.api.conftest import ApiController
from tests.api.test_gateway_api import ApiGateway

from syntony.client import Client
from syntony.io.process import read_stat
from syntony.model import MS, S
from syntony.store import open_store
from syntony.wire.failover import SwitchCommand
from syntony.wire.rest import EVENTS, PREFIX

DAY_S = 86_400
T0 = 1_700_000_000 // DAY_S * DAY_S + 2400
"""Not at an hour's beginning: the day ends in one that is under way."""
SLICE_S = 3600


def fill(place: str, pairs: int) -> None:
    """A day of one row a second of each direction, an hour at a time, as hosts would send it."""
    store = open_store(place)
    engine = store._engine
    for first in range(0, DAY_S, SLICE_S):
        engine.execute(
            "INSERT INTO probe_1s (host, stream, seq, ts_ns, src, dst, prober, sport, "  # noqa: S608
            "flow_label, "
            "dscp, sent, lost, unresolved, stalled, count, owd_min_ns, owd_p50_ns, owd_p90_ns, "
            "owd_p99_ns, owd_max_ns, clk_err_ns) SELECT concat('h', toString(pair)) AS host, 's', "
            f"second, ({T0} + second) * {S} AS ts_ns, concat(host, '/rail0') AS src, "
            "concat('h', toString(pair + 1), '/rail0'), src, 61000, 0, 0, 4, 0, 0, 0, 4, "
            "5000 + rand() % 500, 6000 + rand() % 500, 7000 + rand() % 500, 8000 + rand() % 500, "
            "9000 + rand() % 500, 50 FROM (SELECT intDiv(number, "
            f"{pairs}) + {first} AS second, number % {pairs} AS pair "
            f"FROM numbers({SLICE_S * pairs}))"
        )
    began_s, now_ns = time.monotonic(), (T0 + DAY_S) * S
    hours, minutes = store.minutes.sum_up(now_ns), store.minutes.follow(now_ns)
    took_s = time.monotonic() - began_s
    print(f"{hours} hours and {minutes} minutes summed up by the minute in {took_s:.0f} s")
    store.close()


def history(api: ApiController, pairs: int, requests: int, step_ns: int) -> dict[str, float]:
    """Milliseconds of `requests` questions of a day, one after the other, and the
    controller's processor time for each."""
    took: list[float] = []
    points = 0
    draw = random.Random(7)
    headers = {"Authorization": f"Bearer {api.token()}"}
    connection = http.client.HTTPConnection("127.0.0.1", api.api_port, timeout=120)
    before_ns = cpu_ns(api)
    for _ in range(requests):
        pair = draw.randrange(pairs)
        path = (
            f"{PREFIX}/series?src=h{pair}/rail0&dst=h{pair + 1}/rail0"
            f"&window_ns={DAY_S * S}&step_ns={step_ns}"
        )
        began_ns = time.perf_counter_ns()
        connection.request("GET", path, headers=headers)
        data = connection.getresponse().read()
        took.append((time.perf_counter_ns() - began_ns) / MS)
        points = len(json.loads(data)["points"])
    cpu_ms = (cpu_ns(api) - before_ns) / MS / requests
    took.sort()
    p95 = took[min(len(took) - 1, round(0.95 * len(took)))]
    return {"points": points, "p50_ms": statistics.median(took), "p95_ms": p95,
            "cpu_ms": cpu_ms}  # fmt: skip


def watched(
    api: ApiController, place: ApiController | ApiGateway, viewers: int, seconds: int
) -> tuple[float, int]:
    """Share of a core that a place takes, the controller or a gateway, and events that its viewers
    got."""
    token, got, stop = api.token(), 0, threading.Event()
    time.sleep(2)  # a gateway hears of it
    request = f"GET {EVENTS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        chosen = stack.enter_context(selectors.DefaultSelector())
        for _ in range(viewers):
            stream = socket.create_connection(("127.0.0.1", place.api_port))
            stack.enter_context(stream).sendall(request)
            chosen.register(stream, selectors.EVENT_READ)

        def read() -> None:
            nonlocal got
            while not stop.is_set():
                for key, _ in chosen.select(0.2):
                    got += os.read(key.fd, 1 << 16).count(b"event: switch")

        reader = threading.Thread(target=read)
        if viewers:
            reader.start()
        time.sleep(3)
        before_ns, began_s, got = cpu_ns(place), time.monotonic(), 0
        with Client(api.url, token=api.token("operator", "o")) as client:
            for number in range(seconds):
                client.ask(SwitchCommand(stopped=number % 2 == 0, by="bench"))
                time.sleep(max(0.0, began_s + number + 1 - time.monotonic()))
        share = (cpu_ns(place) - before_ns) / ((time.monotonic() - began_s) * S)
        stop.set()
        if viewers:
            reader.join()
    return share, got


def cpu_ns(api: ApiController | ApiGateway) -> int:
    return read_stat(Path(f"/proc/{api.pid}")).cpu_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--by-second", action="store_true")
    wish = parser.parse_args()
    pairs = max(1, wish.rows // DAY_S)
    load = Path("/proc/loadavg").read_text().split()[0]
    with tempfile.TemporaryDirectory() as place:
        api = ApiController(Path(place))
        began_s = time.monotonic()
        fill(api.store, pairs)
        print(f"{pairs * DAY_S:,} rows in {time.monotonic() - began_s:.0f} s; load {load}")
        gateway: ApiGateway | None = None
        try:
            api.start()
            for step_s in (60, 1) if wish.by_second else (60,):
                found = history(api, pairs, wish.requests, step_s * S)
                print(
                    f"a day of one direction, step {step_s} s: "
                    + ", ".join(f"{name} {value:.1f}" for name, value in found.items())
                )
            gateway = ApiGateway(api, name="gateway")
            gateway.start()
            for name, one in (("controller", api), ("gateway", gateway)):
                for viewers in (0, wish.viewers, 0, wish.viewers):
                    share, got = watched(api, one, viewers, wish.seconds)
                    print(f"{name}, {viewers} viewers: {share:.1%} of a core, {got} events read")
            print(f"load {Path('/proc/loadavg').read_text().split()[0]}")
        finally:
            if gateway is not None:
                gateway.end(signal.SIGTERM)
            api.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
