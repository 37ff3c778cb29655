-- Last. The launcher learns at commit that this database has the extension, in this version.
CREATE OR REPLACE FUNCTION outbox.announce() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_announce';
COMMENT ON FUNCTION outbox.announce() IS 'Tells the launcher, at commit, to start workers for this database. Install and upgrade scripts call it.';

-- What is new is for nobody but by GRANT, except the ways to enqueue. What an upgrade finds is left alone: a REVOKE within
-- a script would record the grants of this database's people as the extension's own, and pg_dump would leave them out.
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN
    SELECT p.oid FROM pg_catalog.pg_proc AS p
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    JOIN pg_catalog.pg_extension AS e ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'outbox'
    LEFT JOIN pg_catalog.pg_init_privs AS i ON i.classoid = d.classid AND i.objoid = p.oid AND i.objsubid = 0
    WHERE p.proname NOT IN ('enqueue', 'enqueue_bytes')
      AND EXISTS (SELECT FROM aclexplode(coalesce(i.initprivs, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)
  LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END
$$;

SELECT outbox.announce();
