"""Seeded simulators with a known truth, for tests and benches. Pure."""
