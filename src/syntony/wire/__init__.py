"""Everything that crosses a process boundary: messages, column schemas, file formats, with encoding
and bounds. Pure."""
