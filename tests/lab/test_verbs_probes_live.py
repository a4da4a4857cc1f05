"""Agents in two machines probe each other over Soft-RoCE: both planes are in the matrix, a black
hole in both, and the verbs plane is back after it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from syntony.lab.client import Lab, open_lab
from syntony.lab.testing import SYNTONY, eventually, syntony
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-verbs-probes"
BOOT_S = 600.0
PATIENCE_S = 300.0
WINDOW = "20s"


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[Lab]:
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(f"no machines here: {', '.join(missing)} (see syntony doctor)")
    words = (
        "lab", "verbs", "up", "--name", NAME, "--detach", "--seed", "3", "--rails", "1",
        "--spines", "1", "--probe-interval-ms", "1000",
    )  # fmt: skip
    subprocess.run([*SYNTONY, *words], check=True, timeout=BOOT_S)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


def cells(over: str) -> list[dict[str, Any]]:
    """The matrix over the last seconds; nothing while nobody answers."""
    words = ("probe", "matrix", "--lab", NAME, "--over", over, "--window", WINDOW, "--json")
    said = syntony(*words).stdout
    found: list[dict[str, Any]] = json.loads(said) if said.strip() else []
    return found


def arrive(over: str) -> bool:
    """Whether both directions are measured and hardly anything is lost."""
    found = cells(over)
    return len(found) == 2 and all(
        cell["owd_p50_ns"] is not None and cell["lost"] < 0.2 * cell["sent"] for cell in found
    )


def test_both_planes_are_probed_and_see_what_becomes_of_the_fabric(lab: Lab) -> None:
    eventually(lambda: arrive("udp"), "UDP is measured", within_s=PATIENCE_S)
    eventually(lambda: arrive("verbs"), "verbs are measured", within_s=PATIENCE_S)
    assert {cell["over"] for cell in cells("verbs")} == {"verbs"}
    both = json.loads(syntony("probe", "matrix", "--lab", NAME, "--over", "both", "--json").stdout)
    assert {cell["over"] for cell in both["cells"]} == {"udp", "verbs"}
    lab.inject("blackhole", "h0/rail0")
    try:
        for over in ("udp", "verbs"):
            eventually(
                lambda over=over: any(
                    cell["lost"] > 0.5 * cell["sent"] > 0 for cell in cells(over)
                ),  # type: ignore[misc]
                f"dark over {over}",
                within_s=PATIENCE_S,
            )
    finally:
        lab.clear()
    eventually(lambda: arrive("verbs"), "verbs are measured again", within_s=PATIENCE_S)
