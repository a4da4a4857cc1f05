import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.simulated import stamps
from bench.simulated.clocks import EPOCH_NS, ClockKind, SimulatedClocks
from bench.simulated.fleet import QUIET, Way, probe_pairs
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import parquet

from syntony.cli.clock_solve import solve
from syntony.clock import offline
from syntony.clock.offline import WindowResult
from syntony.clock.probe_file import REQUIRED, check_probes
from syntony.errors import InputError, SyntonyError, UsageError
from syntony.io.window_fit import fit_window
from syntony.model import MS, ClockState, S

Columns = dict[str, NDArray[Any]]
LENGTH_NS = 8 * S
solve_probes = partial(offline.solve_probes, fit=fit_window)
"""As the command line does it."""


def recorded(
    *links: tuple[int, int],
    seed: int = 1,
    clocks: SimulatedClocks | None = None,
    ways: tuple[Way, Way] = (QUIET, QUIET),
) -> Columns:
    """A file of coded probes between some clocks, h0…, in the order they were sent."""
    clocks = clocks or SimulatedClocks(4, seed=seed)
    parts: dict[str, list[Any]] = {name: [] for name in (*REQUIRED, "pair")}
    for a, b in links or ((0, 1), (1, 2), (2, 3), (3, 0)):
        span = (EPOCH_NS, EPOCH_NS + LENGTH_NS)
        samples = probe_pairs(clocks, (a, b), span, 400, ways, stamps.hardware)
        for src, dst, tx_ns, rx_ns, pair in (
            (a, b, samples.fwd_tx, samples.fwd_rx, samples.fwd_pair),
            (b, a, samples.rev_tx, samples.rev_rx, samples.rev_pair),
        ):
            order = np.argsort(tx_ns)
            parts["src"].append(np.full(len(order), f"h{src}"))
            parts["dst"].append(np.full(len(order), f"h{dst}"))
            parts["t_tx_ns"].append(tx_ns[order])
            parts["t_rx_ns"].append(rx_ns[order])
            parts["pair"].append(np.asarray(pair)[order])
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def only(columns: Columns, mask: NDArray[np.bool_]) -> Columns:
    return {name: values[mask] for name, values in columns.items()}


def last(columns: Columns, reference: str | None = "h0") -> WindowResult:
    return solve_probes(check_probes(columns), reference=reference)[-1]


@pytest.mark.parametrize("seed", range(4))
def test_offsets_against_a_reference_are_right_and_bounded(seed: int) -> None:
    clocks = SimulatedClocks(4, seed=seed)
    result = last(recorded(clocks=clocks))
    assert result.nodes[0].offset_ns == 0
    true_ns = result.ref_ns - clocks.offset_ns[0]
    true_ns -= clocks.drift_ppb[0] * 1e-9 * (true_ns - EPOCH_NS)
    instant = np.array([round(true_ns)], dtype=np.int64)
    at_reference = int(clocks.read(0, instant)[0])
    for clock, node in enumerate(result.nodes):
        assert node.state is ClockState.SYNCHRONIZED
        local_ns = int(clocks.read(clock, instant)[0])
        assert node.offset_ns is not None
        assert node.drift_ppb is not None
        assert node.bound_ns is not None
        moved_ns = node.offset_ns + node.drift_ppb * 1e-9 * (local_ns - result.ref_ns)
        error_ns = local_ns - at_reference + moved_ns
        assert abs(error_ns) < 10
        assert abs(error_ns) <= node.bound_ns + 1


def test_a_series_has_one_result_per_window() -> None:
    results = solve_probes(check_probes(recorded()), window_ns=2 * S)
    assert len(results) == 4
    assert sum(result.probes for result in results) == 4 * 2 * 800
    assert {edge.mode for edge in results[-1].edges} == {"both"}
    assert [edge.rejected for edge in results[-1].edges] == [""] * 4


def test_a_clock_that_misses_a_window_keeps_its_edges() -> None:
    """Nothing was measured: that is no edge gone wrong."""
    columns = recorded((0, 1), (1, 2))
    since_ns = columns["t_tx_ns"].copy()
    for node in ("h0", "h1", "h2"):  # whose clocks differ by up to 100 ms
        since_ns[columns["src"] == node] -= columns["t_tx_ns"][columns["src"] == node].min()
    h0 = (columns["src"] == "h0") | (columns["dst"] == "h0")
    asleep = h0 & (since_ns >= 4 * S - 20 * MS) & (since_ns < 6 * S + 20 * MS)
    results = solve_probes(check_probes(only(columns, ~asleep)), window_ns=2 * S)
    assert [len(result.edges) for result in results] == [2, 2, 1, 2]
    for result in results:
        assert {node.state for node in result.nodes} == {ClockState.SYNCHRONIZED}


