-- Numbers that are never given out twice: name to the last one.
CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);

-- The incident book. Bodies are JSON.
CREATE TABLE incident (
    number INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE streak (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE silence (
    number INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);

-- Messages that receivers have not taken yet; a number is never used again.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    receiver TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX outbox_of_receiver ON outbox (receiver, number);
