-- Join tokens; the secret itself is not kept.
CREATE TABLE join_token (
    digest TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    names TEXT NOT NULL,
    addresses TEXT NOT NULL,
    lifetime_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    issuer TEXT NOT NULL,
    used_ns INTEGER NOT NULL DEFAULT 0
);

-- Certificates issued here, or seen in use.
CREATE TABLE certificate (
    serial TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    issued_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    revoked_ns INTEGER NOT NULL DEFAULT 0,
    seen_ns INTEGER NOT NULL DEFAULT 0,
    origin TEXT NOT NULL
);
CREATE INDEX certificate_by_name ON certificate (name);

-- Revoked as a whole: of these names, only certificates in the table above that are not revoked
-- there are accepted.
CREATE TABLE revoked_name (
    name TEXT PRIMARY KEY,
    at_ns INTEGER NOT NULL
);
