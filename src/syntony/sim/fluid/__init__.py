"""Flows on a fabric as fluids: who shares what with whom, and when each is done. Pure, seeded."""
