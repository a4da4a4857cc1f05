"""How fast processes send by queue pairs: what a random history truly sent in each window."""

from __future__ import annotations

import random
from typing import Any

import pytest

from syntony.agent.steering import orders
from syntony.model import MS, S
from syntony.traffic.meter import WINDOW_NS
from syntony.traffic.process_flows import Mechanism, ProcessFlow
from syntony.traffic.process_rates import MAX_BPS, ProcessRates, SentBy
from syntony.wire.coding import encode
from syntony.wire.messages import decode_agent
from syntony.wire.traffic import FlowsReport

NICS = {"10.0.0.1": "rail0", "10.1.0.1": "rail1"}


def flow(number: int, local: str, remote: str, done: int, **changed: object) -> ProcessFlow:
    fields: dict[str, Any] = {"mechanism": Mechanism.RDMA, "failed": False} | changed
    return ProcessFlow(
        number=number, nic="mlx5_0", local=local, local_port=0, remote=remote, remote_port=0,
        bytes_done=done, bytes_outstanding=0, last_done_ns=0, outstanding=0, errors=0, last_error=0,
        **fields,
    )  # fmt: skip


@pytest.mark.parametrize("trial", range(20))
def test_rates_are_what_was_sent_in_whole_windows(trial: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"trial {trial}, seed {seed}")
    rng = random.Random(seed)
    rates, now_ns = ProcessRates(), 5 * S
    paths = [
        (pid, local, "10.9.0.1") for pid in range(7, 7 + rng.randrange(1, 4)) for local in NICS
    ]
    pairs = {path: dict.fromkeys(rng.sample(range(500), 3), 1 << 33) for path in paths}
    sent = dict.fromkeys(paths, 0)
    window = dict.fromkeys(paths, (now_ns, 0, 0))
    """Since when, what had been sent by then, and how many there were before."""
    for _ in range(40):
        rates.take(
            [SentBy("night", path[0], reported(path, pairs[path])) for path in paths], now_ns
        )
        for each in rates.flows(NICS):
            path = (each.process, each.flow.local, each.flow.remote)
            since_ns, before, count = window[path]
            assert (each.nic, each.movable, each.traced) == (NICS[path[1]], False, False)
            assert (each.windows > count) == (now_ns - since_ns >= WINDOW_NS)
            if each.windows > count:
                assert each.tx_bps == (sent[path] - before) * 8 * S // (now_ns - since_ns)
                window[path] = (now_ns, sent[path], each.windows)
        for path in paths:
            if rng.random() < 0.1:  # others take over, with whatever they had done before
                pairs[path] = {rng.randrange(500, 1000): rng.randrange(1 << 40), **pairs[path]}
                pairs[path].popitem()
                continue
            for number in pairs[path]:
                more = rng.randrange(1 << 24)
                pairs[path][number] += more
                sent[path] += more
        now_ns += rng.randrange(50 * MS, 700 * MS)


def reported(path: tuple[int, str, str], pairs: dict[int, int]) -> tuple[ProcessFlow, ...]:
    return tuple(flow(number, path[1], path[2], done) for number, done in pairs.items())


def test_what_is_no_queue_pair_of_ours_is_left_out() -> None:
    rates = ProcessRates()
    for second in range(3):
        flows = (
            flow(1, "10.0.0.1", "10.0.0.2", second * 1000, mechanism=Mechanism.TCP),
            flow(2, "10.7.0.1", "10.0.0.2", second * 1000),
            flow(3, "", "", second * 1000),
        )
        rates.take([SentBy("night", 7, flows)], second * S)
    assert rates.flows(NICS) == ()


def test_a_number_that_is_used_again_counts_from_nothing() -> None:
    rates = ProcessRates()
    for second, done in enumerate((10**9, 10**9 + 1000, 500, 1500)):
        rates.take([SentBy("night", 7, (flow(1, "10.0.0.1", "b", done),))], second * S)
    (found,) = rates.flows(NICS)
    assert (found.tx_bps, found.windows) == (8000, 3)


@pytest.mark.parametrize(
    ("pairs", "left"),
    [
        ([(1, True), (1, True)], True),
        ([(1, False), (1, True)], False),
        ([(1, True), (1, False)], False),
        ([(1, True), (0, False)], True),  # what only receives is its peer's
        ([(0, True)], False),
    ],
)
def test_a_rail_is_left_when_nothing_that_sent_by_it_works(
    pairs: list[tuple[int, bool]], left: bool
) -> None:
    rates = ProcessRates()
    flows = [
        flow(number, "10.0.0.1", "10.9.0.1", done, failed=failed)
        for number, (done, failed) in enumerate(pairs)
    ]
    rates.take([SentBy("night", 7, tuple(flows))], 5 * S)
    (found,) = rates.flows(NICS)
    assert found.left is left


@pytest.mark.parametrize("pairs", [1, 64])
def test_what_no_host_can_send_is_no_rate(pairs: int) -> None:
    """A process may write any 64 bits; its rate went into a report that could not be encoded, and
    the agent's connection broke off with every attempt to send it."""
    rates = ProcessRates()
    for at_ns, done in ((0, 0), (WINDOW_NS, (1 << 64) - 1), (2 * WINDOW_NS, (1 << 64) - 1)):
        flows = tuple(flow(number, "10.0.0.1", "10.9.0.1", done) for number in range(pairs))
        rates.take([SentBy("night", 7, flows)], at_ns)
        (found,) = rates.flows(NICS)
        assert 0 <= found.tx_bps <= MAX_BPS
        view = orders._view(found, lambda *_: (), (False, 0))
        report = FlowsReport(at_ns=0, flows=(view,), outcomes=(), delays=(), join_port=0)
        assert decode_agent(encode(report)) == report
