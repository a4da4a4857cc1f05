"""A whole fleet on one machine: network namespaces, real daemons, synthetic clocks with a known
truth, faults. `syntony lab` runs it; tests, drills and the demo use it."""
