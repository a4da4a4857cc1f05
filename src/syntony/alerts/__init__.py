"""Rules and incidents: which conditions open an incident, which incident explains another, and
which ones page. No IO; the controller evaluates them."""
