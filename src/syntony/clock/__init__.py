"""Pair estimator → network solve → timeline with a bound. Pure."""
