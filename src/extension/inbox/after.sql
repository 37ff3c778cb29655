
-- No role has these rights without a GRANT: USAGE on the schema, and EXECUTE on outbox.mark_processed(uuid, text).
REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA outbox, outbox_internal FROM PUBLIC;
