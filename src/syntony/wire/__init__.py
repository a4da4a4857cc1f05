"""Every byte that crosses a process boundary: messages, column schemas, file formats. Pure."""
