"""Fluid simulation of flows on a fabric: how they share links, and when each ends. Pure, seeded."""