def edited(**change: Any) -> Columns:
    columns = recorded((0, 1))
    return columns | {name: make(columns[name]) for name, make in change.items()}


def without(values: NDArray[Any], hole: object) -> NDArray[Any]:
    values = values.astype(object)
    values[7] = hole
    return values


BAD: dict[str, tuple[Columns, str]] = {
    "missing column": (
        {name: values for name, values in recorded((0, 1)).items() if name != "t_rx_ns"},
        "missing-columns",
    ),
    "empty": ({name: np.zeros(0, dtype=np.int64) for name in REQUIRED}, "empty"),
    "null stamp": (edited(t_rx_ns=lambda v: without(v, None)), "missing-stamps"),
    "NaN stamp": (edited(t_rx_ns=lambda v: without(v, float("nan"))), "missing-stamps"),
    "infinite": (edited(t_rx_ns=lambda v: np.full(len(v), np.inf)), "missing-stamps"),
    "float stamps of today": (edited(t_tx_ns=lambda v: v.astype(np.float64)), "not-integers"),
    "text": (edited(t_tx_ns=lambda v: np.full(len(v), "noon", dtype=object)), "not-integers"),
    "fractions": (edited(t_tx_ns=lambda v: v * 1e-9), "not-nanoseconds"),
    "seconds": (edited(t_tx_ns=lambda v: v // S, t_rx_ns=lambda v: v // S), "not-nanoseconds"),
    "microseconds": (
        edited(t_tx_ns=lambda v: v // 1_000, t_rx_ns=lambda v: v // 1_000),
        "not-nanoseconds",
    ),
    "one column in microseconds": (edited(t_rx_ns=lambda v: v // 1_000), "not-nanoseconds"),
    "picoseconds": (edited(t_tx_ns=lambda v: v * 5), "out-of-range"),
    "time backwards": (edited(t_tx_ns=lambda v: v[::-1]), "time-backwards"),
    "truths": (edited(t_tx_ns=lambda v: v > 0), "not-integers"),
    "complex": (edited(t_rx_ns=lambda v: v + 0j), "not-integers"),
    "words": (edited(t_rx_ns=lambda v: v.astype(np.str_)), "not-integers"),
    "one instant": (edited(t_tx_ns=lambda v: np.full(len(v), EPOCH_NS)), "one-instant"),
    "a name in the middle": (edited(dst=lambda v: without(v, "")), "missing-names"),
    "to itself": (edited(dst=lambda v: np.full(len(v), "h0")), "self-probe"),
    "no name": (edited(src=lambda v: without(v, None)), "missing-names"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_have_a_name(case: str) -> None:
    columns, name = BAD[case]
    with pytest.raises(InputError) as caught:
        check_probes(columns)
    assert caught.value.name == name
    assert "\n" not in str(caught.value)


def columns_of(tx_ns: int, rtt_ns: int, rate: float = 1.0) -> Columns:
    """Two dozen probes there and back, at once, of clocks that run at such a ratio."""
    sent = tx_ns + 1_000_000 * np.arange(24)
    come = tx_ns + np.rint((sent - tx_ns) * rate).astype(np.int64) + 40
    names = np.array(["a", "b"])
    return {
        "src": np.repeat(names, 24),
        "dst": np.repeat(names[::-1], 24),
        "t_tx_ns": np.concatenate((sent, come)),
        "t_rx_ns": np.concatenate((come, sent + rtt_ns)),
    }


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        (columns_of(0, 100), columns_of(0, 99), "not-nanoseconds"),
        (columns_of(0, -100), columns_of(0, -99), "not-nanoseconds"),
        (columns_of(0, 9_000, 99.0), columns_of(0, 9_000, 101.0), "not-nanoseconds"),
        (columns_of(0, 9_000, 0.0102), columns_of(0, 9_000, 0.0098), "not-nanoseconds"),
        (columns_of(2**61 - 10**9, 9_000), columns_of(2**61, 9_000), "out-of-range"),
        (columns_of(-(2**61) + 10**9, 9_000), columns_of(-(2**61), 9_000), "out-of-range"),
    ],
    ids=["100 ns", "negative", "fast", "slow", "73 years on", "73 years ago"],
)
def test_what_is_just_possible_is_taken(good: Columns, bad: Columns, name: str) -> None:
    assert len(check_probes(good).tx_ns) == 48
    with pytest.raises(InputError) as caught:
        check_probes(bad)
    assert caught.value.name == name


def test_the_rate_of_a_handful_of_probes_is_not_judged() -> None:
    """The middle of fewer than four rates is one that a single wait can bend."""
    wrong = columns_of(0, 9_000, 101.0)
    few = only(wrong, np.arange(48) % 24 < 7)
    assert len(check_probes(few).tx_ns) == 14
    with pytest.raises(InputError, match="run at"):
        check_probes(only(wrong, np.arange(48) % 24 < 8))


def test_floating_point_stamps_are_taken_while_they_are_exact() -> None:
    for at, good in ((2**53 - 24_000_000, True), (2**53, False)):
        columns = columns_of(at, 9_000)
        floating = columns | {"t_tx_ns": columns["t_tx_ns"].astype(np.float64)}
        if good:
            assert check_probes(floating).tx_ns.tolist() == columns["t_tx_ns"].tolist()
            continue
        with pytest.raises(InputError, match="too large to be exact"):
            check_probes(floating)


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (lambda columns: columns["src"] == "h0", "one direction only"),
        (lambda columns: np.arange(len(columns["src"])) < 1, "one direction only"),
        (lambda columns: np.arange(len(columns["src"])) % 300 == 0, "too few probes"),
    ],
    ids=["one direction", "one probe", "few probes"],
)
def test_what_cannot_be_known_is_unknown(keep: Any, reason: str) -> None:
    columns = recorded((0, 1))
    result = last(only(columns, keep(columns)), reference=None)
    for node in result.nodes:
        assert (node.state, node.offset_ns, node.bound_ns) == (ClockState.UNKNOWN, None, None)
        assert reason in node.reason


def test_duplicates_are_counted_and_change_nothing() -> None:
    columns = recorded((0, 1))
    twice = {name: np.repeat(values, 2) for name, values in columns.items()}
    probes = check_probes(twice)
    assert probes.duplicates == len(columns["src"])
    assert solve_probes(probes) == solve_probes(check_probes(columns))


def test_islands_are_unknown_to_each_other() -> None:
    columns = recorded((0, 1), (2, 3))
    result = last(columns)
    states = [node.state for node in result.nodes]
    assert states == [ClockState.SYNCHRONIZED] * 2 + [ClockState.UNKNOWN] * 2
    assert "not connected to h0" in result.nodes[2].reason
    apart = last(columns, reference=None)
    assert [node.component for node in apart.nodes] == ["h0", "h0", "h2", "h2"]


@pytest.mark.parametrize("at", [0.26, 0.4, 0.5, 0.75])
def test_a_jump_of_a_tenth_of_a_second_is_told_and_absorbed(at: float) -> None:
    columns = recorded((0, 1))
    clocks = SimulatedClocks(4, seed=1)
    at_ns = clocks.read(1, np.array([EPOCH_NS + round(at * LENGTH_NS)]))[0]
    for stamps_name, node_name in (("t_tx_ns", "src"), ("t_rx_ns", "dst")):
        late = (columns[node_name] == "h1") & (columns[stamps_name] >= at_ns)
        columns[stamps_name] = columns[stamps_name] + late * 100_000_000
    before = last(recorded((0, 1))).nodes[1].offset_ns
    results = solve_probes(check_probes(columns), reference="h0")
    now = results[-1].nodes[1]
    assert now.offset_ns == pytest.approx((before or 0) - 1e8, abs=10_000)  # 80 ppm of 0.1 s
    reported = [node.reason for result in results for node in result.nodes]
    reported += [edge.rejected + edge.mode for result in results for edge in result.edges]
    assert any("step" in text for text in reported)


@pytest.mark.parametrize("at", [0.76, 0.97])
def test_a_jump_in_the_last_window_is_no_confident_bound(at: float) -> None:
    """Of the clocks of a ring, the one that jumped is DISRUPTED; the others stay what they were."""
    columns = recorded((0, 1), (1, 2), (2, 0), (0, 3), (2, 3), (1, 3))
    clocks = SimulatedClocks(4, seed=1)
    at_ns = clocks.read(1, np.array([EPOCH_NS + round(at * LENGTH_NS)]))[0]
    for stamps_name, node_name in (("t_tx_ns", "src"), ("t_rx_ns", "dst")):
        late = (columns[node_name] == "h1") & (columns[stamps_name] >= at_ns)
        columns[stamps_name] = columns[stamps_name] + late * 100_000_000
    found = {node.node: node for node in last(columns, reference=None).nodes}
    assert found["h1"].state is ClockState.DISRUPTED
    assert "step" in found["h1"].reason
    for node in ("h0", "h2", "h3"):
        assert found[node].state is ClockState.SYNCHRONIZED


def test_epochs_that_are_years_apart_cost_a_floats_last_digit() -> None:
    columns = recorded((0, 1), (1, 2), (2, 0))
    right = {node.node: node for node in last(columns, "h1").nodes}
    for stamps_name, node_name in (("t_tx_ns", "src"), ("t_rx_ns", "dst")):
        of_node = columns[node_name] == "h0"
        columns[stamps_name] = columns[stamps_name] - np.where(of_node, EPOCH_NS, 0)
    found = {node.node: node for node in last(columns, "h1").nodes}
    for node in ("h0", "h2"):
        reported, truth = found[node], right[node]
        assert reported.offset_ns is not None
        assert truth.offset_ns is not None
        assert reported.bound_ns is not None
        # The reference's instant is reported on every clock: one that counts from 0 is years away.
        assert reported.bound_ns > 128
    moved = (found["h2"].offset_ns or 0) - (right["h2"].offset_ns or 0)
    assert abs(moved) <= (found["h2"].bound_ns or 0)


def test_a_lone_pair_is_not_better_than_half_its_round_trip() -> None:
    columns = recorded((0, 1), ways=(Way(floor_ns=15e3), QUIET))
    clocks = SimulatedClocks(4, seed=1)
    node = last(columns).nodes[1]
    assert node.bound_ns is not None
    assert node.bound_ns > 5_000  # half of the difference of the two ways
    assert clocks.kind == ClockKind()


def test_an_unknown_reference_is_named() -> None:
    with pytest.raises(UsageError, match="no node 'h9'"):
        solve_probes(check_probes(recorded((0, 1))), reference="h9")


VALUES = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.none(), st.text(max_size=3))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "", None]), VALUES, VALUES), max_size=12))
def test_any_table_is_solved_or_refused_by_name(rows: list[tuple[Any, Any, Any]]) -> None:
    columns: Columns = {name: np.empty(len(rows), dtype=object) for name in REQUIRED}
    for place, (src, tx_ns, rx_ns) in enumerate(rows):
        columns["src"][place] = src
        columns["dst"][place] = "z"
        columns["t_tx_ns"][place] = tx_ns
        columns["t_rx_ns"][place] = rx_ns
    try:
        results = solve_probes(check_probes(columns))
    except SyntonyError:
        return
    assert all(node.state is ClockState.UNKNOWN for node in results[-1].nodes)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-(2**60), 2**60), min_size=16, max_size=60), st.integers(0, 2**32))
