"""Latency against objectives, against its own past and against its like. No IO."""
