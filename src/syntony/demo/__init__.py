"""The acts of `make demo`; each is a measurement that can fail."""
