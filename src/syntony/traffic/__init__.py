"""Decisions about the paths of jobs' connections: failover, placement, pacing. Events in,
instructions out; no IO."""
