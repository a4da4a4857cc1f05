"""Syntony: when every clock in the fleet agrees, one-way delay becomes a measurement."""

__version__ = "0.1.0"
