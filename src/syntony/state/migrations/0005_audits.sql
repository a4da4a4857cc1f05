-- Audits through agents. `hosts` is a JSON list: whose reports are awaited.
CREATE TABLE audit_run (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    issuer TEXT NOT NULL,
    until_ns INTEGER NOT NULL,
    hosts TEXT NOT NULL
);
CREATE TABLE audit_report (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    host TEXT NOT NULL,
    report BLOB NOT NULL,
    refused TEXT NOT NULL,
    UNIQUE (run, host)
);
