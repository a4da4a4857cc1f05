"""Links and NICs: counters and their meaning, flaps, state machines. No IO."""
