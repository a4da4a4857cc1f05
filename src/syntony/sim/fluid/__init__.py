"""Flows on a fabric as fluids: how they share links, and when each is finished. Pure, seeded."""
