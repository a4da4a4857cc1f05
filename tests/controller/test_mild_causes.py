"""What a warning is no reason for: leaving a proven, critical fault of a part until the morning."""

from __future__ import annotations

from tests.controller.judged import Control, finding, port


def test_a_port_that_is_down_pages_although_its_leaf_loses_a_little(control: Control) -> None:
    control.homes = {f"h{number}/rail0": f"leaf{number // 2}" for number in range(6)}
    some = {f"h{number}/rail0->h5/rail0": frozenset({"leaf0"}) for number in range(20)}
    every = {f"h{number}/rail0->h5/rail1": frozenset({"leaf9"}) for number in range(9_000)}
    control.slas = control.slas._replace(crossing=some | every, jobs={})
    up = tuple(port(nic) for nic in control.homes)
    control.store.links.seen = up
    control.findings = (finding("leaf0", "leaf", loss=0.1),)
    control.tick(9)
    assert control.pages() == ["switch-loss leaf0"]
    assert control.live_incidents()[0]["severity"] == "warning"
    control.store.links.seen = (port("h0/rail0", state="no-peer"), *up[1:])
    control.tick(9)
    assert control.pages() == ["switch-loss leaf0", "port-down h0/rail0"]
