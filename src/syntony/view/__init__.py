"""Records as people look at them: terminal pictures without IO. Pure."""
