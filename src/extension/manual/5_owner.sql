-- outbox.claim(), ack() and nack() work as the owner of the tables, who needs EXECUTE on the functions of this
-- extension.
DO $$
DECLARE
  item text;
BEGIN
  FOR item IN
    SELECT o.identity
    FROM pg_catalog.pg_depend AS d
    JOIN pg_catalog.pg_extension AS e ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
      AND e.oid = d.refobjid AND e.extname = 'outbox_manual',
      LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o
    WHERE d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO %I', item,
                   (SELECT pg_get_userbyid(e.extowner) FROM pg_extension AS e WHERE e.extname = 'outbox'));
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', item);
  END LOOP;
END
$$;
