-- When its holder last said that it is alive, by the server's clock, and the session that it holds
-- the lock with. 0: of a version that does not renew.
ALTER TABLE lease ADD COLUMN renewed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN backend INTEGER NOT NULL DEFAULT 0;
