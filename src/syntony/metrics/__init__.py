"""Metrics for Prometheus: one table, its text formats, its reference page."""
