"""The per-host daemon: wires `io` to the pure rooms."""
