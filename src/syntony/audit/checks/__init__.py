"""One class for each check; `syntony.audit.registry` finds them all."""
