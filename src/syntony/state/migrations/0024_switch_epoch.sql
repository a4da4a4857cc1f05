-- Of the controller that took the command. 0: of a version that did not say.
ALTER TABLE switch ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
