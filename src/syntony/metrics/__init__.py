"""Metrics for Prometheus: one table of all metrics, the text formats, the reference page. Agent and
controller fill them in."""
