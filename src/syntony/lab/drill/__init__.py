"""Drills: a real job in a lab, faults on a schedule, and the same again with other
settings. Reports compare the results."""
