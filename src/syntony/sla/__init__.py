"""Compares latency with objectives, with its own past and with similar pairs. No IO; the controller
reads the rows."""
