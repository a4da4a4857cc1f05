"""Jobs that run in a lab: collectives over ordinary sockets, results checked, steps reported."""
