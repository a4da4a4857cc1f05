"""A host's two daemons: the reactor, which probes and reacts to failures, and the telemetry
process, which stores and reports measurements. They connect `io` to the pure rooms."""
