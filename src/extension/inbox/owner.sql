
-- The role that creates the extension owns all of it. PostgreSQL runs the script of a trusted extension as a
-- superuser: with its rights, a trigger that a role puts on a partition of its own would run as a superuser too.
DO $$
DECLARE
  item record;
BEGIN
  FOR item IN
    SELECT o.type, o.identity
    FROM pg_catalog.pg_depend AS d
    JOIN pg_catalog.pg_extension AS e ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
      AND e.oid = d.refobjid AND e.extname = 'outbox_inbox',
      LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o
    WHERE d.deptype = 'e' AND o.type IN ('schema', 'table', 'sequence', 'function')
    ORDER BY o.type <> 'schema'
  LOOP
    EXECUTE format('ALTER %s %s OWNER TO @extowner@', item.type, item.identity);
  END LOOP;
END
$$;

-- A dump contains the days. The partition and the sequences that the extension makes must be registered for it.
SELECT pg_catalog.pg_extension_config_dump('outbox_inbox.processed_events_other', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_inbox.processed_dropped', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_inbox.retention_seconds', '');
