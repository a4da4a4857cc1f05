CREATE FUNCTION refuse_change_of_audit_log() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER change_is_append_only BEFORE UPDATE OR DELETE ON change
FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit_log();
