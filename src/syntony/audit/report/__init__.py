"""Verdicts for people and for other programs: tree, tables, JUnit, HTML, Markdown, exit codes."""
