"""The probe plan: who probes whom, how often, on which source ports; and rolling statistics of the
probed paths. Also the rotation of probe keys. Pure."""
