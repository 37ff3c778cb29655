-- The rights without a GRANT by a user: pg_monitor may read the views. docs/security.md has those that users grant.

-- New objects are for their owner alone, except outbox.enqueue() and outbox.enqueue_bytes(): these check that their
-- caller has INSERT on outbox.events, so that one GRANT is the right to enqueue in every way. An upgrade leaves
-- existing rights: a REVOKE within a script would record the grants of this database's users as the extension's own,
-- and pg_dump would leave them out.
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN
    SELECT p.oid FROM pg_catalog.pg_proc AS p
    JOIN pg_catalog.pg_depend AS d
      ON d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    JOIN pg_catalog.pg_extension AS e
      ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'outbox'
    LEFT JOIN pg_catalog.pg_init_privs AS i ON i.classoid = d.classid AND i.objoid = p.oid AND i.objsubid = 0
    WHERE p.proname NOT IN ('enqueue', 'enqueue_bytes')
      AND EXISTS (SELECT FROM aclexplode(coalesce(i.initprivs, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)
  LOOP
    EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', f);
  END LOOP;
END
$$;

-- A reader of a view calls its functions, and needs a right on them as well. The views and functions that pg_monitor
-- gets show no payload, header or secret.
DO $$
DECLARE
  views oid[] := ARRAY(
    SELECT c.oid FROM pg_class AS c
    WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'v'
      AND (c.relname IN ('sinks', 'workers') OR c.relname LIKE E'%\\_metrics'));
  item text;
BEGIN
  FOR item IN
    SELECT 'USAGE ON SCHEMA outbox'
    UNION ALL SELECT format('SELECT ON outbox.%I', c.relname) FROM pg_class AS c WHERE c.oid = ANY (views)
    UNION ALL SELECT 'SELECT ON outbox.stopped_sinks'
    UNION ALL
    SELECT DISTINCT format('EXECUTE ON FUNCTION %s', (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity)
    FROM pg_proc AS p
    WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
      AND (p.proname IN ('doctor', 'metrics')
           OR p.oid IN (SELECT d.refobjid FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid
                        WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_proc'::regclass
                          AND r.ev_class = ANY (views)))
    ORDER BY 1
  LOOP
    PERFORM outbox_internal.grant_privilege(format('GRANT %s TO pg_monitor', item));
  END LOOP;
END
$$;

