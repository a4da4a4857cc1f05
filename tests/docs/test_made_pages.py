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


@pytest.mark.parametrize(
    "row",
    [
        "| `probe_interval_ns` | ns | 500 ms | `controller.config.ControllerConfig` |",
        "| `spool_bytes` | bytes | 67,108,864 | `agent.config.AgentConfig` |",
        "| `traffic.max_actions_per_s` | 1/s | 2,000 | `traffic.policy.Policy` |",
        "| `enrolment.lifetime_ns` | ns | 24 h | `controller.config.EnrolmentConfig` |",
        "| `PARTS_NS` | ns | 10 s | `agent.daemon` |",
    ],
)
def test_known_values_are_in_the_table(row: str) -> None:
    """Looked up by hand: the maker's own arithmetic and units."""
    assert row in (DOCS / "reference/tunables.md").read_text()
