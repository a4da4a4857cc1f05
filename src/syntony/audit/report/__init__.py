"""Verdicts as documents for people and other programs: tree, tables, JUnit, HTML, Markdown, exit
codes."""
