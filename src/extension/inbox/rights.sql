
-- No role has these rights without a GRANT: USAGE on the schema, and EXECUTE on outbox_inbox.mark_processed.
REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA outbox_inbox FROM PUBLIC;
