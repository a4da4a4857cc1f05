"""Links and NICs: counters and their meaning, flaps, modules, state machines. No IO; the agent
reads the values through `syntony.io`."""
