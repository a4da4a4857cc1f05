-- Tokens of the HTTP API and browsers' sessions; the secrets themselves are not kept.
CREATE TABLE access_token (
    digest TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    parent INTEGER NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    issuer TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    used_ns INTEGER NOT NULL DEFAULT 0,
    revoked_ns INTEGER NOT NULL DEFAULT 0
);
