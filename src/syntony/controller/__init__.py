"""The fleet daemon: it stores agents' rows, solves the clocks, plans probes, locates faults, keeps
incidents and places flows. It also answers queries of the command line and the HTTP API."""
