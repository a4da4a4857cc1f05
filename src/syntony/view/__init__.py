"""Text pictures of records for the terminal: charts, maps, matrices, tables. Pure; the command line
prints them."""
