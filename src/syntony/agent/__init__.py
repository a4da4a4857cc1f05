"""A host's two daemons, the reactor and the telemetry process: they wire `io` to the pure rooms."""
