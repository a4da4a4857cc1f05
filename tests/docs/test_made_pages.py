"""Pages that are made from the code or from other pages are as their makers would write them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def maker(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_of_decisions_is_fresh() -> None:
    made = maker("decisions/make_index.py")
    assert made.INDEX.read_text() == made.index(), "run: python docs/decisions/make_index.py"


def test_the_index_lists_every_decision_once() -> None:
    index = (DOCS / "decisions/README.md").read_text()
    for path in (DOCS / "decisions").glob("[0-9]*.md"):
        assert index.count(f"]({path.name})") == 1, path.name


def test_the_table_of_tunables_is_fresh() -> None:
    made = maker("reference/make_tunables.py")
    assert made.PAGE.read_text() == made.page(), "run: python docs/reference/make_tunables.py"
    assert made.CONFIGURATION.read_text() == made.configuration()


@pytest.mark.parametrize(
    "row",
    [
        "| `probe_interval_ns` | 500 ms | Time between two probe pairs",
        "| `spool_bytes` | 67,108,864 | Limit of the disk spool",
        "| `port` | 8621 | TCP port at which agents accept joins",
        "| `lifetime_ns` | 24 h | Validity of certificates",
        '| `severities` | `["warning", "critical"]` | Severities',
        "### `[[anchors]]`\n\nA clock that is UTC ([deploy](../how-to/deploy.md)).",
    ],
)
def test_known_keys_are_on_the_page_of_configuration(row: str) -> None:
    """Looked up by hand: the maker's own arithmetic, units and links."""
    assert row in (DOCS / "reference/configuration.md").read_text()


def test_every_key_has_a_meaning() -> None:
    """And the lab's own keys are left out."""
    text = (DOCS / "reference/configuration.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert not [row[0] for row in rows if len(row[-1]) < len("Prose. |")]
    assert "clock.base_ns" not in text
    assert "synthetic" not in text


def test_a_known_constant_is_in_the_table() -> None:
    assert (
        "| `PARTS_NS` | ns | 10 s | `agent.daemon` |"
        in (DOCS / "reference/tunables.md").read_text()
    )
