"""Replaces a lost rank of a PyTorch job by a warm spare, at the same step.

Half of this package runs in `syntony run` (the coordinator), half in the job's own processes: it
needs the standard library and the job's torch only, Python 3.11 or later.
"""
