"""`syntony clock report`."""

import click


@click.command()
def report() -> None:
    """x"""
