CREATE TRIGGER change_is_append_only_update BEFORE UPDATE ON change
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER change_is_append_only_delete BEFORE DELETE ON change
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
