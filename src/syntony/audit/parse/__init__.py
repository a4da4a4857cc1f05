"""Parsers of the output of other programs, which return records. They raise `UnreadableError` and
no other error."""
