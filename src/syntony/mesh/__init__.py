"""Who probes whom, how often, on which source ports; rolling path statistics. Pure."""
