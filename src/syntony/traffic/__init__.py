"""Decisions on paths: failover, placement, moves. Events in, instructions out; no IO."""
