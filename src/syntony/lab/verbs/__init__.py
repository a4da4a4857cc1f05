"""Hosts as virtual machines with Soft-RoCE: real verbs in a lab, without hardware."""
