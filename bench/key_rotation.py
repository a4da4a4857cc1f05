"""Rotates the probe keys of a live lab again and again: probes lost meanwhile, and the time taken.

python -m bench.key_rotation [--rotations 20] [--hosts 4]
"""

from __future__ import annotations

import argparse
import statistics
import time

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.testing import eventually, live
from syntony.model import S
from syntony.wire.probes import KeysQuery, Matrix, MatrixQuery, RotateKeys

NAME = "bench-keys"
PATIENCE_S = 120.0


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rotations", type=int, default=20)
    parser.add_argument("--hosts", type=int, default=4)
    asked = parser.parse_args()
    with live(NAME, "--hosts", str(asked.hosts), agents=True) as lab:
        target = f"unix:{lab.controller_socket}"

        def cells(window_ns: int) -> Matrix:
            return ask(target, MatrixQuery(window_ns=window_ns))

        def healthy() -> bool:
            try:
                seen = cells(5 * S).cells
            except RemoteError:
                return False
            whole = len(seen) == 4 * asked.hosts * (asked.hosts - 1)
            return whole and not any(cell.lost for cell in seen)

        eventually(healthy, "a fleet without loss", within_s=PATIENCE_S)
        began_ns = time.monotonic_ns()
        taken = []
        for _ in range(asked.rotations):
            first_ns = time.monotonic_ns()
            ask(target, RotateKeys(by="bench", why="bench"))

            def steady() -> bool:
                return ask(target, KeysQuery()).phase == "steady"

            eventually(steady, "everyone has the new key", within_s=PATIENCE_S)
            taken.append((time.monotonic_ns() - first_ns) / S)
        time.sleep(5)
        seen = cells(time.monotonic_ns() - began_ns).cells
    lost, sent = sum(cell.lost for cell in seen), sum(cell.sent for cell in seen)
    print(
        f"{asked.rotations} rotations, {asked.hosts} hosts: {lost} of {sent} probes lost; "
        f"median {statistics.median(taken):.1f} s, longest {max(taken):.1f} s each"
    )


if __name__ == "__main__":
    main()
