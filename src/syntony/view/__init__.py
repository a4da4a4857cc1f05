"""Renders records for the terminal and reports: charts, matrices, tables. Pure; the command line
prints them."""
