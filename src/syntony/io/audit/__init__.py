"""Audits meet the world here: files and commands of a host, hosts over SSH."""
