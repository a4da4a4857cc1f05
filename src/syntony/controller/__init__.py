"""The fleet daemon: ingest, network solve, probe plan, queries."""
