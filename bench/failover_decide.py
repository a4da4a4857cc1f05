"""How long the state machine takes to move many connections off a NIC, without the kernel.

python -m bench.failover_decide [CONNECTIONS …]
"""

from __future__ import annotations

import statistics
import sys
import time

from syntony.model import S
from syntony.model.paths import FourTuple, LinkEvent
from syntony.traffic import events
from syntony.traffic.failover import Failover
from syntony.traffic.instructions import Create, Destroy
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy

ROUNDS = 7


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or [1, 100, 1_000]:
        times = [decide(count) for _ in range(ROUNDS)]
        print(
            f"{count:5} connections: all off a dead NIC decided in "
            f"{statistics.median(times) / 1e6:.2f} ms (median of {ROUNDS}, worst "
            f"{max(times) / 1e6:.2f} ms), {statistics.median(times) / count / 1e3:.1f} µs each"
        )


def decide(count: int) -> int:
    """ns from the carrier event to all instructions."""
    nics = [
        LocalNic(name=f"nic{rail}", rail=rail, addresses=(f"10.{rail}.0.1",)) for rail in (0, 1)
    ]
    machine = Failover(Policy(mode=FailoverMode.ACT, max_actions_per_s=100_000), nics, seed=1)
    for token in range(1, count + 1):
        establish(machine, token)
    event = LinkEvent(at_ns=10 * S, nic="nic0", carrier=False, admin_up=True,
                      addresses=("10.0.0.1",), carrier_down_count=1)  # fmt: skip
    began_ns = time.perf_counter_ns()
    made = machine.handle(event)
    took_ns = time.perf_counter_ns() - began_ns
    if sum(isinstance(each, Destroy) for each in made) != count:
        raise SystemExit("not every connection left the dead NIC")
    return took_ns


def establish(machine: Failover, token: int) -> None:
    """One connection over both rails."""
    peer = token % 250 + 2
    flow = FourTuple("10.0.0.1", 30_000 + token, f"10.0.0.{peer}", 5_000)
    machine.handle(events.ConnectionUp(at_ns=token, token=token, flow=flow, accepted=False))
    machine.handle(events.JobFound(at_ns=token, token=token, job="bench"))
    made = machine.handle(
        events.AddressAnnounced(
            at_ns=token, token=token, remote_id=2, address=f"10.1.0.{peer}", port=8_621
        )
    )
    for each in made:
        if isinstance(each, Create):
            machine.handle(
                events.SubflowUp(
                    at_ns=token, token=token, flow=each.flow, local_id=each.local_id, remote_id=2
                )
            )


if __name__ == "__main__":
    main()
