"""The process that reacts to failures: it owns the probe engine and jobs' paths. It needs no other
process to do so."""
