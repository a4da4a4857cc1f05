"""The probe plan: which NICs probe which, how often, on which source ports; rolling statistics of
the probed paths; the rotation of probe keys. Pure."""
