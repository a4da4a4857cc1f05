"""The page on jobs' tables says what the tables are: `python -m tests.wire.test_jobs_reference`."""

from __future__ import annotations

from pathlib import Path

from syntony.wire.tables import COLLECTIVE, GPU, JOB_DELAY, JOB_FLOW, JOB_PROCESS, STEP, Table

PAGE = Path(__file__).parents[2] / "docs/reference/jobs.md"
TABLES = (JOB_PROCESS, GPU, COLLECTIVE, STEP, JOB_FLOW, JOB_DELAY)


def section(table: Table) -> str:
    """Its columns, as the page has them."""
    lines = [f"### `{table.name}`", ""]
    days = table.retention_days
    lines.append(f"Sorted by minute, {table.about[0]} and instant; kept for {days} days.")
    lines += ["", "| Column | Type | Is |", "| --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.type} | {each.meaning} |" for each in table.columns]
    return "\n".join(lines)


def test_the_page_has_every_column_of_jobs_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in TABLES:
        assert section(table) in page


if __name__ == "__main__":
    print("\n\n".join(map(section, TABLES)))
