"""Traffic: what may be asked for, in files and by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.errors import InputError, UsageError
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.matrix_file import format_matrix, parse_matrix
from syntony.sim.fluid.presets import KINDS, parse_preset, preset_traffic
from syntony.sim.fluid.traffic import SimulatedTraffic, check_traffic

GOOD = """Nodes 4
Connections 3
Triggers 2
# a comment
0->1 id 1 start 0 size 2000000 send_done_trigger 1
1->2 id 2 trigger 1 size 2000000 recv_done_trigger 2 prio 3
2->3 id 3 trigger 2 size 5
trigger id 1 oneshot
trigger id 2 count 1 barrier
"""


def checked(text: str, nics: int = 4) -> SimulatedTraffic:
    return check_traffic(parse_matrix(text), nics)


def test_a_file_is_read() -> None:
    traffic = checked(GOOD)
    assert traffic.src.tolist() == [0, 1, 2]
    assert traffic.waits.tolist() == [-1, 1, 2]
    assert traffic.fires.tolist() == [1, -1, -1]
    assert traffic.fires_received.tolist() == [-1, 2, -1]
    assert traffic.job.tolist() == [0, 0, 0]
    assert traffic.first_wave.tolist() == [0]


def test_starts_are_picoseconds() -> None:
    text = "0->1 id 1 start 5000000 size 1\n2->3 id 2 start 0 size 1\n"
    traffic = checked(text)
    assert traffic.start_ns.tolist() == [5000.0, 0.0]
    assert traffic.first_wave.tolist() == [1]
    assert traffic.job.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("2->3", "2->9", "unknown-host"),
        ("Nodes 4", "Nodes 40", ""),
        ("2->3", "2->2", "to-itself"),
        ("size 5", "size 0", "bad-size"),
        ("size 5", "", "bad-line: line 7: no size"),
        ("size 5", "size", "bad-line: line 7: size of what"),
        ("size 5", "size five", "bad-line: line 7: size is 'five'"),
        ("size 5", "size -5", "bad-line"),
        ("size 5", "size nan", "bad-line"),
        ("start 0", "trigger 2", "trigger-cycle: flow 1 never starts"),
        ("start 0", "", "bad-line: line 5: needs either start or trigger"),
        ("start 0", "start 0 trigger 1", "bad-line: line 5: needs either"),
        ("trigger id 2 count 1 barrier", "trigger id 2 count 2 barrier", "trigger-cycle: flow 3"),
        ("trigger id 2 count 1 barrier", "trigger id 2 count 0 barrier", "bad-line"),
        ("trigger id 2 count 1 barrier", "trigger id 3 oneshot", "unknown-trigger: trigger 2"),
        ("send_done_trigger", "recv_done_trigger", ""),
        ("recv_done_trigger 2", "recv_done_trigger 5", "unknown-trigger: trigger 5"),
        ("trigger id 2 count 1 barrier", "trigger id 2", "bad-line: line 9"),
        ("Connections 3", "Connections 4", "bad-count"),
        ("id 2 ", "id 1 ", "duplicate-id: two flows have the id 1"),
        ("id 3 ", "id 2 ", "duplicate-id: two flows have the id 2"),
        ("prio 3", "colour 3", "bad-line: line 6: 'colour' is not known"),
        ("# a comment", "hello", "bad-line: line 4"),
        ("# a comment", "Failures 1", "failures"),
        (GOOD, "", "empty"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(old: str, new: str, name: str) -> None:
    text = GOOD.replace(old, new, 1)
    if not name:
        assert checked(text).flows == 3
        return
    with pytest.raises(InputError, match=name) as refused:
        checked(text)
    assert "\n" not in str(refused.value)


@settings(max_examples=200)
@given(st.text(alphabet="01 ->idsartzegNoC\n#.", max_size=200) | st.text(max_size=100))
def test_no_text_is_worse_than_refused(text: str) -> None:
    try:
        checked(GOOD + text)
    except InputError as refused:
        assert refused.name  # noqa: PT017 - either is fine


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("random", ["", "-random"])
@pytest.mark.parametrize("queue_pairs", [1, 3])
def test_presets_run_to_their_end_and_survive_a_file(
    kind: str, random: str, queue_pairs: int
) -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=3, spines=2)
    rng = np.random.default_rng(7)
    traffic = preset_traffic(parse_preset(kind + random), net, rng, queue_pairs)
    check_traffic(traffic, net.nics)
    again = checked(format_matrix(traffic, net.nics), net.nics)
    for name in ("src", "dst", "waits", "fires", "start_ns"):
        assert (getattr(again, name) == getattr(traffic, name)).all()
    assert again.triggers == traffic.triggers
    # Two jobs share the fabric, not the NICs.
    sides = [set(traffic.src[traffic.job == job].tolist()) for job in (0, 1)]
    assert not sides[0] & sides[1]


def test_presets_that_do_not_fit() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=1, spines=1)
    with pytest.raises(InputError, match="256 NICs, the topology has 2"):
        preset_traffic(parse_preset("rings-256"), net, np.random.default_rng(1))
    with pytest.raises(InputError, match="two jobs need 4"):
        preset_traffic(parse_preset("rings"), net, np.random.default_rng(1))
    for name in ("ring", "rings-99", "", "rings-256-aligned"):
        with pytest.raises(UsageError, match="preset"):
            parse_preset(name)
