"""A whole fleet on one machine: namespaces, synthetic clocks with a known truth, faults."""
