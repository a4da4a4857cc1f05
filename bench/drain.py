"""How long a spool takes to drain after an outage of the store: one host, one controller.

The agent's spool and stream and the controller's ingest are real, in virtual time: what is measured
is how long they wait for each other, whatever the machine does. The store takes `--insert-ms` for
each insert and `--batch-us` more for each batch in it. With `--restarted` another process of the
agent spooled the batches: these are all looked up.

    python -m bench.drain --seconds 3600 --rtt-ms 1 50
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.agent_link.draining import Backlog, drain

from syntony.model import MS, US


def main() -> int:
    """Drain one spool for each round trip."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3_600, help="Of backlog.")
    parser.add_argument("--batches", type=int, default=8, help="A second.")
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[1.0, 50.0])
    parser.add_argument("--insert-ms", type=float, default=20.0)
    parser.add_argument("--batch-us", type=float, default=100.0)
    parser.add_argument("--restarted", action="store_true")
    options = parser.parse_args()
    for rtt_ms in options.rtt_ms:
        backlog = Backlog(
            options.seconds * options.batches, round(rtt_ms * MS), round(options.insert_ms * MS),
            round(options.batch_us * US), options.restarted,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="syntony-drain-") as folder:
            done = drain(Path(folder), backlog)
        print(
            f"rtt_ms={rtt_ms:g} batches={backlog.batches} restarted={options.restarted} "
            f"seconds={done.seconds:.1f} batches_per_s={backlog.batches / done.seconds:.0f} "
            f"inserts={done.inserts} looked_up={done.looked_up} in_flight={done.most_in_flight}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
