"""One schema, one SQL dialect: embedded by default, the distributed engine by URL."""
