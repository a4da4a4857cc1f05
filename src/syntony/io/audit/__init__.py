"""Reads the files and runs the commands that audits need, on this host and on hosts over SSH."""
