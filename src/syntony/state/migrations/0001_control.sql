-- The fleet's stop switch: one row at most.
CREATE TABLE switch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    stopped INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    issuer TEXT NOT NULL
);

-- Modes that operators have set at run time; the configuration holds for what is not here.
CREATE TABLE mode (
    what TEXT PRIMARY KEY,
    mode TEXT NOT NULL
);

-- Keys that authenticate probe packets; the one with the highest epoch is sent.
CREATE TABLE probe_key (
    epoch INTEGER PRIMARY KEY,
    key_id INTEGER NOT NULL,
    secret BLOB NOT NULL
);

-- Every change, for ever: who, from where, what, before, after, why.
CREATE TABLE change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ns INTEGER NOT NULL,
    who TEXT NOT NULL,
    origin TEXT NOT NULL,
    what TEXT NOT NULL,
    was TEXT NOT NULL,
    became TEXT NOT NULL,
    comment TEXT NOT NULL
);
