"""The checks of an audit, one class for each. `syntony.audit.registry` finds all of them."""
