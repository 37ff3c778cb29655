-- The schema is the extension's: DROP EXTENSION takes it along. One that is there already becomes so: version 0.1.0 was made into it, or
-- somebody has prepared it. Whoever may create in the database may have, to keep code in it that others then run.
DO $$
DECLARE
  us oid[] := ARRAY[current_user::regrole, (SELECT e.extowner FROM pg_extension AS e WHERE e.extname = 'outbox')];
  ours oid := (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'outbox');
  theirs oid := (SELECT d.refobjid FROM pg_depend AS d WHERE d.classid = 'pg_namespace'::regclass AND d.objid = to_regnamespace('outbox')
                                                         AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e');
  stranger name;
  planted text;
BEGIN
  IF to_regnamespace('outbox') IS NULL THEN
    CREATE SCHEMA outbox;
    RETURN;
  END IF;
  SELECT r.rolname INTO stranger FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
  WHERE n.nspname = 'outbox' AND r.oid <> ALL (us) AND NOT r.rolsuper;
  IF FOUND THEN
    RAISE EXCEPTION 'schema "outbox" belongs to "%"', stranger
      USING ERRCODE = 'insufficient_privilege', DETAIL = 'Its owner could put functions beside those of the extension.',
      HINT = 'ALTER SCHEMA outbox OWNER TO CURRENT_USER; or drop it: CREATE EXTENSION makes it.';
  END IF;
  SELECT (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity INTO planted
  FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
  WHERE p.pronamespace = 'outbox'::regnamespace AND r.oid <> ALL (us) AND NOT r.rolsuper LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'schema "outbox" has a function of somebody else: %', planted
      USING ERRCODE = 'duplicate_function', DETAIL = 'Who calls the extension''s functions could run it instead.',
      HINT = format('DROP FUNCTION %s;', planted);
  END IF;
  IF theirs <> ours THEN
    RAISE EXCEPTION 'schema "outbox" belongs to extension "%"', (SELECT e.extname FROM pg_extension AS e WHERE e.oid = theirs)
      USING ERRCODE = 'duplicate_schema', DETAIL = 'Dropped, that extension would take this one along.', HINT = 'Drop that extension, or use another database.';
  ELSIF theirs IS NULL THEN
    -- ALTER EXTENSION ... ADD SCHEMA refuses the schema that the extension is in, and would count what people were granted on it to the extension.
    UPDATE pg_extension SET extnamespace = 'pg_catalog'::regnamespace WHERE oid = ours;
    DELETE FROM pg_depend WHERE classid = 'pg_extension'::regclass AND objid = ours AND refclassid = 'pg_namespace'::regclass;
    INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
    VALUES ('pg_namespace'::regclass, 'outbox'::regnamespace, 0, 'pg_extension'::regclass, ours, 0, 'e');
  END IF;
END
$$;
