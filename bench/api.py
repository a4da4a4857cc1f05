"""The HTTP API: a day's history of one pair, and what live viewers cost the controller.

    python -m bench.api [--rows 20_000_000] [--requests 40] [--viewers 50] [--seconds 20]

A controller without agents, its embedded store filled with a day of one-second rows of as many
directions as make `--rows`, which ends now: hours and minutes that are over are summed up, as a
controller does, the last two minutes are not, unless filling takes longer than these (the store
alone is asked as if it had not). Prints what the same questions cost the
store alone, with the rows that it reads for one; then p50 and p95 of `GET /api/v1/series`
of random directions at steps of a minute (from rows by the minute) and of a second (with
`--by-second`), over one kept connection; then the processor time of the controller, and of a
gateway beside it, with a change every second, watched by nobody and by `--viewers` streams
(0: not at all). `--keep FOLDER` keeps the filled store there, and uses one that is there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
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
from typing import TYPE_CHECKING, Any, cast

from tests.api.conftest import ApiController
from tests.api.test_gateway_api import ApiGateway

from syntony.client import Client
from syntony.io.process import read_stat
from syntony.model import MS, S
from syntony.store import open_store
from syntony.wire.failover import SwitchCommand
from syntony.wire.rest import EVENTS, PREFIX

if TYPE_CHECKING:
    from syntony.store.embedded import EmbeddedEngine

DAY_S = 86_400
SLICE_S = 3600


def fill(place: str, pairs: int) -> None:
    """A day of one row a second of each direction, an hour at a time, as hosts would send it."""
    store = open_store(place)
    since_s = int(dt.datetime.now(tz=dt.UTC).timestamp()) - DAY_S
    engine = store._engine
    for first in range(0, DAY_S, SLICE_S):
        engine.execute(
            "INSERT INTO probe_1s (host, stream, seq, ts_ns, src, dst, prober, sport, "  # noqa: S608
            "flow_label, "
            "dscp, sent, lost, unresolved, stalled, count, owd_min_ns, owd_p50_ns, owd_p90_ns, "
            "owd_p99_ns, owd_max_ns, clk_err_ns) SELECT concat('h', toString(pair)) AS host, 's', "
            f"second, ({since_s} + second) * {S} AS ts_ns, concat(host, '/rail0') AS src, "
            "concat('h', toString(pair + 1), '/rail0'), src, 61000, 0, 0, 4, 0, 0, 0, 4, "
            "5000 + rand() % 500, 6000 + rand() % 500, 7000 + rand() % 500, 8000 + rand() % 500, "
            "9000 + rand() % 500, 50 FROM (SELECT intDiv(number, "
            f"{pairs}) + {first} AS second, number % {pairs} AS pair "
            f"FROM numbers({SLICE_S * pairs}))"
        )
    began_s, now_ns = time.monotonic(), (since_s + DAY_S) * S
    hours, minutes = store.minutes.sum_up(now_ns), store.minutes.sum_up_recent(now_ns)
    took_s = time.monotonic() - began_s
    print(f"{hours} hours and {minutes} minutes summed up by the minute in {took_s:.0f} s")
    store.close()


def alone(place: str, pairs: int, requests: int) -> dict[str, float]:
    """What a day of a direction costs the store, in this process; rows read by one question."""
    store = open_store(place)
    engine = cast("EmbeddedEngine", store._engine)
    session = Counting(engine._own._session)
    engine._own._session = session
    last_ns = store.latest_ns() + S
    store.minutes.read_summed(last_ns)
    session.rows = session.statements = 0
    draw, walls, spent = random.Random(11), list[float](), list[float]()
    for _ in range(requests):
        pair, began_ns, cpu = draw.randrange(pairs), time.perf_counter_ns(), time.process_time_ns()
        ends = (f"h{pair}/rail0", f"h{pair + 1}/rail0")
        if len(store.series(last_ns - DAY_S * S, last_ns, *ends, 60)) < DAY_S // 60:
            raise SystemExit("points are missing")
        walls.append((time.perf_counter_ns() - began_ns) / MS)
        spent.append((time.process_time_ns() - cpu) / MS)
    store.close()
    return {"p50_ms": statistics.median(walls), "p95_ms": p95(walls), "first_ms": walls[0],
            "cpu_ms": statistics.median(spent), "statements": session.statements / requests,
            "rows_read": session.rows / requests}  # fmt: skip


class Counting:
    """A session of the engine that counts rows as they are read."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.rows = self.statements = 0

    def query(self, sql: str, form: str) -> Any:
        result = self._session.query(sql, form)
        self.rows += result.storage_rows_read()
        self.statements += 1
        return result

    def close(self) -> None:
        self._session.close()


def p95(took: list[float]) -> float:
    return sorted(took)[min(len(took) - 1, round(0.95 * len(took)))]


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
    return {"points": points, "p50_ms": statistics.median(took), "p95_ms": p95(took),
            "first_ms": took[0], "cpu_ms": cpu_ms}  # fmt: skip


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


def settled(api: ApiController) -> None:
    """Wait until the controller has merged what was filled in, for ten minutes at most."""
    for _ in range(60):
        before_ns = cpu_ns(api)
        time.sleep(10)
        if cpu_ns(api) - before_ns < S:
            break
    print(f"at rest the controller takes {(cpu_ns(api) - before_ns) / (10 * S):.1%} of a core")


def cpu_ns(api: ApiController | ApiGateway) -> int:
    return read_stat(Path(f"/proc/{api.pid}")).cpu_ns


def told(what: str, found: dict[str, float]) -> None:
    load = Path("/proc/loadavg").read_text().split()[0]
    figures = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    print(f"{what}: {figures}; load {load}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--by-second", action="store_true")
    parser.add_argument("--keep", type=Path)
    wish = parser.parse_args()
    pairs = max(1, wish.rows // DAY_S)
    load = Path("/proc/loadavg").read_text().split()[0]
    with tempfile.TemporaryDirectory() as place:
        kept = wish.keep and wish.keep.exists()
        api = ApiController(Path(place), **({"store": str(wish.keep)} if wish.keep else {}))
        began_s = time.monotonic()
        if not kept:
            fill(api.store, pairs)
        print(f"{pairs * DAY_S:,} rows in {time.monotonic() - began_s:.0f} s; load {load}")
        told("the store alone", alone(api.store, pairs, wish.requests))
        gateway: ApiGateway | None = None
        try:
            api.start()
            settled(api)
            for step_s in (60, 1) if wish.by_second else (60,):
                found = history(api, pairs, wish.requests, step_s * S)
                told(f"a day of one direction, step {step_s} s", found)
            if not wish.viewers:
                return
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
