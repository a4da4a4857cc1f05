"""The built-in job over an NCCL transport: the plug-in, over the fake provider of verbs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nccl import provider

from syntony.errors import MissingError
from syntony.io.nccl_plugin import net_plugin
from syntony.lab.jobs.nccl_mesh import IN_FLIGHT, Transfer, Transport

RANKS, ELEMENTS, STEPS = 3, 5_001, 8
ALL_REDUCE = f"""
    buffer = data.contribution(number, step).copy()
    collectives.ring_all_reduce(mesh.exchange, buffer, number, {RANKS})
    return content.count_wrong(buffer, data.sum(step))
"""
GATHER = f"""
    out, vote = data.contribution(number, step), np.array([step], dtype=np.uint32)
    into = [np.empty_like(out) for _ in range({RANKS})]
    collectives.gather(mesh.exchange, out, into, vote, number, senders={RANKS} - 1)
    checked = range(1, {RANKS}) if number == 0 else ()
    wrong = sum(content.count_wrong(into[src], data.contribution(src, step)) for src in checked)
    return wrong + (vote[0] != step)
"""
SCRIPT = f"""
import itertools, socket, threading
import numpy as np
from syntony.lab.jobs import collectives, content
from syntony.lab.jobs.mesh import RankMesh
from syntony.lab.jobs.nccl_mesh import NcclMesh, Transport

peers = {{rank: {{}} for rank in range({RANKS})}}
for one, other in itertools.combinations(peers, 2):
    peers[one][other], peers[other][one] = socket.socketpair()
data = content.Content({RANKS}, {ELEMENTS})
transport = Transport("syntony")
wrong = []

def turn(mesh, number, step):
TURN

def rank(number):
    sockets = RankMesh(number, peers[number])
    with NcclMesh(sockets, transport, {RANKS}, 4 * {ELEMENTS}, MESSAGE) as mesh:
        for step in range({STEPS}):
            wrong.append(int(turn(mesh, number, step)))

threads = [threading.Thread(target=rank, args=(number,)) for number in peers]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(wrong), sum(wrong))
"""


@pytest.fixture
def environment() -> dict[str, str]:
    try:
        directory = net_plugin().parent
    except MissingError as error:
        pytest.skip(f"{error}: its jobs are NOT tested in a lab")
    return os.environ | {
        "LD_LIBRARY_PATH": str(directory),
        "SYNTONY_NCCL_IBVERBS": str(provider.built()),
        "SYNTONY_NCCL_SOCKET_IFNAME": "=lo",
    }


@pytest.mark.parametrize(("turn", "message"), [(ALL_REDUCE, 0), (GATHER, 0), (GATHER, 1_024)])
def test_ranks_have_what_was_sent_over_a_transport(
    environment: dict[str, str], turn: str, message: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("TURN", turn).replace("MESSAGE", str(message))],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == [f"{RANKS * STEPS} 0"], done.stdout + done.stderr


@given(st.integers(0, 50), st.integers(1, 20), st.randoms(use_true_random=False))
def test_a_few_messages_at_a_time_are_under_way(size: int, message: int, draw: Random) -> None:
    sent: list[tuple[int, int]] = []
    done: list[int] = []

    def post(at: int, length: int) -> ctypes.c_void_p:
        if draw.random() < 0.3:
            return ctypes.c_void_p()  # to be called again
        sent.append((at, length))
        return ctypes.c_void_p(len(sent))

    def is_complete(request: ctypes.c_void_p) -> bool:
        complete = draw.random() < 0.3
        if complete:
            done.append(request.value or 0)
        return complete

    transfer = Transfer(post, is_complete, size, message)
    while not transfer.is_done:
        before = len(done)
        assert transfer.advance() is (len(done) > before)
        assert len(sent) - len(done) <= IN_FLIGHT
    assert [at for at, _ in sent] == list(range(0, size, message)), "in order, once"
    assert sum(length for _, length in sent) == size
    assert all(0 < length <= message for _, length in sent)
    assert done == list(range(1, len(sent) + 1))


def test_a_transport_without_ports_says_why(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from syntony.lab.jobs.nccl_mesh import *; Transport(PLUGIN)"],
        env=environment | {"SYNTONY_NCCL_RAILS": "mlx5_9"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode
    assert "mlx5_9" in done.stdout + done.stderr
    assert "MissingError" in done.stderr


@pytest.mark.parametrize("name", ["absent", "/nowhere/libnccl.so.2@0x10", "libc.so.6@0x10"])
def test_what_is_no_transport_is_missing(name: str) -> None:
    with pytest.raises(MissingError, match=name.partition("@")[0]):
        Transport(name)
