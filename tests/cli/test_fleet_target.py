"""Which fleet a command line speaks to."""

from __future__ import annotations

import pytest

from syntony.agent.config import TlsFiles
from syntony.cli.fleet import FleetTarget, fleet_target
from syntony.errors import UsageError

NO_TLS = (None, None, None)


def test_a_local_socket_needs_no_certificate() -> None:
    target = "unix:/run/syntony-controller/controller.sock"
    assert fleet_target(None, target, NO_TLS) == FleetTarget(target, None)


def test_a_controller_elsewhere_needs_one() -> None:
    with pytest.raises(UsageError, match="--ca, --cert and --key"):
        fleet_target(None, "syntony.example:8443", NO_TLS)
    assert fleet_target(None, "syntony.example:8443", ("a", "b", "c")) == FleetTarget(
        "syntony.example:8443", TlsFiles(ca="a", cert="b", key="c")
    )


def test_a_lab_and_a_controller_are_not_named_together() -> None:
    with pytest.raises(UsageError, match="not both"):
        fleet_target("lab", "unix:/run/x.sock", NO_TLS)
