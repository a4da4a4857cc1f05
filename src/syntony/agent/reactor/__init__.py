"""The process that reacts: it owns the probe engine and jobs' paths, and needs no other process."""
