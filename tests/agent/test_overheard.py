"""One watch over carriers, two who hear of it: in a private namespace, on a cable that is cut."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from tests.io.namespace import ip, run_alone

from syntony.agent.links import Overheard
from syntony.lab.testing import eventually
from syntony.model.paths import LinkEvent

pytestmark = pytest.mark.lab


def what_path_control_hears_is_told_to_the_links_as_well() -> None:
    ip("link add va type veth peer name vb")
    for nic in ("va", "vb"):
        ip(f"link set {nic} up")
    told: list[LinkEvent] = []
    heard: list[LinkEvent] = []
    watch = Overheard(told.append)

    def carrier() -> bool | None:
        heard.extend(watch.poll(time.monotonic_ns()))
        return next((each.carrier for each in reversed(heard) if each.nic == "va"), None)

    eventually(lambda: carrier() is True, "there")
    ip("link set vb down")
    eventually(lambda: carrier() is False, "pulled")
    assert told == heard
    watch.close()


@pytest.mark.parametrize("scenario", [what_path_control_hears_is_told_to_the_links_as_well])
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
