"""Seeded simulators with a known truth. Pure."""