def test_nonsense_stamps_never_crash(values: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = len(values)
    columns: Columns = {
        "src": np.where(rng.random(count) < 0.5, "a", "b"),
        "t_tx_ns": np.sort(np.array(values, dtype=np.int64)),
        "t_rx_ns": rng.permutation(np.array(values, dtype=np.int64)),
    }
    columns["dst"] = np.where(columns["src"] == "a", "b", "a")
    try:
        solve_probes(check_probes(columns), window_ns=2**58)
    except SyntonyError:
        return


def test_the_command_prints_what_the_library_says(tmp_path: Path) -> None:
    file = tmp_path / "probes.parquet"
    parquet.write_table(pa.table(recorded()), file)
    ran = CliRunner().invoke(solve, [str(file), "--reference", "h0", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert [node["node"] for node in document["nodes"]] == ["h0", "h1", "h2", "h3"]
    assert document["nodes"][1]["offset_ns"] == last(recorded()).nodes[1].offset_ns
    ran = CliRunner().invoke(solve, [str(file), "--series", "--window", "4s", "--json"])
    assert len(json.loads(ran.stdout)["windows"]) == 2
    assert "SYNCHRONIZED" in CliRunner().invoke(solve, [str(file)]).stdout


def test_the_command_warns_of_islands_and_repeats(tmp_path: Path) -> None:
    file = tmp_path / "probes.parquet"
    columns = recorded((0, 1), (2, 3))
    repeated = {name: np.repeat(values, 2) for name, values in columns.items()}
    parquet.write_table(pa.table(repeated), file)
    ran = CliRunner().invoke(solve, [str(file)])
    assert ran.exit_code == 1
    assert "island" in ran.stdout
    assert "2 islands (h0, h2)" in ran.stderr.replace("\n", " ")
    assert f"{len(columns['src']):,} repeated rows" in ran.stderr
    assert CliRunner().invoke(solve, [str(file), "--reference", "h0"]).exit_code == 3


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    file = tmp_path / "probes.parquet"
    file.write_bytes(b"PAR1 but not really")
    ran = CliRunner().invoke(solve, [str(file)])
    assert isinstance(ran.exception, InputError)
    assert ran.exception.name == "not-parquet"


@pytest.mark.parametrize("row", [1, 7, 25, 40])
def test_the_probe_that_goes_backwards_is_told(row: int) -> None:
    columns = columns_of(0, 9_000)
    columns["t_tx_ns"][row] = columns["t_tx_ns"][row - 1] - 1
    with pytest.raises(InputError, match=rf"goes backwards \(probe {row}\)"):
        check_probes(columns)
