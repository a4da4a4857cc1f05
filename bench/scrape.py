"""What `/metrics` costs an agent: one page of a host with 8 RoCE NICs, and memory by who asks.

    python -m bench.scrape [--quick]

Prints a page's size and series, the median time to make it, and resident memory of a process that
has loaded what an agent has: before anybody scraped, after a scrape on loopback, after one over
mutual TLS.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from syntony.agent.links import Optics, PortTotals
from syntony.agent.metrics import new_sheet, put_links, put_nics
from syntony.links.counters import EVERY
from syntony.links.ports import LinkRate, PortState
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot
from syntony.mesh.totals import BOUNDS_NS, Totals
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render
from syntony.model import S

NICS = 8
_AGENT = """
import json, sys
import syntony.agent.daemon
from syntony.io.process import own_usage
from syntony.io.scrape import ScrapeServer, ServerTls
from syntony.model.tls_files import TlsFiles
names = dict(zip(("ca", "cert", "key"), sys.argv[1:], strict=False))
tls = ServerTls(TlsFiles(**names)) if names else None
before = own_usage().rss_bytes
server = ScrapeServer("127.0.0.1:0", lambda _: ("text/plain", "x 1\\n"), tls)
print(json.dumps([server.port, before]), flush=True)
for _ in sys.stdin:
    print(own_usage().rss_bytes, flush=True)
"""


def sheet() -> Sheet:
    """A page as a host with `NICS` RoCE NICs has it, every counter of the table on each."""
    page = new_sheet("gpu0001")
    delays = tuple(1000 + place for place in range(len(BOUNDS_NS) + 1))
    totals = Totals(10**6, 10, 0, 0, delays, 10**10)
    put_nics(page, [(f"gpu0001/eth{n}", way, totals) for n in range(NICS) for way in ("out", "in")])
    counters = {key: 123_456 + place for place, key in enumerate(EVERY)}
    put_links(page, [_port(f"eth{number}", counters) for number in range(NICS)])
    return page


def _port(name: str, counters: dict[str, int]) -> PortTotals:
    snapshot = PortSnapshot(
        name, name, "mlx5_0:1", "Ethernet", "mlx5_core", LinkRole.COMPUTE, PortState.ACTIVE,
        LinkRate(400.0, 4, "NDR"), "1", {},
    )  # fmt: skip
    return PortTotals(snapshot, 0, counters, 0, Optics(51.0, -1.2, 7.5))


def page_cost(repeats: int) -> None:
    """Series, bytes and time of one page."""
    spent = []
    for _ in range(repeats):
        began_ns = time.perf_counter_ns()
        _, text = render(sheet(), "application/openmetrics-text")
        spent.append(time.perf_counter_ns() - began_ns)
    series = sum(not line.startswith("#") for line in text.splitlines())
    median_ms = statistics.median(spent) / 1e6
    print(f"page of {NICS} NICs: {series} series, {len(text) / 1e3:.0f} kB, {median_ms:.2f} ms")
    print(f"scraped every 15 s: {100 * median_ms / 15_000:.3f} % of a core")


def memory(tls: tuple[str, str, str] | None) -> tuple[int, int]:
    """Resident bytes of an agent's imports before and after one scrape."""
    with subprocess.Popen(
        [sys.executable, "-c", _AGENT, *(tls or ())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        port, before = json.loads(process.stdout.readline())
        _scrape(port, tls)
        process.stdin.write("\n")
        process.stdin.flush()
        after = int(process.stdout.readline())
        process.stdin.close()
    return before, after


def _scrape(port: int, tls: tuple[str, str, str] | None) -> None:
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    else:
        context = ssl.create_default_context(cafile=tls[0])
        context.load_cert_chain(*tls[1:])
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    connection.request("GET", "/metrics")
    status = connection.getresponse().status
    if status != 200:
        raise RuntimeError(f"the page was answered with {status}")
    connection.close()


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    page_cost(20 if quick else 200)
    from syntony.controller.pki import create_authority
    from syntony.wire.roles import Role

    with tempfile.TemporaryDirectory() as place:
        paths = create_authority(Path(place)).issue(
            "h0",
            Role.AGENT,
            addresses=["127.0.0.1"],
            lifetime_ns=3600 * S,
            directory=Path(place) / "tls",
        )
        before, plain = memory(None)
        _, secured = memory((paths.ca, paths.cert, paths.key))
    for what, size in (
        ("an agent's imports", before), ("… after a scrape on loopback", plain),
        ("… after a scrape over TLS", secured),
    ):  # fmt: skip
        print(f"{what:32} {size / 1e6:6.1f} MB  {(size - before) / 1e6:+.1f}")


if __name__ == "__main__":
    main()
