"""The HTTP face of the request registry: routes, sessions, live events, the console's files."""
