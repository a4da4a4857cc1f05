"""Reading a fault order: what fits, and one clear line for what does not."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from syntony.errors import UsageError
from syntony.lab.faults import KINDS, parse_order
from syntony.lab.faults.base import OPTIONS, FaultContext, link_packets
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.rates import format_rate, parse_rate_bps
from syntony.model import US

PLAN = make_plan(FabricSpec())

GOOD: list[tuple[str, str, dict[str, str]]] = [
    ("link-down", "h3/rail0", {}),
    ("link-down", "h3/rail0", {"side": "leaf"}),
    ("link-down", "leaf0-1/spine0", {"side": "spine"}),
    ("blackhole", "h3/rail1", {"direction": "to"}),
    ("loss", "leaf1-0/spine1", {"percent": "0.5%"}),
    ("delay", "h0/rail0", {"add": "300us"}),
    ("rate", "h0/mgmt0", {"to": "50mbit"}),
    ("flow-rate", "h0/rail0", {"to": "3mbit", "sport": "40000", "dport": "29600"}),
    ("switch-down", "spine0", {}),
    ("flap", "h0/rail0", {"period": "1s", "count": "3"}),
    ("agent-kill", "h7", {}),
    ("agent-stop", "h7", {}),
    ("reactor-kill", "h7", {}),
    ("reactor-stop", "h7", {}),
    ("telemetry-kill", "h7", {}),
    ("telemetry-stop", "h7", {}),
    ("cpu-hog", "h7", {"procs": "2"}),
    ("mtu", "h3/rail0", {}),
    ("mtu", "h3/rail1", {"bytes": "1280"}),
    ("rail-swap", "h7", {}),
    ("clock-step", "h7", {"by": "10ms"}),
    ("clock-step", "h7", {"by": "-300us"}),
    ("clock-drift", "h7", {"ppm": "-50"}),
    ("cert-revoke", "h7", {}),
    ("cert-rotate", "h7", {}),
    ("controller-kill", "", {}),
    ("controller-pause", "ctl", {}),
    ("gateway-kill", "gateway1", {}),
    ("gateway-pause", "gateway2", {}),
    ("key-rotate", "", {}),
]
BAD: list[tuple[str, str, dict[str, str], str]] = [
    ("blackhol", "h3/rail0", {}, "did you mean 'blackhole'?"),
    ("zzzzzz", "h3/rail0", {}, "kinds: link-down"),
    ("blackhole", "h3", {}, "did you mean 'h3/rail0'?"),
    ("blackhole", "h33/rail0", {}, "did you mean 'h3/rail0'?"),
    ("switch-down", "h3", {}, "no switch 'h3'"),
    ("cpu-hog", "spine0", {}, "no host 'spine0'"),
    ("blackhole", "h3/rail0", {"percent": "5"}, "no option --percent; it takes --direction"),
    ("agent-kill", "h3", {"percent": "5"}, "it takes none"),
    ("loss", "h3/rail0", {}, "needs --percent"),
    ("loss", "h3/rail0", {"percent": "101"}, "not a percentage"),
    ("loss", "h3/rail0", {"percent": "nan"}, "not a percentage"),
    ("delay", "h3/rail0", {"add": "5"}, "not a duration"),
    ("delay", "h3/rail0", {"add": "11s"}, "out of range"),
    ("rate", "h3/rail0", {"to": "fast"}, "not a rate"),
    ("rate", "h3/rail0", {"to": "1bit"}, "out of range"),
    ("link-down", "h3/rail0", {"side": "up"}, "host, leaf, spine"),
    ("link-down", "h3/rail0", {"side": "spine"}, "no spine end"),
    ("link-down", "leaf0-1/spine0", {"side": "host"}, "no host end"),
    ("blackhole", "h3/rail0", {"direction": "sideways"}, "both, to, from"),
    ("flap", "h3/rail0", {"duty": "1"}, "fraction"),
    ("flap", "h3/rail0", {"count": "-1"}, "number from"),
    ("cpu-hog", "h3", {"procs": "0"}, "number from 1"),
    ("clock-drift", "h3", {"ppm": "0"}, "not a change of rate"),
    ("clock-drift", "h3", {"ppm": "-"}, "not a change of rate"),
    ("clock-drift", "h3", {"ppm": "+-5"}, "not a change of rate"),
    ("mtu", "leaf0-1/spine0", {}, "needs a NIC"),
    ("mtu", "h3/rail0", {"bytes": "9000"}, "number from 1280"),
    ("rail-swap", "leaf0-1", {}, "no host"),
    ("controller-kill", "h3", {}, "no controller 'h3'"),
    ("gateway-kill", "", {}, "needs a gateway"),
    ("gateway-kill", "controller", {}, "its gateways are gateway1"),
    ("key-rotate", "", {"by": "1s"}, "it takes none"),
    ("flow-rate", "leaf0-1/spine0", {"to": "3mbit", "sport": "1", "dport": "2"}, "needs a NIC"),
    ("flow-rate", "h0/mgmt0", {"to": "3mbit", "sport": "1", "dport": "2"}, "needs a NIC"),
    ("flow-rate", "h0/rail0", {"to": "3mbit", "sport": "0", "dport": "2"}, "number from 1"),
    ("flow-rate", "h0/rail0", {"to": "3mbit", "sport": "1"}, "needs --dport"),
    ("agent-kill", "", {}, "agent-kill needs a host"),
    ("blackhole", "", {}, "blackhole needs a link"),
    ("clock-step", "h3", {}, "needs --by"),
    ("clock-step", "h3", {"by": "0s"}, "not a clock step"),
    ("clock-step", "h3", {"by": "soon"}, "not a duration"),
]


@pytest.mark.parametrize(("kind", "target", "options"), GOOD)
def test_good(kind: str, target: str, options: dict[str, str]) -> None:
    order = parse_order(PLAN, kind, target, options)
    assert order.kind is KINDS[kind]
    assert order.options == options
    assert {name for name, text in KINDS[kind].options.items() if text} <= set(order.values)


@pytest.mark.parametrize(("kind", "target", "options", "words"), BAD)
def test_bad(kind: str, target: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_order(PLAN, kind, target, options)
    assert "\n" not in str(caught.value)


def test_every_kind_is_tried_and_every_option_is_known() -> None:
    assert {kind for kind, *_ in GOOD} == set(KINDS)
    assert {name for kind in KINDS.values() for name in kind.options} == set(OPTIONS)


@pytest.mark.parametrize("given", ["", "ctl"])
def test_the_one_controller_need_not_be_named(given: str) -> None:
    assert parse_order(PLAN, "controller-kill", given, {}).target == "ctl"


def test_values_are_in_their_units() -> None:
    assert parse_order(PLAN, "delay", "h0/rail0", {"add": "300us"}).integer("add") == 300 * US
    assert parse_order(PLAN, "rate", "h0/rail0", {"to": "50mbit"}).integer("to") == 50_000_000


@pytest.mark.parametrize(
    ("link", "direction", "inwards"),
    [
        ("h3/rail0", "from", (True,)),
        ("h3/rail0", "to", (False,)),
        ("leaf0-1/spine0", "from", (False,)),
        ("leaf0-1/spine0", "to", (True,)),
        ("h3/rail0", "both", (True, False)),
    ],
)
def test_directions_are_seen_from_the_links_first_end(
    link: str, direction: str, inwards: tuple[bool, ...]
) -> None:
    places = link_packets(PLAN.link(link), direction)
    assert tuple(place.inwards for place in places) == inwards
    assert {place.port.node for place in places} == {"leaf0-0" if "h3" in link else "leaf0-1"}


@pytest.mark.parametrize("text", ["64kbit", "200mbit", "1gbit", "1500kbit"])
def test_rates_round_trip(text: str) -> None:
    assert format_rate(parse_rate_bps(text)) == text


@pytest.mark.parametrize(
    ("kind", "target", "daemons"),
    [
        ("agent-kill", "h3", ("reactor-h3", "agent-h3")),
        ("reactor-stop", "h3", ("reactor-h3",)),
        ("telemetry-kill", "h3", ("agent-h3",)),
        ("controller-pause", "", ("controller",)),
        ("gateway-kill", "gateway2", ("gateway2",)),
    ],
)
def test_daemons_are_held_or_paused_until_the_fault_is_undone(
    tmp_path: Path, kind: str, target: str, daemons: tuple[str, ...]
) -> None:
    recorder = mock.Mock()
    site = FaultContext(PLAN, mock.Mock(), recorder, {}, tmp_path)
    fault = KINDS[kind](site, 7, parse_order(PLAN, kind, target, {}))
    begin, end = ("hold", "release") if kind.endswith("kill") else ("pause", "resume")
    fault.apply()
    assert recorder.mock_calls == [getattr(mock.call, begin)(7, each) for each in daemons]
    recorder.reset_mock()
    fault.undo()
    assert recorder.mock_calls == [getattr(mock.call, end)(7, each) for each in daemons]
