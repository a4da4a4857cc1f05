"""The defaults that the reference pages tell operators are those that the agents have."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from syntony.model import MS, US, S
from syntony.traffic.moves import MovePolicy
from syntony.traffic.policy import Policy

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
UNITS = {"µs": US, "ms": MS, "s": S, "min": 60 * S}
UNDOCUMENTED = {"retry_ns": 2 * S, "slack_ns": 50 * MS}
"""Of `MovePolicy`; not on the page, for nobody has had to change them."""


def value(text: str) -> object:
    """A default as a page writes it: "60 ms", "2,000", "`true`", "`[]`"."""
    text = text.partition(" (")[0].strip().strip("`").replace('"', "")
    if text in {"true", "false"}:
        return text == "true"
    if text.startswith("["):
        return tuple(text.strip("[]").split()) if text != "[]" else ()
    number, _, unit = text.partition(" ")
    if not re.fullmatch(r"[\d.,]+", number):
        return text
    amount = float(number.replace(",", ""))
    return amount * UNITS[unit] if unit else amount


def documented(page: str, names: set[str]) -> dict[str, object]:
    """Key to default, of a page's tables that name any of these keys and their defaults."""
    found: dict[str, object] = {}
    headed = False
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            headed = False
        elif cells[:2] == ["Key", "Default"]:
            headed = True
        elif headed and not line.startswith("| ---"):
            keys = re.findall(r"`(\w+)`", cells[0])
            values = re.split(r", (?![^(]*\))", cells[1]) if len(keys) > 1 else cells[1:2]
            if set(keys) <= names:
                found |= {k: value(v) for k, v in zip(keys, values, strict=True) if k not in found}
    return found


@pytest.mark.parametrize(
    ("page", "policy", "others"),
    [("traffic.md", Policy(), {}), ("placement.md", MovePolicy(), UNDOCUMENTED)],
)
def test_every_default_is_the_documented_one(
    page: str, policy: msgspec.Struct, others: dict[str, int]
) -> None:
    defaults = msgspec.structs.asdict(policy)
    assert documented(page, set(defaults)) | others == defaults
