"""Drills: a real job in a lab, a fault on schedule, the same again with other means, compared."""
