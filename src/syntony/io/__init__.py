"""The only impure layer below the daemons: probe engine, clocks, timestamps, kernel interfaces."""
