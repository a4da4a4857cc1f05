"""The acts of `make demo`, which show failures in a lab and how Syntony handles them. Each act is a
measurement that can fail."""
