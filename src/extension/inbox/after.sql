
CREATE OR REPLACE FUNCTION outbox.run_maintenance() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT outbox_internal.maintain_processed() $$;
COMMENT ON FUNCTION outbox.run_maintenance() IS
  'Creates the coming partitions of outbox.processed_events and drops those whose retention is over. Call it every '
  'few minutes. Returns the number of partitions that it created or dropped. The caller need not own the table: '
  'GRANT EXECUTE is enough.';

-- No role has these rights without a GRANT: USAGE on the schema, and EXECUTE on outbox.mark_processed(uuid, text).
REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA outbox, outbox_internal FROM PUBLIC;
