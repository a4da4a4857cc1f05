"""A real PostgreSQL server, for the tests that name it."""

from tests.postgres import postgresql

__all__ = ["postgresql"]
