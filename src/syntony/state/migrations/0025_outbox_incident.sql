-- The order of messages matters within one incident only; 0 in those of older versions.
ALTER TABLE outbox ADD COLUMN incident INTEGER NOT NULL DEFAULT 0;
