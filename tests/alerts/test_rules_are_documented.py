"""Every rule that comes with Syntony has a row in the guide to incidents."""

from __future__ import annotations

import re
from pathlib import Path

from syntony.alerts.rules import default_rules

PAGE = Path(__file__).parents[2] / "docs/how-to/incidents.md"


def test_the_guide_says_where_to_look_for_every_rule() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Fix it")[2].partition("\n## ")[0]
    first_cells = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    named = set(re.findall(r"`([a-z-]+)`", first_cells))
    assert named == {rule.name for rule in default_rules()}
