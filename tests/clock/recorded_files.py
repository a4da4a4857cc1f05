"""A recorded file for `test_recorded`: results for each window's clocks and paths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from bench.simulated.clocks import ClockKind, SimulatedClocks
from tests.clock.test_offline import only, recorded

from syntony.clock.cross import CrossStamps
from syntony.clock.offline import EdgeResult, NodeResult, solve_probes
from syntony.clock.probe_file import check_probes
from syntony.io.window_fit import fit_window
from syntony.model import S


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def beyond(offset_ns: float | None) -> float | None:
    """Beyond whole seconds, which would hide the rest."""
    return None if offset_ns is None else math.remainder(offset_ns, S)


def node(said: NodeResult) -> str:
    return (
        f"{said.node} off={number(beyond(said.offset_ns))} rate={number(said.drift_ppb)}"
        f" sigma={number(said.sigma_ns)} bound={number(said.bound_ns)} part={said.component}"
        f" {said.state} {said.reason}"
    )


def edge(said: EdgeResult) -> str:
    return (
        f"{said.a} to {said.b} over {said.path} probes={said.probes}"
        f" off={number(said.residual_ns)} sigma={number(said.sigma_ns)}"
        f" rtt={number(said.rtt_floor_ns)} {said.mode} {said.rejected}"
    )


def solved() -> Iterator[str]:
    """Clocks minutes apart in a chain, two of them apart from it. One is silent for a window, one
    steps in the last but one, and one pair has two paths."""
    clocks = SimulatedClocks(6, seed=3, kind=ClockKind(max_offset_ns=3e3))
    columns = recorded((0, 1), (0, 2), (1, 3), (4, 5), clocks=clocks)
    columns["path"] = (columns["pair"] % 2) * 7 * np.isin(columns["src"], ["h4", "h5"])
    part = (columns["t_tx_ns"] - columns["t_tx_ns"].min()) / (2 * S)
    silent = ((columns["src"] == "h2") | (columns["dst"] == "h2")) & (part > 0.97) & (part < 2.03)
    for end, stamp in (("src", "t_tx_ns"), ("dst", "t_rx_ns")):
        columns[stamp] = columns[stamp] + ((columns[end] == "h3") & (part > 2.5)) * 400_000
    for name, clock in ((f"h{n}", n) for n in range(6)):
        apart_ns = (clock % 4) * 100 * S
        columns["t_tx_ns"] = columns["t_tx_ns"] + (columns["src"] == name) * apart_ns
        columns["t_rx_ns"] = columns["t_rx_ns"] + (columns["dst"] == name) * apart_ns
    for reference in (None, "h1"):
        probes = check_probes(only(columns, ~silent))
        for result in solve_probes(probes, reference=reference, fit=fit_window):
            yield f"probes={result.probes} repeated={probes.duplicates}"
            yield from map(node, result.nodes)
            yield from map(edge, result.edges)


def crossed() -> Iterator[str]:
    """Readings of a host's clock and its NIC's, some of them vague, and what is forgotten."""
    rng = np.random.default_rng(13)
    stamps = CrossStamps("h0", "h0/nic")
    for at in range(12):
        host_ns = 10**18 + at * S + int(rng.integers(0, S // 10))
        noise_ns = int(rng.integers(-20, 20))
        stamps.add(host_ns, host_ns + 7_000 + at * 300 + noise_ns, int(rng.choice([0, 15, 400])))
        if at == 8:
            stamps.forget()
        found = stamps.edge()
        yield (
            "none"
            if found is None
            else (
                f"{found.a} to {found.b} ago={(host_ns - found.ref_ns) / 1e6:.6g}"
                f" off={found.theta_ns:.6g} rate={found.drift_ppb:.6g} sigma={found.sigma_ns:.6g}"
                f" turn={found.drift_sigma_ppb:.6g} rtt={found.rtt_floor_ns:.6g} n={found.probes}"
            )
        )


CASES: dict[str, Callable[[], Iterator[str]]] = {"file solved": solved, "file crossed": crossed}
