"""Collectives over the whole fleet: which to run, how to read their output, how to judge the
result."""
