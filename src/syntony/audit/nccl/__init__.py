"""Collectives over the whole fleet: what is run, what its output says, what it comes down to."""
